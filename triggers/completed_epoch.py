"""`CompletedEpochTrigger`: waits in the triggerer until a job has completed an epoch, or has read a window of time."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import TriggerEvent

from ..checkpoint.documents.layout import epoch_name
from ..checkpoint.documents.read_windows import Overlap, ReadWindow, window_of
from ..checkpoint.documents.staged_tables import PREFIX
from ..checkpoint.errors import InvalidConfigError
from ..checkpoint.remedies import forget_listener
from ..storage.records import dataclass
from .polling import PollingTrigger

if TYPE_CHECKING:
    from ..checkpoint import Coordinator
    from ..checkpoint.documents.entries import CompletedEntry
    from ..checkpoint.documents.head import Head

log = logging.getLogger("airflow_cairn")

COMPLETED = "completed"


class CompletedEpochTrigger(PollingTrigger):
    """Looks at the head of another DAG's job, in a thread, and yields exactly one event. It changes nothing.

    A look is one request. If the store cannot be reached, the trigger logs it and asks again until the sensor's own
    timeout; other errors end the wait.

    Args:
        storage: storage URI.
        job: the job's name.
        run_id: the job's DAG run whose epoch must have completed; None: the window decides.
        start: the window's start, ISO 8601; None: the beginning of time.
        end: the window's end, exclusive.
        aws_conn_id: Airflow connection of type `aws`; None: boto3's own chain.
        poll_interval: seconds between two looks at first; more than 0. The pause grows to a tenth of the time without
            news, at most 30 s, unless `poll_interval` is more.
        wait_for_tables: wait for the commits to tables of other formats too.

    Raises:
        InvalidConfigError: the interval is not positive.
    """

    def __init__(
        self,
        storage: str,
        job: str,
        run_id: str | None = None,
        start: str | None = None,
        end: str | None = None,
        aws_conn_id: str | None = None,
        poll_interval: float = 30.0,
        wait_for_tables: bool = True,
    ) -> None:
        super().__init__(storage, job, aws_conn_id, poll_interval)
        self.run_id = run_id
        self.start = start
        self.end = end
        self.wait_for_tables = wait_for_tables

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the arguments with which another triggerer goes on."""
        return "airflow_cairn.triggers.completed_epoch.CompletedEpochTrigger", {
            **self.arguments(),
            "run_id": self.run_id,
            "start": self.start,
            "end": self.end,
            "wait_for_tables": self.wait_for_tables,
        }

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Wait; yields one event: `status`, `checkpoint` and, for an error, its `detail` and `kind`."""
        asked = partial(
            completed_in, run_id=self.run_id, start=self.start, end=self.end, wait_for_tables=self.wait_for_tables
        )
        seen: Committing | None = None
        while True:
            found = await self.look(asked)
            if isinstance(found, Committing):
                if found != seen:
                    log.info("%s", found.text)
                seen = found
            elif found is not None:
                yield (
                    found
                    if isinstance(found, TriggerEvent)
                    else TriggerEvent({"status": COMPLETED, "checkpoint": found})
                )
                return
            await self.wait(self.pause_s)


@dataclass(frozen=True, slots=True)
class Committing:
    """The checkpoint is there, and commits of it or of an earlier one to tables of other formats are owed."""

    text: str


def completed_in(
    coordinator: Coordinator, run_id: str | None, start: str | None, end: str | None, *, wait_for_tables: bool
) -> int | Committing | None:
    """Return the checkpoint that completed an epoch, or the newest that covers a window; None if there is none.

    Whether commits to tables are owed is in the version of the head that says so: the swap that completes a checkpoint
    leaves the notices, and one goes when its table has the rows, or somebody has given them up (semantics C4, C7).

    Args:
        coordinator: the job's coordinator; reads its head, and for an old epoch the lists of completed checkpoints.
        run_id: the DAG run of the epoch; None: the window decides.
        start: the window's start, ISO 8601; None or empty: the beginning of time.
        end: the window's end, exclusive.
        wait_for_tables: take only a checkpoint up to which no commit to a table of another format is owed.

    Raises:
        InvalidConfigError: no window is given, or the job no longer knows what it has read so long ago (semantics T8).
    """
    if run_id is None:
        head = coordinator.head()
        found = _that_read(head, start, end)
    else:
        checkpoint = coordinator.completed_in(epoch_name(run_id))
        head, found = coordinator.known_head(), () if checkpoint is None else (checkpoint,)
    owed = _owed(head, max(found)) if wait_for_tables and found else {}
    first = min(owed.values(), default=None)
    committed = [each for each in found if first is None or each < first]
    if committed or not found:
        return max(committed, default=None)
    tables = ", ".join(f"{table} (since checkpoint {since})" for table, since in sorted(owed.items()))
    since, late = min((since, table) for table, since in owed.items())
    return Committing(
        f"Checkpoint {max(found)} of {coordinator.job} has completed, and commits to tables are owed: {tables}. If "
        "this lasts, the log of its wait_for_checkpoint says why. A commit that is given up is not waited for: "
        f"{forget_listener(coordinator.job, f'{PREFIX}{late}', since, coordinator.files.store.uri)}"
    )


def _owed(head: Head, through: int) -> dict[str, int]:
    """Return the tables that lack rows of checkpoints up to one, each with the oldest of these."""
    notices = (each for each in reversed(head.undelivered_completions()) if each.checkpoint <= through)
    return {
        name.removeprefix(PREFIX): each.checkpoint
        for each in notices
        for name in each.listeners
        if name.startswith(PREFIX)
    }


def _that_read(head: Head, start: str | None, end: str | None) -> tuple[int, ...]:
    """Return the retained checkpoints that cover a window; none unless the newest one does."""
    window = window_of(start or None, end or None)
    if window is None:
        raise InvalidConfigError(
            "there is no window of time to wait for: give run_id, or start and end, or let the DAG's schedule give its "
            "runs a data interval",
            start=start,
            end=end,
        )
    latest = head.latest_completed()
    if latest is None:
        return ()
    if not latest.read:
        raise InvalidConfigError(
            "the job reads no windows of time (reads_window=False, or a schedule without data intervals), so it never "
            "reads this one: wait for the run (run_id=…)",
            job=head.job,
            start=start,
            end=end,
        )
    exact_from = latest.read.exact_from
    if (
        latest.read.overlap(window) is not Overlap.ALL
        and exact_from is not None
        and window.start < datetime.fromisoformat(exact_from)
    ):
        raise InvalidConfigError(
            "the window is so old that the job no longer knows whether it has read it: wait for the run (run_id=…)",
            job=head.job,
            start=start,
            end=end,
        )
    return tuple(each.id for each in head.completed if _covers(each, window)) if _covers(latest, window) else ()


def _covers(entry: CompletedEntry, window: ReadWindow) -> bool:
    # A stage that still owes a read has not read the window: the next checkpoint contains it (semantics B2, B3).
    return entry.read.overlap(window) is Overlap.ALL and not entry.left_out and not entry.owing
