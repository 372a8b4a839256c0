"""S3 as an object store. Only `store` imports boto3.

Imports the port and its errors. Knows nothing of checkpoints.
"""
