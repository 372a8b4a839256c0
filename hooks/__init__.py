"""Hooks: from Airflow's connections to a job's storage, to Spark, and to Airflow's own API.

Users import the names of `__all__`; the modules below are internal.
"""

from ..checkpoint.errors import AirflowApiError, AirflowApiRefusedError
from .airflow_api import AirflowApiHook
from .storage import CheckpointStorageHook

__all__ = ["AirflowApiError", "AirflowApiHook", "AirflowApiRefusedError", "CheckpointStorageHook"]
