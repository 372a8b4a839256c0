"""Findings about a worker: its Spark, Java and Python, those of the cluster, and its Airflow.

Imports hooks. Gathers facts, and passes them to pure functions that judge them. Never changes anything, and starts an
application on the cluster only on request.
"""
