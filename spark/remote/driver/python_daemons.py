"""The Python daemons that Spark leaves behind of each closed session with Python functions (measured: 300 MB each).

They are children of the JVM that computes the functions: this driver's in local mode, the executors' on a cluster.
There this module is sent along with a task, by value (`executor_daemons`). So it imports Python's own modules alone.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Collection, Iterator
from pathlib import Path

PROC = Path("/proc")
_ARTIFACTS = b"SPARK_JOB_ARTIFACT_UUID="
"""How Spark tells a Python daemon whose session it is for, in its environment."""
_DAEMON = b"pyspark.daemon"


def below(pid: int) -> Iterator[int]:
    """Yield a process and all below it; nothing where there is no `/proc`.

    Args:
        pid: the process.
    """
    parents: dict[int, list[int]] = {}
    for entry in PROC.iterdir() if PROC.is_dir() else ():
        if entry.name.isdigit():
            parents.setdefault(parent_of(int(entry.name)), []).append(int(entry.name))
    waiting = [pid] if parents else []
    while waiting:
        yield (found := waiting.pop())
        waiting.extend(parents.get(found, ()))


def parent_of(pid: int) -> int:
    """Give the parent of a process; 0 where it has ended.

    Args:
        pid: the process.
    """
    # The name in brackets may hold anything; the parent is the second word behind it.
    words = read(PROC / str(pid) / "stat").rpartition(b")")[2].split()
    return int(words[1]) if len(words) > 1 else 0


def end_daemons(tree: Collection[int], closed: Collection[str]) -> list[int]:
    """End the daemons of closed sessions. A closed session never opens again, so none of them is of use any more.

    Args:
        tree: processes.
        closed: the ids by which the server knows these sessions.

    Returns:
        The daemons that were told to end; workers go with theirs.
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
    """End the daemons of closed sessions below the executor that runs this as a task.

    Args:
        closed: as in `end_daemons`.

    Yields:
        Which executor that is, and how many processes were told to end. Nothing where its Python has no daemon.
    """
    daemon = jvm = os.getppid()
    # A program that `PYSPARK_PYTHON` names may start Python below itself; its command line says the same as Python's.
    while is_daemon(jvm):
        jvm = parent_of(jvm)
    if jvm not in (daemon, 0):
        yield f"{os.uname().nodename} {jvm}", len(end_daemons(list(below(jvm)), closed))


def is_daemon(pid: int) -> bool:
    """Tell whether a process is a Python daemon of Spark's, or a worker of one.

    Args:
        pid: the process.
    """
    return _DAEMON in read(PROC / str(pid) / "cmdline")


def read(path: Path) -> bytes:
    """Read a file of `/proc`; empty where the process has ended, or is another user's.

    Args:
        path: the file.
    """
    try:
        return path.read_bytes()
    except OSError:
        return b""
