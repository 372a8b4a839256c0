"""A person's next step about a checkpoint, with the exact command; pure (semantics O1)."""

from __future__ import annotations

from ...storage.records import dataclass
from ..reasons import Reason, Status, cause_first
from ..remedies import LEFT_BEHIND, NOTHING_LEFT, REMEDIES
from .checkpoint_list import CheckpointRow, Shown


@dataclass(frozen=True, slots=True)
class ReadBy:
    """The checkpoint of another DAG run that has read a failed one's input."""

    id: int
    run_id: str


@dataclass(frozen=True, slots=True)
class FollowedBy:
    """The newest later checkpoint of a checkpoint's DAG run."""

    id: int
    said: Shown


NOTHING = "Nothing"
"""Beginning of a step that needs no action."""


def next_step(
    row: CheckpointRow,
    job: str,
    storage: str,
    followed_by: FollowedBy | None = None,
    read_by: ReadBy | None = None,
    *,
    lost: bool = False,
) -> str:
    """Give the next step for a checkpoint, with commands between back quotes.

    Args:
        row: the checkpoint.
        job: the job's name.
        storage: of the job, for the commands.
        followed_by: the newest later checkpoint of the same DAG run; None: there is none.
        read_by: the checkpoint that holds all of its window, of another DAG run; None: none does.
        lost: it has failed, and no stage could take it up.
    """
    if followed_by is not None:
        command = f"`cairn show {job} {followed_by.id} --storage {storage}`"
        if followed_by.said is Shown.COMPLETED:
            return f"{NOTHING}: checkpoint {followed_by.id} of the same DAG run has completed. {command} shows it."
        if followed_by.said is Shown.IN_PROGRESS:
            return f"{NOTHING}: checkpoint {followed_by.id} of the same DAG run goes on. {command} shows it."
        ended = "has failed too" if followed_by.said is Shown.FAILED else "was ended by a pause"
        return f"Checkpoint {followed_by.id}, the newest of the same DAG run, {ended}: {command} says what to do."
    if row.status is Status.PENDING:
        return (
            f"It is in progress. `cairn show {job} {row.id} --watch --storage {storage}` shows how far it is. If its "
            "DAG run has failed, mend the cause, then clear the stages that have not acknowledged, with Downstream; if "
            "the DAG file no longer has one of them, clear the task that triggers the checkpoint instead."
        )
    if lost and read_by is None and not row.left_behind:
        return NOTHING_LEFT
    if row.paused and row.goes_on:
        return f"{NOTHING}: its run goes on, with another attempt, when the DAG is no longer paused."
    if row.status is Status.FAILED and read_by is not None:
        return (
            f"{NOTHING}: checkpoint {read_by.id} of the run {read_by.run_id} has read its window, and a clear would "
            f"end skipped. `cairn show {job} {read_by.id} --storage {storage}` shows it."
        )
    if row.status is Status.FAILED:
        return remedy_of(row, job, storage) or f"`cairn show {job} {row.id} --storage {storage}` shows what failed."
    if row.rewound_to is not None:
        return f"Clear its DAG run to read its input again: the job was rewound to checkpoint {row.rewound_to}."
    if row.left_out:
        return (
            f"{NOTHING}: it completed without {', '.join(row.left_out)}. What was to be read there is kept, and the "
            "next run reads it first; a clear would end skipped."
        )
    if not row.retained:
        return f"{NOTHING}: it completed, and newer ones are kept in its place."
    return (
        f"{NOTHING}: it completed. `cairn verify {job} {row.id} --storage {storage}` checks that its files are whole."
    )


def failure_text(row: CheckpointRow) -> str:
    """Say why a checkpoint failed: what happened to it, else what its reason means; empty where it did not fail."""
    if not row.failed or row.reason is None:
        return ""
    return cause_first(row.detail) or meaning_of(row.reason)


def meaning_of(reason: str) -> str:
    """Give the meaning of a reason; the reason itself if it is not known."""
    return REMEDIES[Reason(reason)].meaning if reason in Reason.__members__ else reason


def remedy_of(row: CheckpointRow, job: str, storage: str) -> str:
    """Give the remedy for a checkpoint's failure; empty where its reason is not known, as for next_step."""
    if row.left_behind:
        return LEFT_BEHIND
    if row.reason is None or row.reason not in Reason.__members__:
        return ""
    return REMEDIES[Reason(row.reason)].action_for(job, storage, row.id)
