"""The rows of a stored state, read by pyarrow.

Imports store, documents and secrets. Imports pyarrow only when rows are asked for, and nothing of Spark's side. Never
writes.
"""
