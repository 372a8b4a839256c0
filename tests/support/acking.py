"""Acknowledgements that a test makes itself, where a real driver would."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow_cairn.checkpoint.documents import layout
from airflow_cairn.checkpoint.documents.acknowledgement import AckDocument, Output, StateHandle, SubtaskAck
from airflow_cairn.checkpoint.documents.attempt import Handover

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


def wide_ack(handover: Handover, subtasks: int, files: int) -> AckDocument:
    """Make the acknowledgement of many subtasks, of which the first so many name a file each; none is written."""
    at = handover
    folder = layout.output_folder(at.checkpoint, at.stage, at.attempt, at.token, RUN, "state.totals")
    handles = [
        (StateHandle("state.totals", f"{folder}part-{number:06d}.snappy.parquet", 1000, f"{number:032x}"),)
        for number in range(files)
    ]
    each = [SubtaskAck(number, handles[number] if number < files else ()) for number in range(subtasks)]
    return ack_of(handover, each, outputs=(Output("state", "totals", folder),))
