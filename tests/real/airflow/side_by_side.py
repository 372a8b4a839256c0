"""Tests on the shared Airflow that touch nothing but DAGs of their own, three at a time.

Most of what such a test takes is waiting: for Airflow to schedule a task, for a process to start. The first marked test
starts all of them in the order of the collection, and each then waits for its own end, so that a report says of each
test what it says of any. Its time there is how long the run waited for it. Tests without the mark come after them,
each alone: they end Airflow's processes, or look at what belongs to all.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from queue import SimpleQueue
from threading import Thread
from typing import Any

import pytest

MARK = "side_by_side"
AT_ONCE = 3
SLOTS = 2 * AT_ONCE
"""Of the executor: a test holds two drivers at most while it waits for something else to run."""
SHARED = frozenset(
    {"airflow", "gates", "shared", "storage", "s3_server", "lake", "flights", "shell", "kept", "scenario"}
)
"""What a marked test may ask for: all but the last live longer than it, and that one is made from them."""

_Part = tuple[Future[None], Callable[[], None]]

_UNDER_WAY = pytest.StashKey[dict[str, Future[None]]]()


def is_marked(item: pytest.Item) -> bool:
    """Tell whether a test runs beside others."""
    return item.get_closest_marker(MARK) is not None


def run(item: pytest.Function, fixture_of: Callable[[pytest.Function, str], Any]) -> None:
    """Wait until a marked test has ended, and raise what it raised.

    Args:
        item: the test.
        fixture_of: gives a fixture's value for a test; called in this thread.
    """
    stash = item.session.stash
    if _UNDER_WAY not in stash:
        stash[_UNDER_WAY] = _start([each for each in item.session.items if is_marked(each)], fixture_of)
    stash[_UNDER_WAY][item.nodeid].result()


def _start(items: list[pytest.Item], fixture_of: Callable[[pytest.Function, str], Any]) -> dict[str, Future[None]]:
    left = SimpleQueue[_Part]()
    for _ in range(AT_ONCE):
        # Daemons: a run that is ended by Ctrl-C stops its Airflow at once, and waits for no test.
        Thread(target=_work, args=(left,), name=MARK, daemon=True).start()
    under_way = {}
    for item in items:
        assert isinstance(item, pytest.Function)
        names = item._fixtureinfo.argnames
        assert SHARED.issuperset(names), f"{item.nodeid} asks for what is its own: {names}"
        test = partial(item.obj, **{name: fixture_of(item, name) for name in names})
        under_way[item.nodeid] = Future[None]()
        left.put((under_way[item.nodeid], test))
    return under_way


def _work(left: SimpleQueue[_Part]) -> None:
    while True:
        ended, test = left.get()
        try:
            test()
        except BaseException as error:  # noqa: BLE001 - the test's own thread raises it
            ended.set_exception(error)
        else:
            ended.set_result(None)
