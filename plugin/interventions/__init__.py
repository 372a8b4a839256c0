"""What a person may have a job do: what it would do, in words, and doing it.

Imports hooks, tasks and the checkpoint's use cases. Knows neither HTML nor requests, and does only what was planned.
"""
