"""Savepoints: take, copy out, verify, copy in, start from, dispose.

Imports attempts and all below. Never changes what an attempt has decided.
"""
