"""`CheckpointTrigger`: waits in the triggerer until an epoch's checkpoint has failed or is complete; completes it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, TypeGuard

from airflow.triggers.base import TriggerEvent

from ..checkpoint.answers import Failed, Progress, Ready, Waiting
from ..checkpoint.errors import CheckpointFailedError
from ..checkpoint.reasons import cause_first
from ..checkpoint.views.wording import some
from .polling import PollingTrigger

if TYPE_CHECKING:
    from ..checkpoint import Coordinator

log = logging.getLogger("airflow_cairn")

READY = "ready"
AGAIN = "again"
COMPLETED = "completed"
FAILED = "failed"


RECHECK_INTERVAL = timedelta(minutes=5)
"""Time after which the task itself looks, even without news in the store: only a task may ask Airflow for states."""

NAMED = 10
"""Stages that a line about a wait names."""

WHOLE_LOOK_S = 60.0
"""Interval of the looks that list acknowledgements too, in case the task that completes the checkpoint has died."""

_LATE_S = 1.0
"""Tolerated delay of such a look: two pauses of 30 s and the look between them take a little over a minute."""


class CheckpointTrigger(PollingTrigger):
    """Looks at the store, in a thread, and yields exactly one event.

    The trigger keeps no state: after a triggerer's restart another one goes on from the store. A look is one request
    that checks whether the head has changed, because the task of the last stage completes the checkpoint. If it has
    changed, and once a minute in case that task has died, the trigger lists the acknowledgements. It reads them once,
    when all are there and it completes the checkpoint. That needs only the store: the task notifies the DAG's
    listeners. If the store cannot be reached, the trigger logs it and asks again until the sensor's own timeout; other
    errors end the wait. A failure that the job tolerates is resumed and does not end the wait (semantics D5).

    Args:
        storage: storage URI.
        job: the job's name.
        epoch: the epoch's name (`layout.epoch_name`).
        aws_conn_id: Airflow connection of type `aws`; None: boto3's own chain.
        poll_interval: seconds between two looks at first; more than 0. The pause grows to a tenth of the time without
            news, at most 30 s. If the task of the last stage completes the checkpoint, the pause grows to half of the
            time without news, at most six intervals.
        asked: the checkpoint for which the task has already cleared the tasks that must run again; only a task may
            clear.
        rechecks: whether the task looks from time to time: only it sees that the DAG file no longer has a stage.
        completes: whether the trigger completes the checkpoint; with False the task does, after it has asked listeners.

    Raises:
        InvalidConfigError: the interval is not positive.
    """

    def __init__(
        self,
        storage: str,
        job: str,
        epoch: str,
        aws_conn_id: str | None = None,
        poll_interval: float = 5.0,
        asked: int | None = None,
        rechecks: bool = False,
        completes: bool = True,
    ) -> None:
        super().__init__(storage, job, aws_conn_id, poll_interval)
        self.epoch = epoch
        self.asked = asked
        self.rechecks = rechecks
        self.completes = completes
        self._whole_look_s = max(poll_interval, min(WHOLE_LOOK_S, 12 * poll_interval))
        self._is_spare = False
        """Whether a task completes the checkpoint, and this trigger only if that task has died."""

    @property
    def pause_s(self) -> float:
        """Seconds until the next useful look: many triggers wait, and usually a task completes their checkpoint."""
        at_least = min(self.without_news_s / 2, self._whole_look_s / 2) if self._is_spare else 0.0
        return max(super().pause_s, at_least)

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the arguments with which another triggerer goes on."""
        return "airflow_cairn.triggers.checkpoint.CheckpointTrigger", {
            **self.arguments(),
            "epoch": self.epoch,
            "asked": self.asked,
            "rechecks": self.rechecks,
            "completes": self.completes,
        }

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Wait; yields one event: `status`, `checkpoint`, `reason`, `detail` and, for an error, its `kind`."""
        seen: Progress | None = None
        now = asyncio.get_running_loop().time
        recheck_at = now() + RECHECK_INTERVAL.total_seconds()
        whole_at = now()
        while True:
            whole = now() + self.pause_s > whole_at  # the look after this one would come too late
            progress = await self.look(partial(self._go_on, before=None if whole else seen))
            if progress is None:
                whole_at = now()  # this look may have read only the head
            elif whole:
                whole_at = now() + self._whole_look_s + _LATE_S
            if isinstance(progress, TriggerEvent):
                yield progress
                return
            if progress is not None:
                self._is_spare = isinstance(progress, Waiting) and progress.quiet_until_ms > 0
                if not isinstance(progress, Waiting) and (not goes_on(progress) or is_paused(progress)):
                    yield TriggerEvent(event_of(progress))
                    return
                due = progress.checkpoint != self.asked or now() >= recheck_at
                waits = (self.rechecks or isinstance(progress, Failed)) and now() >= recheck_at
                waits = waits and not is_first_for_trigger(progress)
                if (asks_for_clear(progress) and due) or waits:
                    yield TriggerEvent({**event_of(progress), "status": AGAIN})
                    return
                if progress != seen:
                    log.info("%s", describe(progress))
                seen = progress
            await self.wait(self.pause_s)

    def _go_on(self, coordinator: Coordinator, before: Progress | None) -> Progress:
        if before is not None and coordinator.is_unchanged(before):
            return before
        progress = coordinator.go_on(self.epoch)
        if isinstance(progress, Ready) and self.completes:
            with suppress(CheckpointFailedError):  # the checkpoint has ended since; another attempt may be open
                coordinator.complete(progress.checkpoint)
            progress = coordinator.go_on(self.epoch)
        return progress


def goes_on(progress: Progress) -> TypeGuard[Waiting | Failed]:
    """Return whether to go on waiting: a stage is missing, or a failed attempt's successor has no place yet (D5)."""
    return isinstance(progress, Waiting) or (isinstance(progress, Failed) and progress.tolerated)


