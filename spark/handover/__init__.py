"""The handover from operator to application: conf, the zip of this package, and secrets.

Imports checkpoint and storage.
"""
