"""Starts, watches and ends the real parts: S3 server, Airflow, Spark cluster. Shared by the tests and the demo."""
