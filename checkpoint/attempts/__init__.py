"""The use cases of an epoch: trigger, claim, fail over, resume, look at the progress, acknowledge.

Imports executions and all below. Knows nothing of savepoints.
"""
