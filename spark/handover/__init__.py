"""What travels from the operator to the application: conf, the zip of this package, and secrets.

Imports checkpoint and storage.
"""
