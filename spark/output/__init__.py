"""Writes a stage's outputs: the writer, its committer, background snapshots.

Imports appending and all below. Knows nothing of kinds of state.
"""
