"""Which names and texts look like a secret, and how one is masked.

Imports storage only. Never reads or writes a store.
"""
