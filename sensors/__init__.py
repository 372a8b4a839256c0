"""The sensor: waits until an epoch's checkpoint has completed.

Users import the names of `__all__`; the modules below are internal.
"""

from ..tasks.stage_states import NobodyAcknowledgesError
from .checkpoint import CheckpointSensor

__all__ = ["CheckpointSensor", "NobodyAcknowledgesError"]
