"""What is wrong with a worker, as findings: its Spark, Java and Python, its Airflow, and the way to Airflow's API.

Imports hooks. What it looks at, it gives to pure functions that judge it. Never changes anything.
"""
