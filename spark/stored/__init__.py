"""Data as it is stored: outputs, key groups, JSON values.

Imports checkpoint and storage. Knows nothing of an epoch that runs.
"""
