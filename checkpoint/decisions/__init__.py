"""The protocol: pure functions from a version of the head, facts and the time to the next version or a verdict.

Imports documents, failures and the plain values beside this folder. Never reads or writes a store.
"""
