"""A folder as an object store, safe between processes and after a crash.

Imports the port and its errors. Knows nothing of checkpoints.
"""
