"""The common part of Cairn's triggers: they look at a job's store, in a thread, until there is something to report."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakSet, WeakValueDictionary

from airflow.sdk import timezone
from airflow.triggers.base import BaseTrigger, TriggerEvent

from ..checkpoint.validation import check_seconds
from ..storage.errors import CairnError, ErrorKind, ForbiddenError, UnavailableError
from ..storage.names import parse_storage_uri
from ..storage.network.waiting import LONGEST_S
from ..storage.network.waiting import describe as describe_wait
from ..tasks.job_settings import JobSettings

if TYPE_CHECKING:
    from ..checkpoint import Coordinator


log = logging.getLogger("airflow_cairn")

ERROR = "error"

LONGEST_PAUSE_S = 30.0
"""Maximum pause between two looks, unless the trigger's own interval is longer."""

R = TypeVar("R")


def pause_after(quiet_s: float, poll_interval: float, longest_s: float = LONGEST_PAUSE_S) -> float:
    """Return the seconds until the next look: a tenth of the time without news, so that a wait grows by a tenth.

    Args:
        quiet_s: seconds since the last news, or since the wait began.
        poll_interval: minimum in seconds.
        longest_s: maximum in seconds, unless `poll_interval` is longer.
    """
    return max(poll_interval, min(quiet_s / 10, longest_s))


class PollingTrigger(BaseTrigger):
    """A trigger without state: after a triggerer's restart another one goes on from the store.

    The pause between two looks grows while there is no news. It ends at once if another trigger of this process sees a
    new version of the job's head.

    Args:
        storage: storage URI.
        job: the job's name.
        aws_conn_id: Airflow connection of type `aws`; None: boto3's own chain.
        poll_interval: seconds between two looks at first; more than 0.

    Raises:
        InvalidConfigError: the interval is not positive.
    """

    def __init__(self, storage: str, job: str, aws_conn_id: str | None, poll_interval: float) -> None:
        super().__init__()
        check_seconds("poll_interval", poll_interval)
        self.storage = storage
        self.job = job
        self.aws_conn_id = aws_conn_id
        self.poll_interval = poll_interval
        self.longest_pause_s = LONGEST_PAUSE_S
        self._coordinator: Coordinator | None = None
        self._news: JobNews | None = None
        self._news_at = 0.0
        self._refused_at: float | None = None

    def arguments(self) -> dict[str, Any]:
        """Return the arguments that all of Cairn's triggers share, as sent to another triggerer."""
        return {
            "storage": self.storage,
            "job": self.job,
            "aws_conn_id": self.aws_conn_id,
            "poll_interval": self.poll_interval,
        }

    async def look(self, at: Callable[[Coordinator], R]) -> R | TriggerEvent | None:
        """Look once.

        If the store cannot be reached, or for some minutes if it refuses the credentials, the error is logged and the
        look repeated later. Other errors end the wait.

        Args:
            at: the question to the coordinator; runs in a thread.

        Returns:
            The answer; an event with the error that ends the wait; or None if the look is to be repeated.
        """
        try:
            found, revision = await asyncio.to_thread(self._look, at)
        except ForbiddenError as error:
            return None if self._waits_out(error) else _error(str(error), error.kind)
        except UnavailableError as error:
            log.warning("The storage cannot be reached, asking again in %.3g s: %s", self.pause_s, error)
            return None
        except CairnError as error:
            return _error(str(error), error.kind)
        except Exception as error:
            log.exception("The triggerer could not read the checkpoint")
            return _error(f"{type(error).__name__}: {error}", ErrorKind.INVALID)
        self._refused_at = None
        if self._listening().tell(revision):
            self._news_at = asyncio.get_running_loop().time()
        return found

    def _waits_out(self, error: ForbiddenError) -> bool:
        """Return whether a refusal may pass (semantics W3): keys are rotated, a policy is changed, a clock is set."""
        # The next look opens the store anew, with the connection's credentials at that time.
        self._coordinator = None
        now = timezone.utcnow().timestamp()
        if self._refused_at is None:
            self._refused_at = now
            whose = f"the connection {self.aws_conn_id}" if self.aws_conn_id else "boto3's own chain"
            log.warning("%s", describe_wait(error, whose, now, now + LONGEST_S))
        return now < self._refused_at + LONGEST_S

    @property
    def without_news_s(self) -> float:
        """Seconds since the last news, or since the wait began."""
        self._listening()
        return asyncio.get_running_loop().time() - self._news_at

    @property
    def pause_s(self) -> float:
        """Seconds until the next useful look."""
        return pause_after(self.without_news_s, self.poll_interval, self.longest_pause_s)

    async def wait(self, seconds: float) -> None:
        """Wait for the given seconds, or until another trigger of this process has news of the job."""
        await self._listening().wait(seconds)

    def _listening(self) -> JobNews:
        if self._news is None:  # not in the constructor, which runs in the task too
            self._news = JobNews(self.storage, self.job)
            self._news_at = asyncio.get_running_loop().time()
        return self._news

    def _look(self, at: Callable[[Coordinator], R]) -> tuple[R, int]:
        # Runs outside the event loop: opening the store may fetch a connection, and each look waits for the store.
        settings = JobSettings(parse_storage_uri(self.storage), self.job, self.aws_conn_id)
        with settings.naming_connection():
            if self._coordinator is None:
                self._coordinator = settings.coordinator()
            return at(self._coordinator), self._coordinator.revision


def why_failed(event: Mapping[str, Any], what: str) -> str | None:
    """Return why a wait has ended with an error, for users to read; None if it has not.

    Args:
        event: the trigger's event.
        what: the object of the wait.
    """
    if event.get("status") != ERROR:
        return None
    return (
        f"waiting for {what} failed: {event.get('detail')}. If only the triggerer cannot reach the storage or the "
        "connection, set deferrable=False"
    )


def asking(why: str) -> TriggerEvent:
    """Return the event after which the task asks the store again."""
    return TriggerEvent({"status": "ask", "detail": why, "kind": None})


def _error(text: str, kind: ErrorKind) -> TriggerEvent:
    return TriggerEvent({"status": ERROR, "checkpoint": None, "reason": None, "detail": text, "kind": str(kind)})


# Lets the triggers of one process tell each other that a job has news, so that they look at once (semantics T2).


class _Job:
    """The triggers that wait for one job."""

    def __init__(self) -> None:
        self.waiting: WeakSet[JobNews] = WeakSet()


_jobs: WeakValueDictionary[tuple[str, str], _Job] = WeakValueDictionary()


class JobNews:
    """One trigger's subscription to news of its job. All of them live in the triggerer's event loop.

    Args:
        storage: storage URI.
        job: the job's name.
    """

    def __init__(self, storage: str, job: str) -> None:
        self._job = _jobs.setdefault((storage, job), _Job())
        self._job.waiting.add(self)
        self._woken = asyncio.Event()
        self._revision = 0

    def tell(self, revision: int) -> bool:
        """Wake the job's other triggers that have not seen this version of the head; True if it is news here.

        Args:
            revision: the newest version that this trigger has seen.
        """
        if revision <= self._revision:
            return False
        self._revision = revision
        for other in self._job.waiting:
            if other._revision < revision:
                other._woken.set()
        return True

    async def wait(self, seconds: float) -> None:
        """Wait until another trigger has news, at most the given seconds."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._woken.wait(), seconds)
        self._woken.clear()
