"""What Airflow loads of this package by entry point, in every one of its processes."""
