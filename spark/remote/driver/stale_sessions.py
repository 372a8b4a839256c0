"""The sessions of executions that can never count any more, which a server closes by itself (semantics V2).

A stage's next try releases the sessions of the tries before it, on the server that it uses. That may be another one:
each machine has its own. So the server's driver looks too, and what was begun there runs on for no longer than a look.

**Which sessions it closes.** Only those of which the head says that their execution is over, and never one of which it
knows nothing. A session's id follows from its execution's token, and that from its attempt's token and the stage's
name. The head has the tokens, and the attempts' documents the names. So a session is known to be of an execution; or
it is not Cairn's, or of an attempt that this driver has not heard of, and is left alone. Whether an execution is over
is asked of the newest head (`Coordinator.over`): it no longer counts, and no attempt that follows can take it over. So
while the epoch's attempt has only ended, and its next one is not there, what that could take over is left alone. One
with which its epoch has completed is left alone too: its client may still be at work behind its epoch's block.

**Who can race.** An execution that was claimed a moment ago: its attempt is in the head before its client begins, and
what a head does not name is left alone. An attempt that takes over an execution which runs on or has acknowledged: what
it could take over was not over before it, and only a person who lets an epoch go on whose failure no retry could
cure can have something taken over whose session is closed. A next try that releases the session at the same moment:
closing one that is closed does nothing. The execution's own client: it fails, as where the next try releases its
session. A crash of the driver ends the server, and all sessions with it.
"""

from __future__ import annotations

import logging
from itertools import islice
from typing import TYPE_CHECKING, Protocol

from py4j.protocol import Py4JError

from ....checkpoint.documents.layout import run_id_of
from ....checkpoint.executions.begun_executions import BegunExecution, begun_in
from ....checkpoint.executions.replaced_executions import MAX_REPLACED
from ....storage.errors import CairnError
from ..sessions import session_id

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from ....checkpoint.coordinator import Coordinator
    from ....checkpoint.documents.entries import EndedEntry, PendingEntry
    from ....checkpoint.documents.head import Head
    from .jvm_sessions import ServerSession

log = logging.getLogger("airflow_cairn")


class Sessions(Protocol):
    """The sessions of a server, as `JvmSessions` has them."""

    def opened(self) -> Iterable[ServerSession]:
        """Give the sessions that are open."""

    def close(self, session: ServerSession) -> None:
        """Close one of them."""


class StaleSessions:
    """Closes them, look by look.

    Args:
        coordinator: of the server's job.
        sessions: of the server.
    """

    def __init__(self, coordinator: Coordinator, sessions: Sessions) -> None:
        self._coordinator = coordinator
        self._sessions = sessions
        self._stages: set[str] = set()
        """Names of stages, from the attempts' documents."""
        self._read: set[str] = set()
        """Tokens of the attempts whose documents were looked at."""
        self._whose: dict[str, BegunExecution] = {}
        """The executions of open sessions, by the sessions' ids."""
        self._settled: set[str] = set()
        """Ids of open sessions with whose executions their epochs have completed."""

    def close(self, head: Head) -> None:
        """Look once. A failure is logged, and the next look tries again.

        Args:
            head: of the job, as it was a moment ago.
        """
        opened = {each.id: each for each in self._sessions.opened()}
        self._whose = {session: it for session, it in self._whose.items() if session in opened}
        self._settled &= opened.keys()
        try:
            self._identify(head, opened.keys() - self._whose.keys())
            asked = {it.token: session for session, it in self._whose.items() if session not in self._settled}
            over = self._coordinator.over([self._whose[session] for session in asked.values()], head)
        except CairnError as error:
            log.warning("which sessions are to be closed is not known: %s", error)
            return
        for token, why in over.items():
            session = asked[token]
            if why is None:
                self._settled.add(session)
            else:
                self._close(opened[session], self._whose[session], why)

    def _close(self, session: ServerSession, it: BegunExecution, why: str) -> None:
        run, stage = run_id_of(it.epoch), it.stage
        log.warning("the session of stage %s, attempt %d of %s, is closed: %s", stage, it.attempt, run, why)
        try:
            self._sessions.close(session)
        except Py4JError as error:
            log.warning("Spark could not end what ran in the session of stage %s: %s", stage, error)

    def _identify(self, head: Head, unknown: set[str]) -> None:
        """Find out whose sessions are; those of others stay unknown, which costs no request after the first look."""
        if not unknown:
            return
        unknown -= self._find(head, unknown, self._stages)
        named = self._new_stages(head) if unknown else set()
        self._stages.update(named)
        self._find(head, unknown, named)

    def _find(self, head: Head, unknown: Collection[str], stages: Collection[str]) -> set[str]:
        attempts: tuple[PendingEntry | EndedEntry, ...] = (*head.pending, *head.history)
        begun = (begun_in(entry, stage) for entry in attempts for stage in stages)
        found = {session: it for it in begun if (session := session_id(it.token)) in unknown}
        self._whose.update(found)
        return {*found}

    def _new_stages(self, head: Head) -> set[str]:
        """Read which stages there are where that was not done yet: of pending attempts, and the last that ended."""
        found: set[str] = set()
        for entry in _newest(head):
            if entry.token not in self._read:
                document = self._coordinator.pending_document(entry)
                found.update(document.executions if document is not None else ())
        self._read = {entry.token for entry in _newest(head)}
        return found - self._stages


def _newest(head: Head) -> Iterator[PendingEntry | EndedEntry]:
    yield from head.pending
    yield from islice(reversed(head.history), MAX_REPLACED)
