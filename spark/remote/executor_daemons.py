"""Ends the Python daemons that closed sessions leave on the executors of a cluster, by a small job.

Nothing of Cairn runs on executors. So the driver sends each executor one task, with the same code as in local mode
(`python_daemons`). The task finds its executor above its own daemon, and ends the daemons below that executor whose
session is closed. Spark names the session in each daemon's environment.

**How often.** The driver does not know whether a session has used Python, and a job costs a second or so. After a job
that found nothing to end, the next one waits for twice as many closed sessions, at most `MAX_PATIENCE`; after a job
that found something, it waits for one.

**Who can race.** A session that opens during the job: it was not closed when the driver looked, and a closed session
never opens again. So no daemon of an open session is ended. An executor that ends: its daemons end with it. An executor
that starts: it has no daemons of closed sessions.

The tasks run in the driver's own Python daemon, one on each executor, which stays.
"""

from __future__ import annotations

import logging
from functools import partial
from threading import Timer
from typing import TYPE_CHECKING, Any

from . import python_daemons

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from pyspark import RDD, SparkContext

log = logging.getLogger("airflow_cairn")

BOUND_S = 20.0
"""Seconds for the whole job, in which the driver renews no lease. Then it is cancelled: other sessions keep executors
busy."""
MAX_PATIENCE = 16
"""Most closed sessions for which a job waits. An executor may keep as many daemons where Python is used rarely."""
MAX_FAILURES = 3
"""After this many failed jobs no other is tried: for instance, the executors cannot run the driver's Python."""
_GROUP = "cairn-ends-python-daemons"


class ExecutorDaemons:
    """Ends daemons of closed sessions on executors.

    Args:
        context: the context of the server's driver.
    """

    def __init__(self, context: SparkContext) -> None:
        self._context = context
        self._failures = 0
        self._patience = 1
        """Number of closed sessions for which the next job waits."""
        self._ended: frozenset[str] = frozenset()
        """The sessions that were closed at the last job."""
        self._busy = False
        """True if the last job was cancelled."""

    def end(self, closed: Collection[str]) -> None:
        """Ask each executor, best effort, once enough sessions have closed since the last job.

        Nothing in local mode, where the driver sees all processes itself.

        Args:
            closed: the server's ids of the closed sessions.
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
            if self._busy:
                log.info("Executors are busy: the Python processes that sessions have left there are ended later")
                return
            self._failures += 1
            log.warning("The Python processes that sessions have left on executors were not ended: %s", error)
            return
        ended, reached = sum(ended for _, ended in answers), len({jvm for jvm, _ in answers})
        self._note(closed, ended, reached, len(executors))
        log.info("Ended %d Python processes of closed sessions on %d of %d executors", ended, reached, len(executors))

    def _note(self, closed: frozenset[str], ended: int, reached: int, executors: int) -> None:
        # Where Python has no daemons, no executor answers. A busy executor has not been asked, and soon will be.
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

        self._busy = False
        out_of_time = Timer(BOUND_S, self._cancel)
        out_of_time.daemon = True
        out_of_time.start()
        cloudpickle.register_pickle_by_value(python_daemons)
        self._context.setJobGroup(_GROUP, "Cairn ends what sessions have left", interruptOnCancel=True)
        try:
            task = partial(python_daemons.end_in_executor, frozenset(closed))
            return self._one_each(executors).mapPartitions(task).collect()
        finally:
            out_of_time.cancel()
            cloudpickle.unregister_pickle_by_value(python_daemons)
            self._context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type] # None removes the group

    def _cancel(self) -> None:
        self._busy = True
        self._context.cancelJobGroup(_GROUP)

    def _one_each(self, executors: dict[str, str]) -> RDD[str]:
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
