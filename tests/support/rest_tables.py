"""Iceberg tables in a REST catalog, and two of them that advance by one request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from airflow_cairn.checkpoint.extensions.committables import CheckpointNotice
from airflow_cairn.tables.declared import IcebergTable
from airflow_cairn.tables.sink import TableSink
from tests.support.lake import Iceberg, notice

BOTH = "/v1/transactions/commit"


class Server(Protocol):
    """A REST catalog."""

    @property
    def url(self) -> str: ...
    @property
    def catalog(self) -> Any:
        """A way to the same tables."""


S = TypeVar("S", bound=Server)


class InRest(Iceberg):
    """A table in the catalog, which has the namespace."""

    def __init__(self, folder: Path, server: Server, name: str = "orders", *, partitioned: bool = False) -> None:
        self.server, self.name, self.catalog = server, name, server.catalog
        super(Iceberg, self).__init__(folder, f"file://{folder}/lake", partitioned=partitioned)

    @property
    def table(self) -> Any:
        return self.catalog.load_table(("sales", self.name))

    def create(self) -> None:
        self.create_in(("sales", self.name), f"{self.url}/{self.name}")

    def drop(self) -> None:
        self.catalog.drop_table(("sales", self.name))

    @property
    def settings(self) -> dict[str, str]:
        return {"type": "rest", "uri": self.server.url}

    def new_sink(self, **options: Any) -> TableSink:
        table = IcebergTable(f"lake.sales.{self.name}", conn_id="rest", **options)
        return TableSink(self.name, table, lambda _: self.settings)


class Two(Generic[S]):
    """Two tables that a job writes."""

    def __init__(self, folder: Path, server: S) -> None:
        self.server = server
        self.places = [InRest(folder, server, name) for name in ("orders", "returns")]

    def sinks(self) -> list[TableSink]:
        made = [each.new_sink() for each in self.places]
        for each in made:
            each.beside = tuple(other for other in made if other is not each)
        return made

    def stage(self, checkpoint: int, *ids: int, retained: Sequence[int] = (), **way: Any) -> CheckpointNotice:
        staged = (each.stage(each.trigger(checkpoint), "good", *ids, **way) for each in self.places)
        waiting = frozenset(each.sink.name for each in self.places)
        return replace(notice(*staged, checkpoint=checkpoint, retained=retained), waiting=waiting)

    def tell(self, told: CheckpointNotice) -> None:
        """Do what `deliver` does, which goes on after a failure."""
        for sink in self.sinks():
            sink.notify_checkpoint_complete(told)
            told = replace(told, waiting=told.waiting - {sink.name})

    def rows(self) -> list[list[int]]:
        return [each.rows() for each in self.places]
