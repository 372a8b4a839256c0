"""Stored documents: the documents of a job as values, their keys and their JSON.

Documents import storage's checks of names and errors. They never read or write a store, and decide nothing.
"""
