"""One stage's task: it submits the application and judges how it ended.

Imports graph. Knows nothing of triggers and groups.
"""
