"""The differences between versions of Airflow, in one place. Imports nothing else of this package."""
