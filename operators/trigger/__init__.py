"""The first task of an epoch: triggers its checkpoint.

Imports stage and graph.
"""
