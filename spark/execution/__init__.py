"""Execution: whether this driver is still needed, and why it failed.

Imports checkpoint and storage. Writes nothing.
"""
