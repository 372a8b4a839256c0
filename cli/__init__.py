"""The `cairn` command: reads a storage and shows its contents. Needs neither Airflow nor Spark."""
