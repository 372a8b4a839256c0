"""Finds the files that are still needed and deletes all others.

Cleanup imports every room whose documents name files. It never deletes files of a retained or pending checkpoint.
"""
