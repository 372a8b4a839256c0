"""Checkpoints as places and lengths to draw: pure functions of what the checkpoint's views give.

Knows neither HTML nor requests.
"""
