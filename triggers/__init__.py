"""Triggers: the waits of Cairn's tasks in the triggerer, without a worker slot.

Users import the names of `__all__`; the modules below are internal, and so is `DriverTrigger`, to which only stages of
a service defer.
"""

from .checkpoint import CheckpointTrigger
from .completed_epoch import CompletedEpochTrigger
from .request import RequestTrigger
from .savepoint import SavepointTrigger

__all__ = ["CheckpointTrigger", "CompletedEpochTrigger", "RequestTrigger", "SavepointTrigger"]
