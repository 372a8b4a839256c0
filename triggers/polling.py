"""What triggers of ours have in common: they look at a job's store, in a thread, until there is something to say."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from airflow.triggers.base import BaseTrigger, TriggerEvent

from ..checkpoint.errors import InvalidConfigError
from ..storage.errors import CairnError, ErrorKind, UnavailableError
from ..storage.uris import parse_storage_uri
from ..tasks.job_settings import JobSettings
from .news import JobNews

if TYPE_CHECKING:
    from ..checkpoint import Coordinator

log = logging.getLogger("airflow_cairn")

ERROR = "error"

LONGEST_PAUSE_S = 30.0
"""The pause between two looks grows to this, unless the trigger's own interval is longer."""

R = TypeVar("R")


def pause_after(quiet_s: float, poll_interval: float, longest_s: float = LONGEST_PAUSE_S) -> float:
    """Give the seconds until the next look: a tenth of the time without news, so that a wait is longer by a tenth.

    Args:
        quiet_s: seconds since the last news, or since the wait began.
        poll_interval: seconds; never less.
        longest_s: seconds; never more, unless `poll_interval` is.
    """
    return max(poll_interval, min(quiet_s / 10, longest_s))


class PollingTrigger(BaseTrigger):
    """A trigger that keeps nothing: after a triggerer's restart another one goes on from the store.

    The pause between two looks grows while there is no news. It ends at once where another trigger of this process sees
    a new version of the job's head.

    Args:
        storage: storage URI.
        job: the job's name.
        aws_conn_id: Airflow connection of type `aws`; None for boto3's own chain.
        poll_interval: seconds between two looks at first; more than 0.

    Raises:
        InvalidConfigError: the interval is not positive.
    """

    def __init__(self, storage: str, job: str, aws_conn_id: str | None, poll_interval: float) -> None:
        super().__init__()
        if poll_interval <= 0:
            raise InvalidConfigError("poll_interval must be above 0 seconds", poll_interval=poll_interval)
        self.storage = storage
        self.job = job
        self.aws_conn_id = aws_conn_id
        self.poll_interval = poll_interval
        self.longest_pause_s = LONGEST_PAUSE_S
        self._coordinator: Coordinator | None = None
        self._news: JobNews | None = None
        self._news_at = 0.0

    def arguments(self) -> dict[str, Any]:
        """Give what every trigger of ours is built from, as it is sent to another triggerer."""
        return {
            "storage": self.storage,
            "job": self.job,
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
            found, revision = await asyncio.to_thread(self._look, at)
        except UnavailableError as error:
            log.warning("the storage cannot be reached, asking again in %.3g s: %s", self.pause_s, error)
            return None
        except CairnError as error:
            return _error(str(error), error.kind)
        except Exception as error:
            log.exception("the triggerer could not read the checkpoint")
            return _error(f"{type(error).__name__}: {error}", ErrorKind.INVALID)
        if self._listening().tell(revision):
            self._news_at = asyncio.get_running_loop().time()
        return found

    @property
    def without_news_s(self) -> float:
        """Seconds since the last news, or since the wait began."""
        self._listening()
        return asyncio.get_running_loop().time() - self._news_at

    @property
    def pause_s(self) -> float:
        """Seconds until the next look is worth it."""
        return pause_after(self.without_news_s, self.poll_interval, self.longest_pause_s)

    async def wait(self, seconds: float) -> None:
        """Wait so many seconds, or until another trigger of this process has news of the job."""
        await self._listening().wait(seconds)

    def _listening(self) -> JobNews:
        if self._news is None:  # not in the constructor, which runs in the task too
            self._news = JobNews(self.storage, self.job)
            self._news_at = asyncio.get_running_loop().time()
        return self._news

    def _look(self, at: Callable[[Coordinator], R]) -> tuple[R, int]:
        # Not in the event loop: opening the store may fetch a connection, and each look waits for the store.
        settings = JobSettings(parse_storage_uri(self.storage), self.job, self.aws_conn_id)
        with settings.naming_connection():
            if self._coordinator is None:
                self._coordinator = settings.coordinator()
            return at(self._coordinator), self._coordinator.revision


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
