"""The sessions of a Spark Connect server, read from the JVM of this driver."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from dataclasses import field
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol

from py4j.protocol import Py4JError

from ...checkpoint.acts.carry_over import MAX_REPLACED
from ...checkpoint.documents.attempt import StageRef, execution_token
from ...checkpoint.documents.layout import run_id_of
from ...checkpoint.rules.server import Activity
from ...storage.errors import CairnError
from ...storage.records import dataclass
from .python_daemons import PROC, below, end_daemons, read
from .submission import session_id

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from ...checkpoint.coordinator import Coordinator
    from ...checkpoint.documents.entries import EndedEntry, PendingEntry
    from ...checkpoint.documents.head import Head


_SERVICE = "SparkConnectService$"


@dataclass(frozen=True, slots=True)
class ServerSession:
    """One session, open or closed."""

    id: str
    """The id that the client has chosen."""
    server_id: str
    """The server's id for the session, which its artifacts and its Python processes have too."""
    key: Any = field(repr=False, compare=False)
    """The JVM's key for the session: its user and `id`."""


class JvmSessions:
    """Spark's own manager of sessions. None of these calls counts as a use of a session."""

    def __init__(self, jvm: Any) -> None:
        package = jvm.org.apache.spark.sql.connect.service
        self._service = getattr(getattr(package, _SERVICE), "MODULE$")

    @property
    def port(self) -> int:
        return int(self._service.localPort())

    def opened(self) -> list[ServerSession]:
        return list(_sessions(self._service.sessionManager().listActiveSessions()))

    def closed(self) -> list[ServerSession]:
        """Return the closed sessions that Spark remembers: the last thousand."""
        return list(_sessions(self._service.sessionManager().listClosedSessions()))

    def close(self, session: ServerSession) -> None:
        """Close a session: Spark interrupts its work, and never opens it again. A closed session is not an error."""
        # As Spark does for a client that releases its session, without a way back.
        self._service.sessionManager().closeSession(session.key, False)


def _sessions(of_scala: Any) -> Iterator[ServerSession]:
    for at in range(of_scala.size()):
        found = of_scala.apply(at)
        yield ServerSession(str(found.sessionId()), str(found.serverSessionId()), found.key())


# The activity of a Spark Connect server, from its JVM and from `/proc`.


