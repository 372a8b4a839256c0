"""Tables outside of the storage that advance with the checkpoint: Iceberg, Delta, PostgreSQL (decision 0056).

Each table of a group has a sink. As a master hook it fixes the table's columns and a folder for staged rows; as a
listener it commits those rows. Imports checkpoint. Knows nothing of Airflow and Spark, and imports a format's library
only when a table is opened.
"""

MARKS = "cairn_commits"
"""The table of marks of PostgreSQL, in the schema of the table that is written."""
