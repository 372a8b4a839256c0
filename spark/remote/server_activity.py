"""What a Spark Connect server has done, asked of the JVM that this driver runs on, and of `/proc`."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ...checkpoint.servers.lifetime import Activity

_PROC = Path("/proc")
_SERVICE = "SparkConnectService$"
_ARTIFACTS = b"SPARK_JOB_ARTIFACT_UUID="
"""How Spark tells a Python daemon whose session it is for, in its environment."""
_DAEMON = b"pyspark.daemon"


class ServerActivity:
    """Watches the server of this driver.

    Args:
        jvm: py4j's view of the driver's JVM.
        forget: called while no session is open, after one was: drops what sessions have left in what they all share.
        now_s: a clock that only moves forward, seconds.
    """

    def __init__(self, jvm: Any, forget: Callable[[], None], now_s: Callable[[], float] = time.monotonic) -> None:
        package = jvm.org.apache.spark.sql.connect.service
        self._service = getattr(getattr(package, _SERVICE), "MODULE$")
        self._forget = forget
        self._now_s = now_s
        self._began_s = self._last_s = now_s()
        self._seen: set[str] = set()
        self._forgotten = 0

    @property
    def port(self) -> int:
        """Where the server listens."""
        return int(self._service.localPort())

    def look(self) -> Activity:
        """Ask for what has been done so far; end and drop what closed sessions have left behind."""
        manager, now_s = self._service.sessionManager(), self._now_s()
        opened = {str(each.serverSessionId()) for each in _items(manager.listActiveSessions())}
        # A session that opened and closed between two looks is seen here.
        closed = {str(each.serverSessionId()) for each in _items(manager.listClosedSessions())}
        if opened or not closed <= self._seen:
            self._last_s = now_s
        self._seen |= opened | closed
        if not opened and len(self._seen) > self._forgotten:
            self._forget()
            self._forgotten = len(self._seen)
        tree = list(_below(os.getppid()))
        _end_daemons(tree, closed - opened)
        return Activity(
            open_sessions=len(opened),
            sessions=len(self._seen),
            quiet_ms=int((now_s - self._last_s) * 1000),
            age_ms=int((now_s - self._began_s) * 1000),
            memory_bytes=sum(map(_resident_bytes, tree)),
        )


def _items(of_scala: Any) -> Iterator[Any]:
    return (of_scala.apply(at) for at in range(of_scala.size()))


def _below(pid: int) -> Iterator[int]:
    """Yield a process and all below it; nothing where there is no `/proc`."""
    parents: dict[int, list[int]] = {}
    for entry in _PROC.iterdir() if _PROC.is_dir() else ():
        if entry.name.isdigit():
            # The name in brackets may hold anything; the parent is the second word behind it.
            words = _read(entry / "stat").rpartition(b")")[2].split()
            if len(words) > 1:
                parents.setdefault(int(words[1]), []).append(int(entry.name))
    waiting = [pid] if parents else []
    while waiting:
        yield (found := waiting.pop())
        waiting.extend(parents.get(found, ()))


def _end_daemons(tree: list[int], closed: set[str]) -> None:
    """End what Spark leaves behind of each closed session with a Python UDF (measured: 300 MB each)."""
    for pid in tree:
        if _DAEMON not in _read(_PROC / str(pid) / "cmdline"):
            continue
        words = _read(_PROC / str(pid) / "environ").split(b"\0")
        whose = next((word.removeprefix(_ARTIFACTS).decode() for word in words if word.startswith(_ARTIFACTS)), "")
        if whose in closed:
            try:
                os.kill(pid, signal.SIGTERM)
            except ProcessLookupError:
                continue  # it has just ended


def _resident_bytes(pid: int) -> int:
    words = _read(_PROC / str(pid) / "statm").split()
    return int(words[1]) * os.sysconf("SC_PAGE_SIZE") if len(words) > 1 else 0


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""  # the process has ended, or is another user's
