"""Master hooks, listeners, and what is committed outside when a checkpoint completes.

Imports store and decisions. Never decides whether a checkpoint completes.
"""
