"""A stage as a client of a Spark Connect server: which server, whose session, the process that runs the application.

Imports execution and checkpoint's errors. Knows nothing of Airflow, and only the client process imports grpc.
"""
