"""A stage's input: its slice, its upstreams, in-flight data, its restored state.

Imports kinds and all below. Writes nothing.
"""
