"""Stored data: outputs, key groups, deltas and their merges, local copies.

Imports checkpoint and storage. Knows nothing of a running epoch.
"""
