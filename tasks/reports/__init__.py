"""Reports of an epoch for users: extra links and notes in Airflow, and lineage.

Imports hooks, and no other module of tasks. Never changes a job, and fails no task.
"""
