"""Triggers: what a task of Cairn waits for in the triggerer, without a worker slot.

Users import the names of `__all__`; the modules below are internal.
"""

from .checkpoint import CheckpointTrigger
from .request import RequestTrigger
from .savepoint import SavepointTrigger

__all__ = ["CheckpointTrigger", "RequestTrigger", "SavepointTrigger"]
