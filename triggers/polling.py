"""What triggers of ours have in common: they look at a job's store, in a thread, until there is something to say."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from airflow.triggers.base import BaseTrigger, TriggerEvent

from ..checkpoint import Coordinator
from ..checkpoint.errors import InvalidConfigError
from ..storage.errors import CairnError, ErrorKind, UnavailableError
from ..storage.uris import parse_storage_uri
from ..tasks.job_settings import JobSettings

ERROR = "error"

R = TypeVar("R")


class PollingTrigger(BaseTrigger):
    """A trigger that keeps nothing: after a triggerer's restart another one goes on from the store.

    Args:
        storage: storage URI.
        job: the job's name.
        epoch: the epoch's name (`layout.epoch_name`).
        aws_conn_id: Airflow connection of type `aws`; None for boto3's own chain.
        poll_interval: seconds between two looks; more than 0.

    Raises:
        InvalidConfigError: the interval is not positive.
    """

    def __init__(self, storage: str, job: str, epoch: str, aws_conn_id: str | None, poll_interval: float) -> None:
        super().__init__()
        if poll_interval <= 0:
            raise InvalidConfigError("poll_interval must be above 0 seconds", poll_interval=poll_interval)
        self.storage = storage
        self.job = job
        self.epoch = epoch
        self.aws_conn_id = aws_conn_id
        self.poll_interval = poll_interval
        self._coordinator: Coordinator | None = None

    def arguments(self) -> dict[str, Any]:
        """Give what every trigger of ours is built from, as it is sent to another triggerer."""
        return {
            "storage": self.storage,
            "job": self.job,
            "epoch": self.epoch,
            "aws_conn_id": self.aws_conn_id,
            "poll_interval": self.poll_interval,
        }

    async def look(self, at: Callable[[Coordinator], R]) -> R | TriggerEvent | None:
        """Look once.

        A store that cannot be reached is logged, to be asked again; other errors are the end of the wait.

        Args:
            at: what to ask; runs in a thread.

        Returns:
            What was found; an event with the error to end with; or None where the store cannot be reached.
        """
        try:
            return await asyncio.to_thread(self._look, at)
        except UnavailableError as error:
            self.log.warning("the storage cannot be reached, asking again in %g s: %s", self.poll_interval, error)
            return None
        except CairnError as error:
            return _error(str(error), error.kind)
        except Exception as error:
            self.log.exception("the triggerer could not read the checkpoint")
            return _error(f"{type(error).__name__}: {error}", ErrorKind.INVALID)

    def _look(self, at: Callable[[Coordinator], R]) -> R:
        # Not in the event loop: opening the store may fetch a connection, and each look waits for the store.
        settings = JobSettings(parse_storage_uri(self.storage), self.job, self.aws_conn_id)
        with settings.naming_connection():
            if self._coordinator is None:
                self._coordinator = settings.coordinator()
            return at(self._coordinator)


def why_failed(event: Mapping[str, Any], what: str) -> str | None:
    """Say for users to read why a wait has ended with an error; None where it has not.

    Args:
        event: what the trigger yielded.
        what: what was waited for.
    """
    if event.get("status") != ERROR:
        return None
    return (
        f"waiting for {what} failed: {event.get('detail')}. If only the triggerer cannot reach the storage or the "
        "connection, set deferrable=False"
    )


def _error(text: str, kind: ErrorKind) -> TriggerEvent:
    return TriggerEvent({"status": ERROR, "checkpoint": None, "reason": None, "detail": text, "kind": str(kind)})
