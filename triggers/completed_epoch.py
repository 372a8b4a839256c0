"""`CompletedEpochTrigger`: waits in the triggerer until a job has completed an epoch, or has read a window of time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import TriggerEvent

from ..checkpoint.documents.layout import epoch_name
from ..checkpoint.documents.read_windows import Overlap, window_of
from ..checkpoint.errors import InvalidConfigError
from .polling import PollingTrigger

if TYPE_CHECKING:
    from ..checkpoint import Coordinator

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
    ) -> None:
        super().__init__(storage, job, aws_conn_id, poll_interval)
        self.run_id = run_id
        self.start = start
        self.end = end

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the arguments with which another triggerer goes on."""
        return "airflow_cairn.triggers.completed_epoch.CompletedEpochTrigger", {
            **self.arguments(),
            "run_id": self.run_id,
            "start": self.start,
            "end": self.end,
        }

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Wait; yields one event: `status`, `checkpoint` and, for an error, its `detail` and `kind`."""
        while True:
            found = await self.look(partial(completed_in, run_id=self.run_id, start=self.start, end=self.end))
            if found is not None:
                yield (
                    found
                    if isinstance(found, TriggerEvent)
                    else TriggerEvent({"status": COMPLETED, "checkpoint": found})
                )
                return
            await self.wait(self.pause_s)


def completed_in(coordinator: Coordinator, run_id: str | None, start: str | None, end: str | None) -> int | None:
    """Return the checkpoint that completed an epoch, or the newest if it covers a window; None if there is none.

    Args:
        coordinator: the job's coordinator; reads its head, and for an old epoch the lists of completed checkpoints.
        run_id: the DAG run of the epoch; None: the window decides.
        start: the window's start, ISO 8601; None or empty: the beginning of time.
        end: the window's end, exclusive.

    Raises:
        InvalidConfigError: no window is given, or the job no longer knows what it has read so long ago (semantics T8).
    """
    if run_id is not None:
        return coordinator.completed_in(epoch_name(run_id))
    window = window_of(start or None, end or None)
    if window is None:
        raise InvalidConfigError(
            "there is no window of time to wait for: give run_id, or start and end, or let the DAG's schedule give its "
            "runs a data interval",
            start=start,
            end=end,
        )
    latest = coordinator.head().latest_completed()
    if latest is None:
        return None
    if not latest.read:
        raise InvalidConfigError(
            "the job reads no windows of time (reads_window=False, or a schedule without data intervals), so it never "
            "reads this one: wait for the run (run_id=…)",
            job=coordinator.job,
            start=start,
            end=end,
        )
    held, exact_from = latest.read.overlap(window), latest.read.exact_from
    if held is not Overlap.ALL and exact_from is not None and window.start < datetime.fromisoformat(exact_from):
        raise InvalidConfigError(
            "the job no longer knows whether it has read this window, so long ago it is: wait for the run (run_id=…)",
            job=coordinator.job,
            start=start,
            end=end,
        )
    # A stage that still owes a read has not read the window: the next checkpoint contains it (semantics B2, B3).
    whole = not latest.left_out and not latest.owing
    return latest.id if held is Overlap.ALL and whole else None
