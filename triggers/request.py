"""`RequestTrigger`: waits in the triggerer until a task should ask again about its request in the queue."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import TriggerEvent

from ..checkpoint import RequestKind
from ..checkpoint.documents.layout import run_id_of
from ..checkpoint.errors import InvalidConfigError
from ..checkpoint.reasons import Reason
from ..checkpoint.rules.admission import RunState, StillWaits, Turn, is_over
from ..tasks.dag_runs import is_queued, state_of_run
from .polling import PollingTrigger, asking

if TYPE_CHECKING:
    from ..checkpoint import Coordinator

log = logging.getLogger("airflow_cairn")


class RequestTrigger(PollingTrigger):
    """Looks at the head of the job and yields exactly one event (semantics T2, T3).

    Only the head says when a request would get another answer than before; each look costs one request. During the
    minimum pause the trigger looks when the pause ends, and every `recheck_interval`, in case the job was stopped. The
    head does not say that the DAG run of an earlier request has ended: the trigger asks Airflow for that every
    `recheck_interval`, through the triggerer's own channel, which needs no connection. So the task is woken once, when
    asking helps. The first look comes after `poll_interval`: the task has just looked, and clocks that differ must not
    send the request back and forth.

    If the store cannot be reached, the trigger logs it and asks again until the store answers; other errors end the
    wait.

    Args:
        storage: storage URI.
        job: the job's name.
        epoch: the epoch's name (`layout.epoch_name`).
        kind: the kind of request, a `RequestKind`.
        max_concurrent: `CheckpointConfig.max_concurrent_checkpoints`.
        min_pause_ms: `CheckpointConfig.min_pause`, milliseconds.
        aws_conn_id: Airflow connection of type `aws`; None: boto3's own chain.
        poll_interval: seconds between two looks at first; more than 0. The pause grows to a tenth of the time without
            news, at most `recheck_interval`.
        recheck_interval: seconds between two questions to Airflow about earlier DAG runs; more than 0.

    Raises:
        InvalidConfigError: an interval is not positive.
    """

    def __init__(
        self,
        storage: str,
        job: str,
        epoch: str,
        kind: str,
        max_concurrent: int,
        min_pause_ms: int,
        aws_conn_id: str | None = None,
        poll_interval: float = 2.0,
        recheck_interval: float = 15.0,
    ) -> None:
        super().__init__(storage, job, aws_conn_id, poll_interval)
        if recheck_interval <= 0:
            raise InvalidConfigError("recheck_interval must be above 0 seconds", recheck_interval=recheck_interval)
        self.turn = Turn(epoch, RequestKind(kind), max_concurrent, min_pause_ms)
        self.recheck_interval = self.longest_pause_s = recheck_interval

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the arguments with which another triggerer goes on."""
        return (
            "airflow_cairn.triggers.request.RequestTrigger",
            {
                **self.arguments(),
                "epoch": self.turn.epoch,
                "kind": str(self.turn.kind),
                "max_concurrent": self.turn.max_concurrent,
                "min_pause_ms": self.turn.min_pause_ms,
                "recheck_interval": self.recheck_interval,
            },
        )

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Wait; yields one event: `status`, `detail` and, for an error, its `kind`."""
        now = asyncio.get_running_loop().time
        recheck_at = now() + self.recheck_interval
        pause = self.poll_interval
        seen: tuple[Reason, int | None] | None = None
        while True:
            await self.wait(pause)
            pause = self.pause_s
            found = await self.look(self._waits_or_asks)
            if isinstance(found, TriggerEvent):
                yield found
                return
            if found is None:
                continue
            if seen != (found.reason, found.position):
                log.info("%s", describe(found))
            seen = (found.reason, found.position)
            if found.left_ms is not None:
                pause = min(found.left_ms / 1000, self.recheck_interval)
            elif now() >= recheck_at:
                ended = await self.look(self._ended_runs)
                if isinstance(ended, TriggerEvent):
                    yield ended
                    return
                recheck_at = now() + self.recheck_interval

    def _waits_or_asks(self, coordinator: Coordinator) -> StillWaits | TriggerEvent:
        return coordinator.still_waits(self.turn) or asking("the request would be answered otherwise now")

    def _ended_runs(self, coordinator: Coordinator) -> TriggerEvent | None:
        """Ask Airflow about the DAG runs that block the request; an event if one of them no longer does."""
        # Only the triggerer has this module; a DAG file that names this trigger must not load it.
        from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance as Airflow

        held_up = coordinator.held_up_by(self.turn)
        for owner in held_up.pending:
            if is_over(state_of_run(Airflow, owner), owner, held_up.asks):
                return asking(f"the DAG run {owner.run_id}, whose checkpoint is pending, has ended")
        for owner in held_up.before:
            if state_of_run(Airflow, owner) is not RunState.RUNNING:
                return asking(f"the DAG run {owner.run_id}, which is before this one in the queue, has ended")
        last, asks = held_up.last_run, held_up.asks
        if last is not None and asks is not None and is_queued(Airflow, asks.dag_id, run_id_of(last)):
            return asking(f"the job is being stopped, and its last run {run_id_of(last)} waits for a place of its DAG")
        return None


def describe(waits: StillWaits) -> str:
    """Return a text that says what is waited for."""
    if waits.left_ms is not None:
        return f"The pause lasts {waits.left_ms / 1000:g} s more ({waits.reason})"
    place = f"This run is at place {waits.position} of the queue" if waits.position else "The queue is full"
    return f"{place} ({waits.reason})"
