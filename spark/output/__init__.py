"""Writes what a stage leaves: the writer, its committer, background snapshots.

Imports appending and all below. Knows nothing of kinds of state.
"""
