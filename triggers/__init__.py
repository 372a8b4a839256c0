"""What waits in the triggerer: the asynchronous halves of the sensor and of the task that triggers."""

from .checkpoint import CheckpointTrigger
from .request import RequestTrigger

__all__ = ["CheckpointTrigger", "RequestTrigger"]
