"""What a checkpointed task group and its trigger take alike."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, TypedDict

from ...checkpoint import CheckpointConfig
from ...checkpoint.extensions.listeners import CheckpointListener
from ...checkpoint.extensions.master_hooks import MasterHook
from ...checkpoint.source import Source


class JobOptions(TypedDict):
    """What a `CheckpointedTaskGroup` is given and its trigger takes: the arguments of that name."""

    storage: str
    job: str
    config: CheckpointConfig | None
    aws_conn_id: str | None
    slice_detail: dict[str, Any] | None
    source: Source | Sequence[Source] | None
    reads_window: bool | None
    master_hooks: Sequence[MasterHook] | None
    listeners: Sequence[CheckpointListener]
    restore_from: str | None
    allow_non_restored_state: bool
    claim: bool
    deferrable: bool
    poll_interval: timedelta | float
