"""What there is to see of a job: rows, details and counts for the command line and the page.

Reads through the coordinator. Never writes.
"""
