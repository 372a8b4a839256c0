"""From Airflow's connections to storages, and what operators, sensors and triggers share."""

from .storage import CheckpointStorageHook

__all__ = ["CheckpointStorageHook"]
