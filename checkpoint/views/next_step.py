"""What a person does next about a checkpoint, with the exact command; pure (semantics O1)."""

from __future__ import annotations

from ..reasons import Reason, Status
from ..ways_out import LEFT_BEHIND, WAYS_OUT
from .checkpoint_list import CheckpointRow

NOTHING = "Nothing"
"""How a step begins that asks nothing of anybody."""


def next_step(row: CheckpointRow, job: str, storage: str, followed_by: int | None = None) -> str:
    """Say what to do about a checkpoint; what is to be typed stands between back quotes.

    Args:
        row: the checkpoint.
        job: the job's name.
        storage: where it lies, for the commands.
        followed_by: the newest later checkpoint of the same DAG run; None: there is none.
    """
    if followed_by is not None:
        return (
            f"{NOTHING}: checkpoint {followed_by} is the newest of the same DAG run. "
            f"`cairn show {job} {followed_by} --storage {storage}` shows it."
        )
    if row.status is Status.PENDING:
        return f"It is in progress. `cairn show {job} {row.id} --watch --storage {storage}` shows how far it is."
    if row.paused:
        return f"{NOTHING}: its run goes on, with another attempt, when the DAG is no longer paused."
    if row.status is Status.FAILED:
        return remedy_of(row, job, storage) or f"`cairn show {job} {row.id} --storage {storage}` shows what failed."
    if row.rewound_to is not None:
        return f"Clear its DAG run to read its input again: the job was rewound to checkpoint {row.rewound_to}."
    if not row.retained:
        return f"{NOTHING}: it completed, and newer ones are kept in its place."
    return (
        f"{NOTHING}: it completed. `cairn verify {job} {row.id} --storage {storage}` checks that its files are whole."
    )


def failure_text(row: CheckpointRow) -> str:
    """Say why a checkpoint failed: what happened to it, else what its reason means; empty where it did not fail."""
    if not row.failed or row.reason is None:
        return ""
    known = row.reason in Reason.__members__
    return row.detail or (WAYS_OUT[Reason(row.reason)].meaning if known else row.reason)


def remedy_of(row: CheckpointRow, job: str, storage: str) -> str:
    """Say what mends why a checkpoint failed; empty where its reason is not known, as for next_step."""
    if row.left_behind:
        return LEFT_BEHIND
    if row.reason is None or row.reason not in Reason.__members__:
        return ""
    return WAYS_OUT[Reason(row.reason)].remedy_of(job, storage, row.id)
