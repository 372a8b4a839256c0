"""What waits in the triggerer: the asynchronous halves of the sensor and of tasks that wait for others."""

from .checkpoint import CheckpointTrigger
from .request import RequestTrigger
from .savepoint import SavepointTrigger

__all__ = ["CheckpointTrigger", "RequestTrigger", "SavepointTrigger"]
