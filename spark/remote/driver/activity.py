"""What a Spark Connect server has done, asked of its JVM and of `/proc`."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from ....checkpoint.servers.lifetime import Activity
from .python_daemons import PROC, below, end_daemons, read

if TYPE_CHECKING:
    from .jvm_sessions import JvmSessions


class ServerActivity:
    """Watches the server of this driver.

    Args:
        sessions: of the server.
        forget: called while no session is open, after one was: drops what sessions have left in what they all share.
            Takes the ids by which the server knew those that are closed.
        now_s: a clock that only moves forward, seconds.
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
        """Ask for what has been done so far; end and drop what closed sessions have left behind.

        Args:
            ends: whether the server takes no more stages, so that all it shares goes with it soon: none of that is
                dropped then.
        """
        opened, closed = self._list()
        if not opened and not ends and len(self._seen) > self._forgotten:
            known = len(self._seen)
            self._forget(closed)
            self._forgotten = known
            # That may have taken a while, and a session may have opened meanwhile.
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
        """Give the sessions that are open, and those that are closed."""
        self._looked_s = self._now_s()
        opened = {each.server_id for each in self._sessions.opened()}
        # A session that opened and closed between two looks is seen here.
        closed = frozenset(each.server_id for each in self._sessions.closed())
        if opened or not closed <= self._seen:
            self._last_s = self._looked_s
        self._seen |= opened | closed
        return opened, closed


def _resident_bytes(pid: int) -> int:
    words = read(PROC / str(pid) / "statm").split()
    return int(words[1]) * os.sysconf("SC_PAGE_SIZE") if len(words) > 1 else 0
