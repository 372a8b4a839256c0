"""Shared by every store behind a network: options, requests, faults, retries, waits, outcomes of conditional writes.

Imports the port and its errors. Knows no store and no checkpoints; `http` alone imports requests.
"""
