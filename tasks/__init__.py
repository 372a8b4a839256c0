"""Services for a running task that are not operators: its settings, other tasks' states, its reports, a shared Spark.

Imports hooks. Knows no operator.
"""
