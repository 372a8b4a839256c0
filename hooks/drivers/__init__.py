"""A driver seen from where it is submitted: its Spark, and what it prints. Imports no other module of `hooks/`."""
