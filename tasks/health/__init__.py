"""What is wrong with a worker, as findings: its Spark, Java and Python, those of the cluster, and its Airflow.

Imports hooks. What it looks at, it gives to pure functions that judge it. Never changes anything, and starts something
elsewhere only if it is told to.
"""
