"""An Iceberg table whose catalog is in a real PostgreSQL gets each row once (decision 0056)."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from airflow_cairn.tables.sink import TableSink
from scripts.harness.postgres_server import USER, PostgresServer
from tests.support.lake import Iceberg, notice

pytestmark = pytest.mark.s3


class InPostgres(Iceberg):
    """A table in a catalog in PostgreSQL."""

    def __init__(self, folder: Path, server: PostgresServer) -> None:
        where = psycopg.conninfo.conninfo_to_dict(server.dsn)
        uri = f"postgresql+psycopg://{USER}@/postgres?host={where['host']}&port={where['port']}"
        self.properties = {"uri": uri, "warehouse": f"file://{folder}/lake"}
        self.catalog = SqlCatalog("lake", **self.properties)
        self.catalog.create_namespace("sales")
        super(Iceberg, self).__init__(folder, f"file://{folder}/lake")


@pytest.fixture
def place(postgres: PostgresServer, tmp_path: Path) -> Iterator[InPostgres]:
    made = InPostgres(tmp_path, postgres)
    yield made
    made.drop()
    made.catalog.drop_namespace("sales")


@pytest.mark.parametrize("what", ["before", "after", "foreign", "expiry"])
def test_each_row_once(place: InPostgres, monkeypatch: pytest.MonkeyPatch, what: str) -> None:  # semantics C4, D4
    staging = place.trigger(3)
    place.stage(staging, "dead", 7)
    told = notice(place.stage(staging, "good", 1, 2), place.stage(staging, "also", 3, stage="late"))
    commit, calls = SqlCatalog.commit_table, list[int]()

    def others(catalog: Any, *given: Any) -> Any:
        calls.append(1)
        first = len(calls) == 1
        if first and what == "before":
            raise ConnectionError
        if first and what == "foreign":
            place.foreign(9)
        if first and what == "expiry":
            place.tidy()
        found = commit(catalog, *given)
        if first and what == "after":
            raise ConnectionError
        return found

    monkeypatch.setattr(SqlCatalog, "commit_table", others)
    if what == "before":
        with pytest.raises(ConnectionError):
            place.sink.notify_checkpoint_complete(told)
    expected = [1, 2, 3, *([9] if what == "foreign" else [])]
    for _ in range(2):
        with ThreadPoolExecutor(4) as pool:
            sinks = [place.new_sink() for _ in range(4)]
            list(pool.map(lambda sink: TableSink.notify_checkpoint_complete(sink, told), sinks))
        assert place.rows() == expected
    assert place.staged() == {each for each in place.named() if "_cairn" in each}
