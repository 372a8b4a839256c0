"""Finds what is still needed and deletes the rest.

Imports all that names files. Never deletes what a retained or pending checkpoint holds.
"""
