"""Master hooks, listeners, and committables that a sink commits when a checkpoint completes.

Extensions import store and rules. They never decide whether a checkpoint completes.
"""
