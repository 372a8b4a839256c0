"""The sensors: they wait until an epoch's checkpoint has completed, in the job's DAG and in others.

Users import the names of `__all__`; the modules below are internal. Each name is imported when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import import_when_used

if TYPE_CHECKING:
    from .checkpoint import CheckpointSensor as CheckpointSensor
    from .completed_epoch import CompletedEpochSensor as CompletedEpochSensor

_WHERE = {
    "CheckpointSensor": ".checkpoint",
    "CompletedEpochSensor": ".completed_epoch",
}

__all__ = [*_WHERE]  # noqa: PLE0604 - the table above is the list
_RENAMED = dict.fromkeys(("NobodyAcknowledgesError", "StagesEndedError"), "CheckpointFailedError")
__getattr__ = import_when_used(__name__, {**_WHERE, "CheckpointFailedError": "..checkpoint.errors"}, _RENAMED)
