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
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

from airflow_cairn.checkpoint.documents.staged_tables import Mode
from airflow_cairn.checkpoint.extensions.committables import CheckpointNotice
from airflow_cairn.tables.declared import IcebergTable
from airflow_cairn.tables.sink import TableSink
from tests.support.errors import raises_code
from tests.support.lake import Iceberg, notice, rows_of
from tests.support.rest_catalog import RestCatalogServer

SCHEMA = Schema(NestedField(1, "id", LongType()), NestedField(2, "route", StringType()))
BOTH = "/v1/transactions/commit"


class InRest(Iceberg):
    """A table in the REST catalog."""

    def __init__(self, folder: Path, server: RestCatalogServer, name: str) -> None:
        self.server, self.name, self.catalog = server, name, server.catalog
        super(Iceberg, self).__init__(folder, f"file://{folder}/lake")

    @property
    def table(self) -> Any:
        return self.catalog.load_table(("sales", self.name))

    def create(self) -> None:
        self.catalog.create_table(("sales", self.name), SCHEMA)

    def new_sink(self, **options: Any) -> TableSink:
        table = IcebergTable(f"lake.sales.{self.name}", conn_id="rest", **options)
        return TableSink(self.name, table, lambda _: {"type": "rest", "uri": self.server.url})


class Two:
    """Two tables that a job writes."""

    def __init__(self, folder: Path, server: RestCatalogServer) -> None:
        self.server = server
        self.places = [InRest(folder, server, name) for name in ("orders", "returns")]

    def sinks(self) -> list[TableSink]:
        made = [each.new_sink() for each in self.places]
        for each in made:
            each.beside = tuple(other for other in made if other is not each)
        return made

    def stage(self, checkpoint: int, *ids: int, **way: Any) -> CheckpointNotice:
        staged = (each.stage(each.trigger(checkpoint), "good", *ids, **way) for each in self.places)
        waiting = frozenset(each.sink.name for each in self.places)
        return replace(notice(*staged, checkpoint=checkpoint), waiting=waiting)

    def tell(self, told: CheckpointNotice) -> None:
        """Do what `deliver` does, which goes on after a failure."""
        for sink in self.sinks():
            sink.notify_checkpoint_complete(told)
            told = replace(told, waiting=told.waiting - {sink.name})

    def rows(self) -> list[list[int]]:
        return [each.rows() for each in self.places]


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Two]:
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


@pytest.mark.parametrize("mode", [Mode.APPEND, Mode.UPSERT])
@pytest.mark.parametrize("what", ["nothing", "never", "lost", "two", "foreign", "expiry", "half"])
def test_both_advance_by_one_request(two: Two, monkeypatch: pytest.MonkeyPatch, mode: Mode, what: str) -> None:
    way: dict[str, Any] = {"mode": mode, "key": ("id",)} if mode is Mode.UPSERT else {"mode": mode}
    told = two.stage(3, 1, 2, **way)
    orders = two.places[0]
    expected = [[1, 2], [1, 2]]
    commit = SqlCatalog.commit_table
    calls: list[int] = []

    def half(catalog: Any, *given: Any) -> Any:
        calls.append(1)
        if len(calls) == 2:
            raise ConnectionError
        return commit(catalog, *given)

    acts = {
        "two": lambda: two.tell(told),
        "foreign": lambda: orders.foreign(9),
        "expiry": orders.tidy,
    }
    two.server.before = first(acts.get(what, str))
    if what == "never":
        two.server.before = lambda path: losing() if path == BOTH else None
    if what == "lost":
        two.server.after = first(losing)
    if what == "half":
        monkeypatch.setattr(SqlCatalog, "commit_table", half)
    if what == "foreign":
        expected[0].append(9)
    for _ in range(2):
        two.tell(told)
        assert two.rows() == expected
    together = {"two": 2, "foreign": 2, "never": 0}.get(what, 1)
    assert two.server.posted.count(BOTH) == together
    alone = len(two.server.posted) - together
    assert alone == {"half": 1, "never": 2}.get(what, 0), two.server.posted
    for each in two.places:
        of = [snapshot.summary for snapshot in each.table.metadata.snapshots]
        assert "3" in [about["cairn.checkpoint"] for about in of], "readers see which checkpoint it is"
        assert {path for path in each.staged() if f"/{each.name}/" in path} <= each.named()


def test_one_after_another_where_they_cannot_go_together(two: Two) -> None:
    """No transactions; an earlier notice of the other waits; its rows do not fit: then each tells by its own notice."""
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


def test_a_table_that_others_write_all_the_time_holds_no_other_up(two: Two) -> None:
    told = two.stage(3, 1)

    def busy(path: str) -> None:
        if path == BOTH:
            two.places[1].table.append(rows_of([9]))

    two.server.before = busy
    two.tell(told)
    assert two.rows() == [[1], [1, 9, 9, 9]]
    assert two.server.posted.count(BOTH) == 3
