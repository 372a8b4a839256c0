"""What differs between the versions of Airflow, asked in one place. Imports nothing else of this package."""
