"""What an epoch reads: the four sources, and where its slice begins and ends.

Imports store and decisions. Knows nothing of attempts.
"""
