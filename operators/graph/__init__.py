"""The DAG as a graph of stages: which stages it has, which reads from which, and how.

Imports hooks and tasks. Never runs or submits anything.
"""
