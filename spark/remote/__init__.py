"""Clients of a Spark Connect server, and the driver of the server that a job's stages share.

Imports all below. Knows nothing of Airflow, and only the client process imports grpc.
"""
