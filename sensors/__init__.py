"""The sensors: they wait until an epoch's checkpoint has completed, in the job's DAG and in others.

Users import the names of `__all__`; the modules below are internal.
"""

from ..tasks.stage_states import NobodyAcknowledgesError
from .checkpoint import CheckpointSensor
from .completed_epoch import CompletedEpochSensor

__all__ = ["CheckpointSensor", "CompletedEpochSensor", "NobodyAcknowledgesError"]
