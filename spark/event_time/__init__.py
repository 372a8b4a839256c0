"""Event time: watermarks, timers and the time to live of state, all of it kept as state of the stage.

Imports input and all below. Knows nothing of how an epoch ends.
"""
