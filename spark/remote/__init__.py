"""A stage as a client of a Spark Connect server: which server, whose session, the process that runs the application.

Imports all below. Knows nothing of Airflow, and only the client process imports grpc.
"""