class ServerActivity:
    """Watches this driver's server.

    `forget` is called with the server's ids of closed sessions while no session is open, after one was: it drops what
    sessions have left in their shared data.
    """

    def __init__(
        self,
        sessions: JvmSessions,
        forget: Callable[[frozenset[str]], None],
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._sessions = sessions
        self._forget = forget
        self._now_s = now_s
        self._began_s = self._last_s = self._looked_s = now_s()
        self._seen: set[str] = set()
        self._forgotten = 0

    def look(self, *, ends: bool = False) -> Activity:
        """Read the activity so far; end and drop leftovers of closed sessions.

        If the server takes no more stages, all its shared data end with it soon: none are dropped then.
        """
        opened, closed = self._list()
        if not opened and not ends and len(self._seen) > self._forgotten:
            known = len(self._seen)
            self._forget(closed)
            self._forgotten = known
            # This may have taken a while, in which a session may have opened.
            opened, closed = self._list()
        now_s = self._looked_s
        tree = list(below(os.getppid()))
        end_daemons(tree, closed - opened)
        return Activity(
            open_sessions=len(opened),
            sessions=len(self._seen),
            quiet_ms=int((now_s - self._last_s) * 1000),
            age_ms=int((now_s - self._began_s) * 1000),
            memory_bytes=sum(map(_resident_bytes, tree)),
        )

    def _list(self) -> tuple[set[str], frozenset[str]]:
        """Return the open sessions and the closed ones."""
        self._looked_s = self._now_s()
        opened = {each.server_id for each in self._sessions.opened()}
        # This also shows a session that opened and closed between two looks.
        closed = frozenset(each.server_id for each in self._sessions.closed())
        if opened or not closed <= self._seen:
            self._last_s = self._looked_s
        self._seen |= opened | closed
        return opened, closed


def _resident_bytes(pid: int) -> int:
    words = read(PROC / str(pid) / "statm").split()
    return int(words[1]) * os.sysconf("SC_PAGE_SIZE") if len(words) > 1 else 0


# The sessions of executions that can never count again, which a server closes by itself (semantics V2).
#
# A stage's next try releases the sessions of earlier tries, but only on its own server, and each machine may have one.
# So the server's driver looks, too.
#
# **Which sessions it closes.** A session's id follows from its execution's token, and this from its attempt's token and
# the stage's name. The head has the tokens, and the attempts' documents have the names. A session whose execution is
# not found so is left alone. The newest head decides whether an execution is over (`Coordinator.over`): it no longer
# counts, and no later attempt can take it over. If its epoch has completed with it, it is left alone, too: the client
# may still be at work after its epoch's block.
#
# **Who can race.** An execution that was claimed a moment ago: the head has its attempt before its client begins. An
# attempt that takes an execution over: that execution was not over before, unless a person lets an epoch go on after a
# failure that no retry could cure. A next try that releases the session at the same moment: closing a closed session
# does nothing. The execution's own client: it fails, as when the next try releases its session. If the driver crashes,
# its server ends, and all sessions with it.


log = logging.getLogger("airflow_cairn")


class Sessions(Protocol):
    """The sessions of a server; `JvmSessions` implements this."""

    def opened(self) -> Iterable[ServerSession]:
        """Return the open sessions."""

    def close(self, session: ServerSession) -> None:
        """Close one session."""


class StaleSessions:
    """Closes stale sessions, look by look."""

    def __init__(self, coordinator: Coordinator, sessions: Sessions) -> None:
        self._coordinator = coordinator
        self._sessions = sessions
        self._stages: set[str] = set()
        """Names of stages, from the attempts' documents."""
        self._read: set[str] = set()
        """Tokens of the attempts whose documents have been read."""
        self._whose: dict[str, StageRef] = {}
        """The executions of open sessions, by the sessions' ids."""
        self._settled: set[str] = set()
        """Ids of open sessions of executions with which their epochs have completed."""

    def close(self, head: Head) -> None:
        """Look once. A failure is logged, and the next look tries again."""
        opened = {each.id: each for each in self._sessions.opened()}
        self._whose = {session: it for session, it in self._whose.items() if session in opened}
        self._settled &= opened.keys()
        try:
            self._identify(head, opened.keys() - self._whose.keys())
            asked = {it.token: session for session, it in self._whose.items() if session not in self._settled}
            over = self._coordinator.over([self._whose[session] for session in asked.values()], head)
        except CairnError as error:
            log.warning("Which sessions are to be closed is not known: %s", error)
            return
        for token, why in over.items():
            session = asked[token]
            if why is None:
                self._settled.add(session)
            else:
                self._close(opened[session], self._whose[session], why)

    def _close(self, session: ServerSession, it: StageRef, why: str) -> None:
        run, stage = run_id_of(it.epoch), it.stage
        log.warning("The session of stage %s, attempt %d of %s, is closed: %s", stage, it.attempt, run, why)
        try:
            self._sessions.close(session)
        except Py4JError as error:
            log.warning("Spark could not end what ran in the session of stage %s: %s", stage, error)

    def _identify(self, head: Head, unknown: set[str]) -> None:
        """Identify the executions of sessions; others stay unknown, at no request after the first look."""
        if not unknown:
            return
        unknown -= self._find(head, unknown, self._stages)
        named = self._new_stages(head) if unknown else set()
        self._stages.update(named)
        self._find(head, unknown, named)

    def _find(self, head: Head, unknown: Collection[str], stages: Collection[str]) -> set[str]:
        attempts: tuple[PendingEntry | EndedEntry, ...] = (*head.pending, *head.history)
        # Named by the head alone, so that no document is read that a cleaner may have deleted.
        begun = (
            StageRef(entry.id, entry.epoch, entry.attempt, execution_token(entry.token, stage), head.job, stage)
            for entry in attempts
            for stage in stages
        )
        found = {session: it for it in begun if (session := session_id(it.token)) in unknown}
        self._whose.update(found)
        return {*found}

    def _new_stages(self, head: Head) -> set[str]:
        """Read the stages of attempts not read before: of pending attempts, and of the last that ended."""
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
