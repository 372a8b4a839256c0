"""What is wrong with a storage and the jobs in it, as findings with a command that mends each.

Reads through the coordinator. Writes only below `_cairn/`, and deletes that again. Never changes a job.
"""
