"""What travels from the operator to the application: conf, and the zip of this package.

Imports checkpoint and storage.
"""
