"""What is stored: the documents of a job as values, their keys and their JSON.

Imports storage's checks of names and errors. Never reads or writes a store, and decides nothing.
"""
