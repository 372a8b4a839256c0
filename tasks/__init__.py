"""Questions of a running task about its own run: its settings, a pause, other tasks' states.

Imports hooks. Knows no operator.
"""
