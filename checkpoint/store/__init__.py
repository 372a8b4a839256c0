"""The objects of one job: created once, compared and swapped, listed, verified.

The store imports documents, and rules only as values that a caller hands in. It never decides about a checkpoint.
"""
