"""S3 as an object store. Only `clients` imports boto3.

Imports the port and its errors. Knows nothing of checkpoints.
"""
