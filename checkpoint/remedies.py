"""Meaning and remedy of each reason: one table, for messages; docs/operations.md shows the meanings."""

from __future__ import annotations

from collections.abc import Mapping

from ..storage.names import StorageUri
from ..storage.records import dataclass
from .reasons import Reason


@dataclass(frozen=True, slots=True)
class Remedy:
    """Meaning and remedy of a reason."""

    meaning: str
    """The event and its cause."""
    action: str
    """The next step; `{job}`, `{storage}` and `{checkpoint}` are replaced by the job's name, the storage root and
    the checkpoint's id."""
    waiting_helps: bool = True
    """Whether `wait_for_checkpoint` may be tried again: a stage's own retry can open another attempt."""

    def text(self, job: str, storage: str | StorageUri, checkpoint: int | str = "ID") -> str:
        """Give the next step as the end of a message; where the checkpoint is not known, its commands name it `ID`."""
        return f"{self.meaning} {self.action_for(job, storage, checkpoint)}"

    def action_for(self, job: str, storage: str | StorageUri, checkpoint: int | str = "ID") -> str:
        """Give the next step for one checkpoint."""
        return self.action.format(job=job, storage=storage, checkpoint=checkpoint)


def forget_listener(job: str, listener: str, checkpoint: int, storage: str | StorageUri) -> str:
    """Give the command that drops a listener's notice of one checkpoint."""
    return f"cairn forget-listener {job} {listener} --checkpoint {checkpoint} --yes --storage {storage}"


_MEND_AND_CLEAR = (
    "`cairn show {job} {checkpoint} --storage {storage}` names the stage. "
    "Mend the cause, then clear that stage with Downstream."
)
_RESUME = (
    "Let the job go on with `cairn resume {job} --storage {storage}`, then clear the task that triggers the "
    "checkpoint, "
    "with Downstream."
)
_CLEAR_TRIGGER = "Clear the task that triggers the checkpoint, with Downstream."

LEFT_BEHIND = (
    f"So many other runs have ended since that nothing of this one is kept for its next attempt. {_CLEAR_TRIGGER}"
)
"""Replaces the reason's way out (`Failed.left_behind`)."""

NOTHING_LEFT = f"This attempt has left nothing from which a stage could go on. Mend the cause. {_CLEAR_TRIGGER}"
"""Replaces the reason's way out if the record of the attempt's stages is gone, or the job was rewound since."""

REMEDIES: Mapping[Reason, Remedy] = {
    Reason.CHECKPOINT_COORDINATOR_SHUTDOWN: Remedy(
        "The job was stopped with a savepoint.", _RESUME, waiting_helps=False
    ),
    Reason.PERIODIC_SCHEDULER_SHUTDOWN: Remedy(
        "The DAG is paused, so no run of its schedule begins.",
        "Unpause the DAG. If it is not paused, type `cairn resume {job} --storage {storage}`, then clear the task that "
        "triggers the checkpoint, with Downstream.",
    ),
    Reason.ALREADY_QUEUED: Remedy(
        "The run's request has a place in the queue already.", "Nothing: the trigger waits for its turn."
    ),
    Reason.TOO_MANY_CHECKPOINT_REQUESTS: Remedy(
        "1,000 requests wait for a place.",
        "Find out why checkpoints do not complete: `cairn checkpoints {job} --storage {storage}`. The trigger asks "
        "again.",
    ),
    Reason.TOO_MANY_CONCURRENT_CHECKPOINTS: Remedy(
        "Another run's epoch is pending, and `max_concurrent_checkpoints` allows no more.",
        "Nothing: the trigger waits until that one has ended. If that run is dead, mark it failed.",
    ),
    Reason.MINIMUM_TIME_BETWEEN_CHECKPOINTS: Remedy(
        "`min_pause` has not passed since the last checkpoint completed.",
        "Nothing: the trigger asks again when it has.",
    ),
    Reason.IO_EXCEPTION: Remedy(
        "The storage failed, or a document in it cannot be used; the message names it.",
        "Look at the storage with `cairn verify {job} --storage {storage}` and mend it. Then clear the task that "
        "triggers "
        "the checkpoint, with Downstream.",
    ),
    Reason.TRIGGER_CHECKPOINT_FAILURE: Remedy(
        "A source or a master hook failed, or something else while the checkpoint was being triggered.",
        "Mend what the message names. " + _CLEAR_TRIGGER,
    ),
    Reason.CHECKPOINT_DECLINED: Remedy("A stage's application failed and said so.", _MEND_AND_CLEAR),
    Reason.CHECKPOINT_DECLINED_TASK_CLOSING: Remedy("A stage was ending when it was to take part.", _MEND_AND_CLEAR),
    Reason.CHECKPOINT_DECLINED_ON_CANCELLATION_BARRIER: Remedy(
        "A stage has not begun because one that it reads from has declined.", _MEND_AND_CLEAR
    ),
    Reason.CHECKPOINT_ASYNC_EXCEPTION: Remedy("A stage failed while it wrote its state.", _MEND_AND_CLEAR),
    Reason.CHECKPOINT_EXPIRED: Remedy(
        "Not every stage had acknowledged within `timeout`.",
        "`cairn show {job} {checkpoint} --storage {storage}` names the stages that were slow. Raise "
        "`CheckpointConfig(timeout=…)`, or "
        "make them faster, then clear the stages that have not acknowledged, with Downstream.",
    ),
    Reason.CHECKPOINT_SUBSUMED: Remedy(
        "Another epoch of the job completed first, so this attempt could no longer complete.",
        "Nothing: the epoch goes on by itself, with an attempt on the newest checkpoint.",
    ),
    Reason.CHECKPOINT_COORDINATOR_SUSPEND: Remedy(
        "The job was stopped, rewound or manually restored while the epoch was pending.",
        "If the job is stopped, type `cairn resume {job} --storage {storage}`. Then clear the task that triggers the "
        "checkpoint, with Downstream.",
        waiting_helps=False,
    ),
    Reason.JOB_FAILURE: Remedy(
        "A stage failed and has no try left, or the epoch's DAG run had ended.",
        "Mend what the message names, such as too little memory or too few `retries`, then clear the failed stages "
        "with Downstream. If no stage has failed, clear the run. If a source refuses that, because other runs have "
        "read some of its input, do what its error says.",
        waiting_helps=False,
    ),
    Reason.JOB_FAILOVER_REGION: Remedy(
        "A stage failed, and the epoch's next attempt has replaced this one.",
        "Nothing: the attempt that follows runs what has to run again. `cairn checkpoints {job} --storage {storage}` "
        "shows it.",
    ),
    Reason.FINALIZE_CHECKPOINT_FAILURE: Remedy(
        "Every stage had acknowledged, and the checkpoint's metadata could not be made or written.",
        "Mend what the message names, mostly the storage or two stages that publish one table. " + _CLEAR_TRIGGER,
        waiting_helps=False,
    ),
}
"""One row for each reason."""


def rows() -> list[tuple[str, str]]:
    """Give the table for the documentation: reason and meaning. The remedy is in each message."""
    return [(f"`{reason}`", way.meaning) for reason, way in REMEDIES.items()]
