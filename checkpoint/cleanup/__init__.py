"""Finds the files that are still needed and deletes all others.

Cleanup imports all rooms that name files. It never deletes files of a retained or pending checkpoint.
"""
