"""From Airflow's connections to storages, and what operators, sensors and triggers share."""

from .airflow_api import AirflowApiHook
from .storage import CheckpointStorageHook

__all__ = ["AirflowApiHook", "CheckpointStorageHook"]
