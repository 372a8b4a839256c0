"""Messages of a task that has nothing to do: its epoch is completed or has failed, or its window was read."""

from __future__ import annotations

import logging
import shlex
from typing import TYPE_CHECKING

from airflow.sdk.exceptions import AirflowSkipException

from ..checkpoint.answers import AlreadyRead, EpochCompleted, Failed
from ..checkpoint.documents import layout
from ..checkpoint.documents.head import run_of_head
from ..checkpoint.rules.rewinds import target
from ..storage.names import StorageUri

if TYPE_CHECKING:
    from ..checkpoint import Coordinator

log = logging.getLogger("airflow_cairn")


THEN = "Then clear this task, with Downstream"
"""The ending of a message that has said what to fix."""


def then_clear(message: str) -> str:
    """Return a message that ends with the step after the fix; a message that already does stays unchanged."""
    return message if message.endswith(THEN) else f"{message}. {THEN}"


def skipping(why: str) -> AirflowSkipException:
    """Return the error that skips a task, and log why: Airflow's own log line hides the reason in a field."""
    log.info("Skipped: %s", why)
    return AirflowSkipException(why)


def already_completed(coordinator: Coordinator, storage: StorageUri, answer: EpochCompleted) -> str:
    """Return the message that an epoch is completed: which checkpoint holds it, and how to run it again anyway."""
    head = coordinator.head()
    to = target(head, answer.checkpoint)
    if to is None:
        how = "No older checkpoint is retained, so the job cannot be rewound to before it"
    else:
        how = (
            f"To run it and all that came after it again: `{_rewind(coordinator.job, to, storage)}`, then clear these "
            "runs one after the other, the oldest first"
        )
    return (
        f"epoch {run_of_head(head, answer.epoch)} is completed: checkpoint {answer.checkpoint} holds it. It is not run "
        f"again, because its input would be folded in twice. {how}"
    )


def already_read(job: str, storage: StorageUri, answer: AlreadyRead) -> str:
    """Return the message that another run has read the input: which checkpoint holds it, and how to read it anyway."""
    if answer.source:
        return (
            f"the run {layout.run_id_of(answer.epoch)} is skipped, because its source {answer.source!r} has nothing "
            f"left to give to it: {answer.window}. Checkpoint {answer.checkpoint} holds what was read, and reading it "
            "again would count it twice"
        )
    if answer.back_to is None:
        back = "No retained checkpoint is from before it, so the job cannot be rewound to there"
    else:
        back = (
            f"To go back to before it: `{_rewind(job, answer.back_to, storage)}`, then clear the runs since, the "
            "oldest first"
        )
    return (
        f"the run {layout.run_id_of(answer.epoch)} is skipped: checkpoint {answer.checkpoint} has read "
        f"{answer.window}, and reading it again would count it twice. {back}. To read it once more on top of the "
        f"state, {answer.again}"
    )


def already_failed(run_id: str, answer: Failed) -> str:
    """Return the message that an epoch is not tried again by itself: why, and what a user can do."""
    return (
        f"epoch {run_id} has failed and is not tried again: checkpoint {answer.checkpoint}, attempt {answer.attempt}: "
        f"{answer.detail}. The next DAG run starts from the last completed checkpoint. To go on with this one, clear "
        "the failed stages: the count of restarts then starts anew"
    )


def _rewind(job: str, to: int, storage: StorageUri) -> str:
    return shlex.join(("cairn", "rewind", job, "--to", str(to), "--storage", str(storage)))
