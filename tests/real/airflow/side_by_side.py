"""Tests on the shared Airflow that touch nothing but DAGs of their own, four at a time.

Most of what such a test takes is waiting: for Airflow to schedule a task, for a process to start. The first marked test
starts all of them, the longest first, and each then waits for its own end, so that a report says of each
test what it says of any; how long it took itself is a property in the report. Tests without the mark come after them,
each alone: they end Airflow's processes, or look at what belongs to all.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from queue import SimpleQueue
from threading import Thread
from typing import Any

import pytest

MARK = "side_by_side"
SECONDS = "seconds"
"""The property with the seconds that a test took itself."""
AT_ONCE = 4
SLOTS = 2 * AT_ONCE
"""Slots of the executor: a test holds two drivers at most while it waits for something else to run."""
SHARED = frozenset(
    {"airflow", "gates", "shared", "storage", "s3_server", "gcs_server", "azure_server", "warm_spark"}
    | {"lake", "flights", "shell", "kept", "scenario"}
)
"""Fixtures that a marked test may have beside its parameters: all but the last live longer than the test, and the last
is made from them.
"""

_Part = tuple[Future[float], Callable[[], None]]

_UNDER_WAY = pytest.StashKey[dict[str, Future[float]]]()


def is_marked(item: pytest.Item) -> bool:
    """Tell whether a test runs beside others."""
    return item.get_closest_marker(MARK) is not None


def about_s(item: pytest.Item) -> int:
    """Give about how many seconds a test takes, as its mark says where that is more than a minute."""
    mark = item.get_closest_marker(MARK)
    return mark.args[0] if mark is not None and mark.args else 0


def run(item: pytest.Function, fixture_of: Callable[[pytest.Function, str], Any]) -> None:
    """Wait until a marked test has ended, and raise what it raised.

    Args:
        item: the test.
        fixture_of: gives a fixture's value for a test; called in this thread.
    """
    stash = item.session.stash
    if _UNDER_WAY not in stash:
        stash[_UNDER_WAY] = _start([each for each in item.session.items if is_marked(each)], fixture_of)
    item.user_properties.append((SECONDS, f"{stash[_UNDER_WAY][item.nodeid].result():.1f}"))


def _start(items: list[pytest.Item], fixture_of: Callable[[pytest.Function, str], Any]) -> dict[str, Future[float]]:
    left = SimpleQueue[_Part]()
    for _ in range(AT_ONCE):
        # Daemons: a run that is ended by Ctrl-C stops its Airflow at once, and waits for no test.
        Thread(target=_work, args=(left,), name=MARK, daemon=True).start()
    under_way = {}
    for item in items:
        assert isinstance(item, pytest.Function)
        given = item.callspec.params if hasattr(item, "callspec") else {}
        names = [name for name in item._fixtureinfo.argnames if name in SHARED or name not in given]
        assert SHARED.issuperset(names), f"{item.nodeid} asks for what is its own: {names}"
        told = {name: given[name] for name in set(item._fixtureinfo.argnames).difference(names)}
        test = partial(item.obj, **told, **{name: fixture_of(item, name) for name in names})
        under_way[item.nodeid] = Future[float]()
        left.put((under_way[item.nodeid], test))
    return under_way


def _work(left: SimpleQueue[_Part]) -> None:
    while True:
        ended, test = left.get()
        began = time.monotonic()
        try:
            test()
        except BaseException as error:  # noqa: BLE001 - the test's own thread raises it
            ended.set_exception(error)
        else:
            ended.set_result(time.monotonic() - began)
