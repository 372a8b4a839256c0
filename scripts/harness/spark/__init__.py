"""Starts Spark on this machine: a standalone cluster, YARN, a Connect server; and makes drivers start fast."""
