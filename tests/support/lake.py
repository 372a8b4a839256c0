"""Real tables of pyiceberg and deltalake, and drivers that stage rows for them without Spark."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.fs import FileSelector, FileType, LocalFileSystem, S3FileSystem
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

from airflow_cairn.checkpoint.documents import staged_tables
from airflow_cairn.checkpoint.documents.staged_tables import Manifest, Mode, StagedFile, StagedRows, description_of
from airflow_cairn.checkpoint.extensions.committables import CheckpointNotice, Committable
from airflow_cairn.checkpoint.reasons import Status
from airflow_cairn.tables.declared import DeltaTable, IcebergTable
from airflow_cairn.tables.sink import TableSink
from scripts.harness.s3_server import S3Server

SCHEMA = pa.schema([("id", pa.int64()), ("route", pa.string())])


_NEW = {
    "type": "struct",
    "fields": [
        {"name": name, "type": kind, "nullable": True, "metadata": {}}
        for name, kind in (("id", "long"), ("route", "string"))
    ],
}
_ICEBERG = Schema(NestedField(1, "id", LongType()), NestedField(2, "route", StringType()))


STORAGE = "s3://lake/cairn"


def notice(*committables: Committable, checkpoint: int = 3, retained: Sequence[int] = ()) -> CheckpointNotice:
    """Give the notice of a completed checkpoint."""
    return CheckpointNotice(
        checkpoint, "e", 1, Status.COMPLETED, checkpoint, None, "", committables, (*retained,), storage=STORAGE
    )


_OF_PYARROW = {
    "access_key": "AWS_ACCESS_KEY_ID",
    "secret_key": "AWS_SECRET_ACCESS_KEY",
    "region": "AWS_REGION",
    "endpoint_override": "AWS_ENDPOINT_URL",
}
OF_ICEBERG = {
    "s3.access-key-id": "AWS_ACCESS_KEY_ID",
    "s3.secret-access-key": "AWS_SECRET_ACCESS_KEY",
    "s3.region": "AWS_REGION",
    "s3.endpoint": "AWS_ENDPOINT_URL",
}
_NO_S3: Mapping[str, str] = {}


def way_to(server: S3Server) -> dict[str, str]:
    """Give what a connection to a server means to the libraries."""
    return {**server.env, "AWS_ENDPOINT_URL": server.endpoint_url, "AWS_ALLOW_HTTP": "true"}


def route_of(number: int) -> dict[str, list[Any]]:
    """Give the columns of one row."""
    return {"id": [number], "route": ["ü/1 =%'\"" if number % 10 == 1 else f"r{number % 10}"]}


def rows_of(ids: Sequence[int]) -> pa.Table:
    """Give the rows of these ids."""
    return pa.table({"id": ids, "route": [route_of(each)["route"][0] for each in ids]}, SCHEMA)


class Place:
    """One table of a format, and its sink.

    Args:
        folder: on the local disk, for a catalog.
        url: where the table's files go.
        s3: the way to them on S3, by the names of an environment; empty for the local disk.
        partitioned: by the route, one of ten.
    """

    def __init__(self, folder: Path, url: str, s3: Mapping[str, str] = _NO_S3, *, partitioned: bool = False) -> None:
        self.folder, self.url, self.s3, self.partitioned = folder, url, dict(s3), partitioned
        self.owner, self.answers = "flights.0a", dict[int, Any]()
        self.long_manifests = False
        self.filesystem: Any = LocalFileSystem()
        if s3:
            self.filesystem = S3FileSystem(**{name: s3[key] for name, key in _OF_PYARROW.items()})
        self.create()
        self.sink = self.new_sink()

    def create(self) -> None:
        raise NotImplementedError

    def new_sink(self, **options: Any) -> TableSink:
        """Give a sink of the table, declared with these options."""
        raise NotImplementedError

    def rows(self) -> list[int]:
        raise NotImplementedError

    def drop(self) -> None:
        """Drop the table, with its files."""
        raise NotImplementedError

    def partition_columns(self) -> list[str]:
        raise NotImplementedError

    def foreign(self, *ids: int) -> None:
        """Append as somebody else does."""
        raise NotImplementedError

    def tidy(self) -> None:
        """Do what the table's owner does now and then: expire, vacuum."""
        raise NotImplementedError

    def named(self) -> set[str]:
        """Give the files that the table names."""
        raise NotImplementedError

    def shown(self) -> int | None:
        """Give the checkpoint that the table shows to readers."""
        raise NotImplementedError

    def staged(self) -> set[str]:
        """Give the files below the folder of staged files."""
        found = self.filesystem.get_file_info(FileSelector(self.path(self.url), recursive=True))
        return {each.path for each in found if each.type == FileType.File and "/_cairn/" in f"/{each.path}"}

    def path(self, url: str) -> str:
        return url.partition("://")[2]

    def row(self, number: int) -> dict[str, list[Any]]:
        """Give the columns of one row."""
        return route_of(number)

    def listed(self) -> list[tuple[str, dict[str, str | None]]]:
        """Give the files that this epoch's stages read, and what their rows get from the list."""
        found = self.filesystem.get_file_info(FileSelector(self.path(self.described.read), allow_not_found=True))
        rows = [row for each in found for row in pq.read_table(each.path, filesystem=self.filesystem).to_pylist()]
        return [(self.path(row["path"]), dict(row["given"])) for row in rows]

    def trigger(self, checkpoint: int) -> str:
        self.described = description_of(self.sink.trigger(checkpoint, 0), where="answer")
        return self.described.staging

    def stage(
        self,
        staging: str,
        token: str,
        *ids: int,
        stage: str = "routes",
        mode: Mode = Mode.APPEND,
        key: tuple[str, ...] = (),
        deletes: Sequence[int] = (),
    ) -> Committable:
        """Do what a driver does."""
        then = self.described
        folder = f"{staging}/{stage}-{token}-run"
        files = []
        for number in ids:
            columns, values = self.row(number), dict[str, str | None]()
            if mode is not Mode.UPSERT and not then.partitions_in_files:
                values = {"route": columns.pop("route")[0]}
            size = self._put(f"{folder}/data/part-{number}.parquet", columns)
            files.append(StagedFile(f"part-{number}.parquet", size, 1, values))
        gone = []
        for number in deletes:
            columns = {name: values for name, values in self.row(number).items() if name in key}
            gone.append(StagedFile(f"{number}.parquet", self._put(f"{folder}/deletes/{number}.parquet", columns), 1))
        columns_then = then.columns if then.table_id else _NEW
        text = staged_tables.manifest_text(
            Manifest(
                then.table_id,
                columns_then,
                then.partition_by,
                tuple(files),
                tuple(gone),
                then.version,
                then.partition_units,
            )
        )
        count = len(ids) + len(deletes)
        rows = StagedRows(self.owner, folder, staging, staged_tables.digest(text), count, mode, key)
        if self.long_manifests:
            self._put(f"{folder}/manifest/part.parquet", {"manifest": [text]})
        else:
            rows = replace(rows, manifest=staged_tables.packed(text))
        return Committable(stage, self.sink.name, staged_tables.encode(rows))

    def _put(self, url: str, columns: Mapping[str, list[Any]]) -> int:
        data = io.BytesIO()
        pq.write_table(pa.table({**columns}), data)
        self.filesystem.create_dir(self.path(url).rpartition("/")[0], recursive=True)
        with self.filesystem.open_output_stream(self.path(url)) as into:
            into.write(data.getvalue())
        return len(data.getvalue())


