"""Drawings of checkpoints as positions and lengths: pure functions of the data in the checkpoint's views.

Knows neither HTML nor requests.
"""
