"""Python daemons that Spark leaves behind for each closed session with Python functions (measured: 300 MB each).

The daemons are children of the JVM that computes the functions: this driver's in local mode, the executors' on a
cluster. There a task carries this module by value (`executor_daemons`). So it imports only Python's own modules.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Collection, Iterator
from pathlib import Path

PROC = Path("/proc")
_ARTIFACTS = b"SPARK_JOB_ARTIFACT_UUID="
"""The variable by which Spark names the session in a Python daemon's environment."""
_DAEMON = b"pyspark.daemon"


def below(pid: int) -> Iterator[int]:
    """Yield a process and all its descendants; nothing without a `/proc`."""
    parents: dict[int, list[int]] = {}
    for entry in PROC.iterdir() if PROC.is_dir() else ():
        if entry.name.isdigit():
            parents.setdefault(parent_of(int(entry.name)), []).append(int(entry.name))
    waiting = [pid] if parents else []
    while waiting:
        yield (found := waiting.pop())
        waiting.extend(parents.get(found, ()))


def parent_of(pid: int) -> int:
    """Return the parent of a process; 0 if the process has ended."""
    # The name in brackets may hold anything; the parent is the second word behind it.
    words = read(PROC / str(pid) / "stat").rpartition(b")")[2].split()
    return int(words[1]) if len(words) > 1 else 0


def end_daemons(tree: Collection[int], closed: Collection[str]) -> list[int]:
    """End the daemons of closed sessions, which are of no use: a closed session never opens again.

    Args:
        tree: ids of the processes to search.
        closed: the server's ids of the closed sessions.

    Returns:
        The daemons that got a signal; their workers end with them.
    """
    ended = []
    for pid in tree:
        if not is_daemon(pid):
            continue
        words = read(PROC / str(pid) / "environ").split(b"\0")
        whose = next((word.removeprefix(_ARTIFACTS).decode() for word in words if word.startswith(_ARTIFACTS)), "")
        if whose in closed:
            try:
                os.kill(pid, signal.SIGTERM)
            except ProcessLookupError:
                continue  # it has just ended
            ended.append(pid)
    return ended


def end_in_executor(closed: Collection[str], _partition: object) -> Iterator[tuple[str, int]]:
    """End the daemons of closed sessions below the executor that runs this function as a task.

    Args:
        closed: as in `end_daemons`.

    Yields:
        The executor's id, and the number of processes that got a signal. Nothing if its Python has no daemon.
    """
    daemon = jvm = os.getppid()
    # A program named by `PYSPARK_PYTHON` may start Python below itself, with the same words on its command line.
    while is_daemon(jvm):
        jvm = parent_of(jvm)
    if jvm not in (daemon, 0):
        yield f"{os.uname().nodename} {jvm}", len(end_daemons(list(below(jvm)), closed))


def is_daemon(pid: int) -> bool:
    """Tell whether a process is a Python daemon of Spark's, or a worker of one."""
    return _DAEMON in read(PROC / str(pid) / "cmdline")


def read(path: Path) -> bytes:
    """Read a file of `/proc`; empty if the process has ended, or is another user's.

    Args:
        path: the file.
    """
    try:
        return path.read_bytes()
    except OSError:
        return b""
