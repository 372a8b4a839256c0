"""Services for a running task that are no operator: its settings, other tasks' states, its reports, a shared Spark.

Imports hooks. Knows no operator.
"""
