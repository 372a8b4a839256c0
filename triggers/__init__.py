"""The asynchronous half of the sensor."""

from .checkpoint import CheckpointTrigger

__all__ = ["CheckpointTrigger"]
