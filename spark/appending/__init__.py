"""Tables that grow: their manifests, partitions and columns, and the merging of their small files.

Imports stored and all below. Knows nothing of how Spark writes.
"""
