"""The `cairn` command: reads a storage and shows what it holds. Needs neither Airflow nor Spark."""
