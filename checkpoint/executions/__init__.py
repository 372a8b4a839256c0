"""The execution of a stage: who holds it, what it takes over, whether it may begin.

Imports completion and all below. Never opens or ends an attempt.
"""
