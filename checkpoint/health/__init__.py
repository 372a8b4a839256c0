"""Checks a storage and its jobs, and reports findings, each with a command that fixes it.

Health reads through the coordinator. It writes only below `_cairn/`, deletes that again, and never changes a job.
"""
