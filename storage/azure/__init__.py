"""Azure Blob Storage as an object store, by its REST API. Only `session` imports azure-identity.

Imports the port, its errors and what stores behind a network share. Knows nothing of checkpoints.
"""
