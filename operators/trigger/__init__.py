"""The first task of an epoch.

Imports stage and graph.
"""