def asks_for_clear(progress: Progress) -> TypeGuard[Waiting | Failed]:
    """Return whether some tasks that must run again have not started: a task that may clear them must look (C2, F1).

    Tasks that failed by themselves have no claimant: Airflow retries them.
    """
    if isinstance(progress, Waiting):
        return any(each.claimant for each in progress.restarted)
    return is_first_for_trigger(progress)


def is_first_for_trigger(progress: Progress) -> TypeGuard[Failed]:
    """Return whether only the task that triggers can open the epoch's next attempt (T7, T8)."""
    return isinstance(progress, Failed) and progress.trigger_first


def is_paused(progress: Progress) -> TypeGuard[Failed]:
    """Return whether the wait is for the end of a DAG's pause; only a task may ask, and starts only after it (S1)."""
    return isinstance(progress, Failed) and progress.paused


def describe(progress: Waiting | Failed) -> str:
    """Return a text that says who or what is waited for."""
    if is_paused(progress):
        return (
            f"Checkpoint {progress.checkpoint} · attempt {progress.attempt} has ended, because the DAG was paused. The "
            "next attempt begins when it no longer is"
        )
    if is_first_for_trigger(progress):
        return (
            f"Checkpoint {progress.checkpoint} · attempt {progress.attempt} has ended, and another run has completed "
            "since: the task that triggers has to run again"
        )
    if isinstance(progress, Failed):
        return (
            f"Checkpoint {progress.checkpoint} · attempt {progress.attempt} ended, and the epoch goes on: "
            f"{cause_first(progress.detail, progress.reason)}. The next attempt waits for a free place"
        )
    done = len(progress.acknowledged)
    stages = ", ".join(each.stage for each in progress.restarted)
    again = f"; not begun again since a failover: {stages}. If one does not start, clear its task" if stages else ""
    hooks = f"; the master hooks {', '.join(progress.hooks)} have not answered" if progress.hooks else ""
    return (
        f"Checkpoint {progress.checkpoint} · attempt {progress.attempt}: {done} of {done + len(progress.missing)} "
        f"stages have acknowledged, waiting for {some(progress.missing, NAMED) or 'no stage'}{hooks}{again}"
    )


def event_of(progress: Progress) -> dict[str, Any]:
    """Return the end of a wait as JSON."""
    if isinstance(progress, Failed):
        return {
            "status": FAILED,
            "checkpoint": progress.checkpoint,
            "reason": str(progress.reason),
            "detail": progress.detail,
            "kind": None,
        }
    status = READY if isinstance(progress, Ready) else COMPLETED
    return {"status": status, "checkpoint": progress.checkpoint, "reason": None, "detail": "", "kind": None}
