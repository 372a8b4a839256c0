"""Four lanes for `make test`, `pytest -n 4 --dist loadscope`: all begin at once, on two cores.

What needs an Airflow runs one test after the other on a worker of its own, because never two schedulers are up at once;
that worker ends with it. What runs Spark in its own process has one worker too: a JVM of each worker would start and
compile the same classes again, 40 seconds of a processor. The other workers take module by module: they begin by turns
with what has other real parts and with what has none, and each goes on with the rest, as does the one with Spark. They
are more than the cores, because a test waits a quarter of its time for a process that starts or ends. Airflow waits
more than it works, so the other lanes give it the processor when it asks.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import PurePosixPath

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

from scripts.harness import priority

AIRFLOW, SPARK, OTHERS, QUICK = "with an Airflow", "in one JVM", "all others", "without real parts"
ALONE = (AIRFLOW, SPARK)
"""Each runs on one worker."""
E2E = PurePosixPath("tests/real/airflow")
IN_ONE_JVM = (PurePosixPath("tests/real/spark"), PurePosixPath("tests/docs/test_application_blocks.py"))
OWN_PROCESSES = frozenset(
    f"tests/real/spark/test_{name}.py"
    for name in (
        *("bad_application", "class_archive", "clouds", "cluster_doctor", "connect", "connect_s3", "executor_daemons"),
        *("launched", "local_recovery", "month", "s3a", "s3a_replaced", "session_on_clusters", "submit"),
    )
)
"""The modules there whose Spark runs in processes that the tests start."""
REAL = frozenset({"bench", "chaos", "docs", "real", "support_tests"})
"""The folders of tests/ of which some tests start a JVM."""
LONGEST = (
    *(f"tests/real/spark/{name}.py" for name in ("test_session", "test_lake_tables", "test_updates")),
    "tests/docs/test_application_blocks.py",
    "tests/chaos/protocol/test_protocol_chaos.py",
    *(f"tests/real/spark/{name}.py" for name in ("test_connect", "test_s3a")),
    *(f"tests/real/page/{name}.py" for name in ("test_api_server", "test_browser")),
    *(f"tests/protocol/{name}.py" for name in ("test_hostile_store", "simulation/test_simulation")),
    "tests/protocol/test_crash_points.py",
    *(f"tests/unit/operators/stage/{name}.py" for name in ("test_shared_server", "test_launched")),
    *("tests/unit/hooks/test_forked_client.py", "tests/protocol/advice/test_advice.py"),
)
"""The modules that take longest: if one of them began last, its worker would go on alone."""
NICENESS = 3
"""Half the weight: with a tenth (10), a busy loop of somebody else's on each core left the tests next to nothing."""
OF_SPARK = 1
"""That of the lane with one JVM, which takes longest, one test after the other."""


def of(nodeid: str) -> str:
    """Give the lane of a test."""
    return _of_module(nodeid.partition("::")[0])


@cache
def _of_module(path: str) -> str:
    file = PurePosixPath(path)
    if file.parent == E2E:
        return AIRFLOW
    if path not in OWN_PROCESSES and any(file.is_relative_to(each) for each in IN_ONE_JVM):
        return SPARK
    return OTHERS if not REAL.isdisjoint(file.parts[1:2]) else QUICK


def put_in_order(items: list[pytest.Item]) -> None:
    """Put what takes longest first: the lanes are given out in this order."""
    items.sort(key=lambda item: _turn(item.nodeid))


def _turn(nodeid: str) -> tuple[int, int]:
    module = nodeid.partition("::")[0]
    among = LONGEST.index(module) if module in LONGEST else len(LONGEST)
    return (AIRFLOW, SPARK, OTHERS, QUICK).index(of(nodeid)), among


def give_way(nodeid: str) -> None:
    """Let a test's process, and what it starts, use the processor where the lane with the Airflow does not, and less
    where that of Spark does."""
    wanted = {AIRFLOW: 0, SPARK: OF_SPARK}.get(of(nodeid), NICENESS)
    if os.getpriority(os.PRIO_PROCESS, 0) < wanted:
        os.setpriority(os.PRIO_PROCESS, 0, wanted)


class SessionGivesWay:
    """Until it is closed, the session of pytest gives way to those that tests start: to Airflow's processes.

    What a test with a niceness starts passes it on (scripts/harness/processes.py), so it gives way as well.
    """

    def __init__(self) -> None:
        self._before = priority.session_niceness(os.getpid())
        if self._before is not None:
            priority.set_session_niceness(os.getpid(), max(self._before, NICENESS))

    def close(self) -> None:
        """Have it as it was: the session may be that of a terminal."""
        if self._before is not None:
            priority.set_session_niceness(os.getpid(), self._before)


class Lanes(LoadScopeScheduling):  # type: ignore[misc]
    """Gives the lanes with the Airflow and with Spark to one worker each, and the other modules to who has time."""

    def __init__(self, config: pytest.Config, log: Producer) -> None:
        super().__init__(config, log)
        config.option.loadscopereorder = False
        self._lane_of: dict[WorkerController, str] = {}

    def _split_scope(self, nodeid: str) -> str:
        lane = of(nodeid)
        return lane if lane in ALONE else nodeid.partition("::")[0]

    def _assign_work_unit(self, node: WorkerController) -> None:
        """Give a worker the next module of the lane that it began with; then of what is left."""
        if not any(lane in self.workqueue for lane in ALONE):  # they stand first, and the first workers get them
            wanted = self._begins_with(node)
            scope = next((scope for scope in self.workqueue if of(scope) == wanted), None)
            if scope is not None:
                self.workqueue.move_to_end(scope, last=False)
        super()._assign_work_unit(node)

    def _begins_with(self, node: WorkerController) -> str:
        """Give each lane to every second worker, in the order in which the workers got their first one."""
        return self._lane_of.setdefault(node, (OTHERS, QUICK)[len(self._lane_of) % 2])

    def _reschedule(self, node: WorkerController) -> None:
        """Let the worker with the Airflow end after it: its session, and with it the Airflow, would last on.

        The only worker there is goes on.
        """
        if AIRFLOW in self.assigned_work[node] and len(self.nodes) > 1 and not node.shutting_down:
            node.shutdown()
        super()._reschedule(node)
