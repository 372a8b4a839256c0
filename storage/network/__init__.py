"""Shared by every store behind a network: requests, faults, retries, waits, and the outcome of a conditional write.

Imports the port and its errors. Knows no store and no checkpoints; `http` alone imports requests.
"""
