"""Launchers: how an operator of a service hands a stage over, finds its driver again, looks at it and ends it.

One module for each service, over the provider's own operator and hook, which the DAG file has imported. Knows nothing
of claims and attempts, and never decides whether a driver counts.
"""
