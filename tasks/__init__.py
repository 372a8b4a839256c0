"""What a running task of Cairn asks of its own run: settings, pause, other tasks' states.

Imports hooks. Knows no operator.
"""
