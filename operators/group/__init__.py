"""`CheckpointedTaskGroup`: all tasks of a job.

The top of the operators: imports the others, and no other imports it.
"""
