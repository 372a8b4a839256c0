"""Handles a failed task: the report, the failover, the retry.

Imports stage and graph.
"""
