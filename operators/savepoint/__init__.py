"""Operators for savepoints, and for stopping with one.

Imports trigger's checks and graph.
"""
