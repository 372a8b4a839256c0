"""What a stage reads: its slice, its upstreams, what was in flight, its restored state.

Imports kinds and all below. Writes nothing.
"""
