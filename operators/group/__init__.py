"""`CheckpointedTaskGroup`: all tasks of a job.

The top of the operators: imports the other folders; none of them imports it.
"""
