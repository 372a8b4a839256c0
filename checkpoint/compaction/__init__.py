"""A new base of a state that grows, written outside of an epoch: its record, and which epoch may adopt it.

Imports store and documents. Never deletes a file, and changes no head.
"""
