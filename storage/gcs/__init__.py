"""Google Cloud Storage as an object store, by its JSON API. Only `session` imports google-auth.

Imports the port, its errors and what stores behind a network share. Knows nothing of checkpoints.
"""
