"""The `cairn` command: reads a storage and says what is there. Needs neither Airflow nor Spark."""
