"""Views of a job: rows, details and counts for the command line and the page.

Views read through the coordinator, and never write.
"""
