"""Tables of one REST catalog advance by one request, each row once (semantics C4; decision 0056).

The catalog is a stand-in that answers the routes from a catalog of pyiceberg.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from airflow_cairn.checkpoint.documents.staged_tables import Mode
from tests.support.errors import raises_code
from tests.support.lake import rows_of
from tests.support.rest_catalog import RestCatalogServer
from tests.support.rest_tables import BOTH, Two


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Two[RestCatalogServer]]:
    catalog = SqlCatalog("lake", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/lake")
    catalog.create_namespace("sales")
    with RestCatalogServer(catalog) as server:
        yield Two(tmp_path, server)


def first(act: Callable[[], Any]) -> Callable[[str], None]:
    """Have something happen at the first request for both tables."""
    calls: list[str] = []

    def call(path: str) -> None:
        if path == BOTH and not calls:
            calls.append(path)
            act()

    return call


def losing() -> None:
    raise ConnectionError


HALVES = {"first half": 2, "second half": 1}
"""Number of the table that is left out, for requests that are made by half."""


@pytest.mark.parametrize("mode", [Mode.APPEND, Mode.UPSERT])
@pytest.mark.parametrize("what", ["nothing", "never", "lost", "two", "foreign", "expiry", *HALVES])
def test_both_advance_by_one_request(
    two: Two[RestCatalogServer], monkeypatch: pytest.MonkeyPatch, mode: Mode, what: str
) -> None:
    way: dict[str, Any] = {"mode": mode, "key": ("id",)} if mode is Mode.UPSERT else {"mode": mode}
    orders = two.places[0]
    expected = [[1, 2], [1, 2]]
    if what == "expiry":
        orders.foreign(7)
        orders.foreign(8)
        expected[0] += [7, 8]
    told = two.stage(3, 1, 2, **way)
    commit = SqlCatalog.commit_table
    calls: list[int] = []

    def half(catalog: Any, *given: Any) -> Any:
        calls.append(1)
        made = None if len(calls) == HALVES[what] else commit(catalog, *given)
        if len(calls) == 2:
            raise ConnectionError
        return made

    left: list[int] = []

    def expire() -> None:
        orders.tidy()
        left.append(len(orders.table.metadata.snapshots))

    acts: dict[str, Callable[[], Any]] = {
        "two": lambda: two.tell(told),
        "foreign": lambda: orders.foreign(9),
        "expiry": expire,
    }
    two.server.before = first(acts.get(what, str))
    if what == "never":
        two.server.before = lambda path: losing() if path == BOTH else None
    if what == "lost":
        two.server.after = first(losing)
    if what in HALVES:
        monkeypatch.setattr(SqlCatalog, "commit_table", half)
    if what == "foreign":
        expected[0].append(9)
    for _ in range(2):
        two.tell(told)
        assert two.rows() == expected
    assert left == ([1] if what == "expiry" else []), "of two"
    together = {"two": 2, "foreign": 2, "never": 0}.get(what, 1)
    assert two.server.posted.count(BOTH) == together
    alone = len(two.server.posted) - together
    assert alone == {"never": 2, **dict.fromkeys(HALVES, 1)}.get(what, 0), two.server.posted
    for each in two.places:
        of = [snapshot.summary for snapshot in each.table.metadata.snapshots]
        assert "3" in [about["cairn.checkpoint"] for about in of], "readers see which checkpoint it is"
        assert {path for path in each.staged() if f"/{each.name}/" in path} <= each.named()


def test_one_after_another_where_they_cannot_go_together(two: Two[RestCatalogServer]) -> None:
    """Each table is told alone: without transactions, behind an earlier notice, or where its rows do not fit."""
    two.server.endpoints = two.server.endpoints[:-1]
    two.tell(two.stage(3, 1))
    assert (two.rows(), two.server.posted.count(BOTH), len(two.server.posted)) == ([[1], [1]], 0, 2)
    with RestCatalogServer(two.server.catalog) as server:
        for each in two.places:
            each.server = server
        told = two.stage(4, 2)
        orders, returns = two.sinks()
        orders.notify_checkpoint_complete(replace(told, waiting=frozenset({"table.orders"})))
        assert two.rows() == [[1, 2], [1]], "what was given up, or has to wait, is not taken along"
        returns.notify_checkpoint_complete(told)
        told = two.stage(5, 3)
        with two.places[1].table.update_schema() as update:
            update.rename_column("route", "way")
        with raises_code("table_changed", match="column route is gone"):
            two.tell(told)
        assert (two.rows(), server.posted.count(BOTH)) == ([[1, 2, 3], [1, 2]], 0)
        with two.places[1].table.update_schema() as update:
            update.rename_column("way", "route")
        two.tell(told)
        assert two.rows() == [[1, 2, 3], [1, 2, 3]]


def test_a_table_that_others_write_all_the_time_holds_no_other_up(two: Two[RestCatalogServer]) -> None:
    told = two.stage(3, 1)

    def busy(path: str) -> None:
        if path == BOTH:
            two.places[1].table.append(rows_of([9]))

    two.server.before = busy
    two.tell(told)
    assert two.rows() == [[1], [1, 9, 9, 9]]
    assert two.server.posted.count(BOTH) == 3
