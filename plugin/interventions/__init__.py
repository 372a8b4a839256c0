"""Interventions of users in a job: a plan of the effects, in words, and its execution.

Imports hooks, tasks and the checkpoint's use cases. Knows neither HTML nor requests, and does only what was planned.
"""
