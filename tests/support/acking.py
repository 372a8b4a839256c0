"""Acknowledgements that a test makes itself, where a real driver would."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow_cairn.checkpoint.model import AckDocument, Handover, SubtaskAck

RUN = "f" * 16
"""The driver's token where a test does not care."""


def ack_of(handover: Handover, subtasks: Sequence[SubtaskAck] = (SubtaskAck(0),), **more: Any) -> AckDocument:
    """Make the acknowledgement of an execution.

    Args:
        handover: which execution.
        subtasks: all that acknowledge.
        **more: other fields of `AckDocument`.
    """
    return AckDocument(
        job=handover.job,
        checkpoint=handover.checkpoint,
        epoch=handover.epoch,
        attempt=handover.attempt,
        stage=handover.stage,
        token=handover.token,
        parallelism=len(subtasks),
        subtasks=tuple(subtasks),
        **{"run": RUN, **more},
    )
