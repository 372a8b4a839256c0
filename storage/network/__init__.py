"""Shared by every store behind a network: faults, retries, waits, and the outcome of a conditional write.

Imports the port and its errors. Knows no store, no checkpoints, and no package that sends requests.
"""