class Iceberg(Place):
    """An Iceberg table in a catalog on SQLite."""

    def __init__(self, folder: Path, url: str, s3: Mapping[str, str] = _NO_S3, *, partitioned: bool = False) -> None:
        self.properties = {"uri": f"sqlite:///{folder}/catalog.db", "warehouse": url}
        self.properties |= {name: s3[key] for name, key in OF_ICEBERG.items() if s3}
        self.catalog = SqlCatalog("lake", **self.properties)
        self.catalog.create_namespace("sales")
        super().__init__(folder, url, s3, partitioned=partitioned)

    @property
    def table(self) -> Any:
        return self.catalog.load_table("sales.orders")

    def create(self) -> None:
        self.create_in("sales.orders")

    def create_in(self, name: Any, location: str | None = None) -> None:
        by = [PartitionField(2, 1000, IdentityTransform(), "route")] if self.partitioned else []
        self.catalog.create_table(name, _ICEBERG, location, PartitionSpec(*by))

    @property
    def settings(self) -> dict[str, str]:
        """Catalog properties, as the connection gives them."""
        return {"type": "sql", **self.properties}

    def new_sink(self, **options: Any) -> TableSink:
        table = IcebergTable("lake.sales.orders", conn_id="rest", **options)
        return TableSink("orders", table, lambda _: self.settings)

    def rows(self) -> list[int]:
        return sorted(self.table.scan().to_arrow()["id"].to_pylist())

    def drop(self) -> None:
        self.catalog.drop_table("sales.orders")

    def partition_columns(self) -> list[str]:
        return [each.name for each in self.table.spec().fields]

    def foreign(self, *ids: int) -> None:
        self.table.append(rows_of(ids))

    def tidy(self) -> None:
        table = self.table
        with table.manage_snapshots() as tags:
            for name in [each for each in table.metadata.refs if each != "main"]:
                tags.remove_tag(name)
        now = table.metadata.current_snapshot_id
        if old := [each.snapshot_id for each in table.metadata.snapshots if each.snapshot_id != now]:
            table.maintenance.expire_snapshots().by_ids(old).commit()

    def named(self) -> set[str]:
        return {self.path(each["file_path"]) for each in self.table.inspect.files().to_pylist()}

    def shown(self) -> int | None:
        return int(self.table.properties.get("cairn.checkpoint:flights.orders", 0)) or None


class Delta(Place):
    """A Delta table."""

    @property
    def table(self) -> deltalake.DeltaTable:
        return deltalake.DeltaTable(self.url, storage_options=self.s3)

    def create(self) -> None:
        deltalake.DeltaTable.create(
            self.url,
            deltalake.Schema.from_arrow(SCHEMA),
            storage_options=self.s3,
            partition_by=["route"] if self.partitioned else None,
        )

    def new_sink(self, **options: Any) -> TableSink:
        return TableSink("orders", DeltaTable(self.url, conn_id="lake", **options), lambda _: self.s3)

    def rows(self) -> list[int]:
        return sorted(self.table.to_pyarrow_table()["id"].to_pylist())

    def drop(self) -> None:
        self.filesystem.delete_dir(self.path(self.url))

    def partition_columns(self) -> list[str]:
        return list(self.table.metadata().partition_columns)

    def foreign(self, *ids: int) -> None:
        deltalake.write_deltalake(self.table, rows_of(ids), mode="append")

    def tidy(self) -> None:
        table = self.table
        table.vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)
        table.create_checkpoint()

    def named(self) -> set[str]:
        actions = pa.table(self.table.get_add_actions()).to_pylist()
        return {self.path(f"{self.url}/{each['path']}") for each in actions}

    def shown(self) -> int | None:
        return self.table.transaction_version("cairn.checkpoint:flights.orders")
