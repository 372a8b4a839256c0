"""The DAG as stages: which there are, which reads from which and how.

Imports hooks and tasks. Never runs or submits anything.
"""
