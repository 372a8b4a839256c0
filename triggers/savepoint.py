"""`SavepointTrigger`: waits in the triggerer until the checkpoint of a requested savepoint has completed."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import TriggerEvent

from ..checkpoint.documents.entries import SavepointEntry
from .polling import PollingTrigger, asking

if TYPE_CHECKING:
    from ..checkpoint import Coordinator


class SavepointTrigger(PollingTrigger):
    """Looks at the head of the job and yields exactly one event (semantics P1, T4).

    The event only says that it is time: the task asks for the savepoint again, and then learns whether the savepoint
    has its checkpoint, has failed, or is no longer known. The wait also ends when no listener has to be notified first
    any more (P1, P2). If the store cannot be reached, the trigger logs it and asks again until the store answers; other
    errors end the wait.

    Args:
        storage: storage URI.
        job: the job's name.
        epoch: the name of the awaited epoch (`layout.epoch_name`).
        request: the savepoint's request id.
        aws_conn_id: Airflow connection of type `aws`; None: boto3's own chain.
        poll_interval: seconds between two looks at first; more than 0. The pause grows to a tenth of the time without
            news, at most 30 s.
        recheck_interval: seconds after which the task asks again anyway, because it sees facts that the head lacks;
            0: never.

    Raises:
        InvalidConfigError: the interval is not positive.
    """

    def __init__(
        self,
        storage: str,
        job: str,
        epoch: str,
        request: str,
        aws_conn_id: str | None = None,
        poll_interval: float = 5.0,
        recheck_interval: float = 0.0,
    ) -> None:
        super().__init__(storage, job, aws_conn_id, poll_interval)
        self.epoch = epoch
        self.request = request
        self.recheck_interval = recheck_interval

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the arguments with which another triggerer goes on."""
        return "airflow_cairn.triggers.savepoint.SavepointTrigger", {
            **self.arguments(),
            "epoch": self.epoch,
            "request": self.request,
            "recheck_interval": self.recheck_interval,
        }

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Wait; yields one event: `status`, `detail` and, for an error, its `kind`."""
        now = asyncio.get_running_loop().time
        recheck_at = now() + self.recheck_interval if self.recheck_interval > 0 else math.inf
        while True:
            found = await self.look(self._waits_or_asks)
            if isinstance(found, TriggerEvent):
                yield found
                return
            if now() >= recheck_at:
                yield asking("looking at the last run")
                return
            await self.wait(min(self.pause_s, recheck_at - now()))

    def _waits_or_asks(self, coordinator: Coordinator) -> SavepointEntry | TriggerEvent:
        entry = coordinator.look_for_savepoint(self.request)
        if entry is not None and (entry.waits or coordinator.held_by_listeners(entry)):
            return entry
        return asking("the savepoint no longer waits")
