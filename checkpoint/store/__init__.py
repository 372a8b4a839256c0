"""One job's objects: created once, compared and swapped, listed, verified.

Imports documents, and decisions only as values that a caller hands in. Never decides what becomes of a checkpoint.
"""
