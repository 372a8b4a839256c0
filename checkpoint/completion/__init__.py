"""From acknowledgements to a completed checkpoint, and which one to restore; settles what has expired.

Imports sources and all below. Never opens an attempt.
"""
