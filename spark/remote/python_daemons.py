"""Python daemons that Spark leaves behind for each closed session with Python functions (measured: 300 MB each).

The daemons are children of the JVM that computes the functions: this driver's in local mode, the executors' on a
cluster. Spark names the session in each daemon's environment. The driver ends those below itself at each look.

**On executors.** Nothing of Cairn runs there. So the driver sends each executor one task, by a small job. The task
finds its executor above its own daemon, and ends the daemons below that executor whose session is closed. It travels by
value: the functions that it uses import only Python's own modules.

**How often.** A job costs about a second, and the driver does not know which sessions have used Python. After a job
that ended nothing, the next one waits until twice as many sessions have closed, at most `MAX_PATIENCE`; after a job
that ended something, until one has.

**Who can race.** A session may open during the job: it is not among the closed ones, because a closed session never
opens again. So no daemon of an open session is ended. An executor may end: its daemons end with it. An executor may
start: it has no daemons of closed sessions.

On each executor the tasks themselves run in a Python daemon of the driver's own session, which no job ends.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from functools import partial
from pathlib import Path
from threading import Timer
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from pyspark import RDD, SparkContext

log = logging.getLogger("airflow_cairn")

PROC = Path("/proc")
_ARTIFACTS = b"SPARK_JOB_ARTIFACT_UUID="
"""The variable by which Spark names the session in a Python daemon's environment."""
_DAEMON = b"pyspark.daemon"

BOUND_S = 20.0
"""Seconds after which the job is cancelled, because other sessions keep executors busy: while it runs, the driver
renews no lease."""
MAX_PATIENCE = 16
"""Maximum number of closed sessions for which a job waits. Where Python is used rarely, as many daemons may stay."""
MAX_FAILURES = 3
"""Number of failed jobs after which none is tried: the executors may be unable to run the driver's Python."""
_GROUP = "cairn-ends-python-daemons"


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
    """End the daemons of closed sessions, which never open again; returns those signalled, their workers end too."""
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
    """Read a file of `/proc`; empty if the process has ended, or is another user's."""
    try:
        return path.read_bytes()
    except OSError:
        return b""


class ExecutorDaemons:
    """Ends daemons of closed sessions on executors."""

    def __init__(self, context: SparkContext) -> None:
        self._context = context
        self._failures = 0
        self._patience = 1
        """Number of closed sessions for which the next job waits."""
        self._ended: frozenset[str] = frozenset()
        """The sessions that were closed at the last job."""
        self._cancelled = False
        """Whether the last job was cancelled, because executors were busy."""

    def end(self, closed: Collection[str]) -> None:
        """End the daemons on the executors that answer in time, once enough sessions have closed since the last job.

        Does nothing in local mode, where the driver sees all processes itself.
        """
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        jsc: Any = self._context._jsc
        if jsc.sc().isLocal() or self._failures >= MAX_FAILURES:
            return
        closed = frozenset(closed)
        if len(closed - self._ended) < self._patience:
            return
        try:
            executors = dict(self._executors())
            answers = self._ask(executors, closed) if executors else []
        except (PySparkException, Py4JError) as error:
            if self._cancelled:
                log.info("Executors are busy: the Python processes that sessions have left there are ended later")
                return
            self._failures += 1
            log.warning("The Python processes that sessions have left on executors were not ended: %s", error)
            return
        ended, reached = sum(ended for _, ended in answers), len({jvm for jvm, _ in answers})
        self._wait_for_more(closed, ended, reached, len(executors))
        log.info("Ended %d Python processes of closed sessions on %d of %d executors", ended, reached, len(executors))

    def _wait_for_more(self, closed: frozenset[str], ended: int, reached: int, executors: int) -> None:
        # If no executor answers, Python has no daemons there. If only some answer, the busy others are asked soon.
        found_nothing = ended == 0 and reached in (0, executors)
        self._patience = min(2 * self._patience, MAX_PATIENCE) if found_nothing else 1
        self._ended = closed

    def _executors(self) -> Iterator[tuple[str, str]]:
        """Yield the current executors, each with its host."""
        jsc: Any = self._context._jsc
        listed = jsc.sc().statusStore().executorList(True)
        for at in range(listed.size()):
            found = listed.apply(at)
            if found.id() != "driver":
                yield str(found.id()), str(found.hostPort()).rpartition(":")[0]

    def _ask(self, executors: dict[str, str], closed: Collection[str]) -> list[tuple[str, int]]:
        from pyspark import cloudpickle as untyped

        cloudpickle: Any = untyped
        this_module = sys.modules[__name__]
        self._cancelled = False
        out_of_time = Timer(BOUND_S, self._cancel)
        out_of_time.daemon = True
        out_of_time.start()
        cloudpickle.register_pickle_by_value(this_module)
        self._context.setJobGroup(_GROUP, "Cairn ends what sessions have left", interruptOnCancel=True)
        try:
            task = partial(end_in_executor, frozenset(closed))
            return self._one_partition_each(executors).mapPartitions(task).collect()
        finally:
            out_of_time.cancel()
            cloudpickle.unregister_pickle_by_value(this_module)
            self._context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type] # None removes the group

    def _cancel(self) -> None:
        self._cancelled = True
        self._context.cancelJobGroup(_GROUP)

    def _one_partition_each(self, executors: dict[str, str]) -> RDD[str]:
        """Make one partition for each executor, which Spark computes there unless the executor is busy."""
        from pyspark import RDD
        from pyspark import serializers as untyped

        serializers: Any = untyped
        jvm: Any = self._context._jvm
        placed = [
            jvm.scala.Tuple2(executor, _sequence(jvm, [f"executor_{host}_{executor}"]))
            for executor, host in executors.items()
        ]
        jsc: Any = self._context._jsc
        made = jsc.sc().makeRDD(_sequence(jvm, placed), jsc.emptyRDD().classTag())
        return RDD(made.toJavaRDD(), self._context, serializers.UTF8Deserializer())


def _sequence(jvm: Any, items: list[Any]) -> Any:
    of_java = jvm.java.util.ArrayList()
    for each in items:
        of_java.add(each)
    return jvm.scala.jdk.javaapi.CollectionConverters.asScala(of_java).toSeq()
