"""The pages and the REST interface below `/cairn` in Airflow's API server.

Imports hooks, tasks and the checkpoint's views. Loaded by no other process of Airflow. Changes a job only as a user has
confirmed.
"""
