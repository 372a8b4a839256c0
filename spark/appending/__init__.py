"""A table that grows: its manifests, its partitions and columns, and which small files of it become one.

Imports stored and all below. Knows nothing of how Spark writes.
"""
