"""Writes what a stage leaves: the writer, its committer, background snapshots.

Imports stored, execution and handover. Knows nothing of kinds of state.
"""
