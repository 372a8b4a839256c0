"""Input of an epoch: the four sources, and the bounds of its slice.

Sources import store and rules, and know nothing of attempts.
"""
