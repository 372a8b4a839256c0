"""Real tables of pyiceberg and deltalake, and drivers that stage rows for them without Spark."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.fs import FileSelector, FileType, LocalFileSystem, S3FileSystem
from pyiceberg.catalog.sql import SqlCatalog

from airflow_cairn.checkpoint.documents import staged_tables
from airflow_cairn.checkpoint.documents.staged_tables import Manifest, StagedFile, StagedRows, description_of
from airflow_cairn.checkpoint.extensions.committables import CheckpointNotice, Committable
from airflow_cairn.checkpoint.reasons import Status
from airflow_cairn.tables.declared import DeltaTable, IcebergTable
from airflow_cairn.tables.sink import TableSink
from scripts.harness.s3_server import S3Server

SCHEMA = pa.schema([("id", pa.int64()), ("route", pa.string())])


def notice(*committables: Committable, checkpoint: int = 3) -> CheckpointNotice:
    """Give the notice of a completed checkpoint."""
    return CheckpointNotice(checkpoint, "e", 1, Status.COMPLETED, checkpoint, None, "", committables)


_OF_PYARROW = {
    "access_key": "AWS_ACCESS_KEY_ID",
    "secret_key": "AWS_SECRET_ACCESS_KEY",
    "region": "AWS_REGION",
    "endpoint_override": "AWS_ENDPOINT_URL",
}
_OF_ICEBERG = {
    "s3.access-key-id": "AWS_ACCESS_KEY_ID",
    "s3.secret-access-key": "AWS_SECRET_ACCESS_KEY",
    "s3.region": "AWS_REGION",
    "s3.endpoint": "AWS_ENDPOINT_URL",
}
_NO_S3: Mapping[str, str] = {}


def way_to(server: S3Server) -> dict[str, str]:
    """Give what a connection to a server means to the libraries."""
    return {**server.env, "AWS_ENDPOINT_URL": server.endpoint_url, "AWS_ALLOW_HTTP": "true"}


class Place:
    """One table of a format, and its sink.

    Args:
        folder: on the local disk, for a catalog.
        url: where the table's files go.
        s3: the way to them on S3, by the names of an environment; empty for the local disk.
    """

    def __init__(self, folder: Path, url: str, s3: Mapping[str, str] = _NO_S3) -> None:
        self.folder, self.url, self.s3 = folder, url, dict(s3)
        self.filesystem: Any = LocalFileSystem()
        if s3:
            self.filesystem = S3FileSystem(**{name: s3[key] for name, key in _OF_PYARROW.items()})
        self.create()
        self.sink = self.new_sink()

    def create(self) -> None:
        raise NotImplementedError

    def new_sink(self) -> TableSink:
        raise NotImplementedError

    def rows(self) -> list[int]:
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

    def staged(self) -> set[str]:
        """Give the files below the folder of staged files."""
        found = self.filesystem.get_file_info(FileSelector(self.path(self.url), recursive=True))
        return {each.path for each in found if each.type == FileType.File and "/_cairn/" in f"/{each.path}"}

    def path(self, url: str) -> str:
        return url.partition("://")[2]

    def trigger(self, checkpoint: int) -> str:
        return description_of(self.sink.trigger(checkpoint, 0), where="answer").staging

    def stage(self, staging: str, token: str, *ids: int, stage: str = "routes") -> Committable:
        """Do what a driver does."""
        now = description_of(self.sink.trigger(1, 0), where="answer")
        folder = f"{staging}/{stage}-{token}-run"
        files = []
        for number in ids:
            size = self._put(f"{folder}/data/part-{number}.parquet", {"id": [number], "route": [f"r{number}"]})
            files.append(StagedFile(f"part-{number}.parquet", size, 1))
        text = staged_tables.manifest_text(Manifest(now.table_id, now.columns, now.partition_by, tuple(files)))
        self._put(f"{folder}/manifest/part.parquet", {"manifest": [text]})
        rows = StagedRows("flights.0a", folder, staging, staged_tables.digest(text), len(ids))
        return Committable(stage, "table.orders", staged_tables.encode(rows))

    def _put(self, url: str, columns: Mapping[str, list[Any]]) -> int:
        data = io.BytesIO()
        pq.write_table(pa.table({**columns}), data)
        self.filesystem.create_dir(self.path(url).rpartition("/")[0], recursive=True)
        with self.filesystem.open_output_stream(self.path(url)) as into:
            into.write(data.getvalue())
        return len(data.getvalue())


class Iceberg(Place):
    """An Iceberg table in a catalog on SQLite."""

    def __init__(self, folder: Path, url: str, s3: Mapping[str, str] = _NO_S3) -> None:
        self.properties = {"uri": f"sqlite:///{folder}/catalog.db", "warehouse": url}
        self.properties |= {name: s3[key] for name, key in _OF_ICEBERG.items() if s3}
        self.catalog = SqlCatalog("lake", **self.properties)
        self.catalog.create_namespace("sales")
        super().__init__(folder, url, s3)

    @property
    def table(self) -> Any:
        return self.catalog.load_table("sales.orders")

    def create(self) -> None:
        self.catalog.create_table("sales.orders", SCHEMA)

    def new_sink(self) -> TableSink:
        settings = {"type": "sql", **self.properties}
        return TableSink("orders", IcebergTable("lake.sales.orders", conn_id="rest"), lambda _: settings)

    def rows(self) -> list[int]:
        return sorted(self.table.scan().to_arrow()["id"].to_pylist())

    def foreign(self, *ids: int) -> None:
        self.table.append(pa.table({"id": ids, "route": ["x"] * len(ids)}, SCHEMA))

    def tidy(self) -> None:
        table = self.table
        old = [each.snapshot_id for each in table.metadata.snapshots][:-1]
        if old:
            table.maintenance.expire_snapshots().by_ids(old).commit()

    def named(self) -> set[str]:
        return {self.path(each["file_path"]) for each in self.table.inspect.files().to_pylist()}


class Delta(Place):
    """A Delta table."""

    @property
    def table(self) -> deltalake.DeltaTable:
        return deltalake.DeltaTable(self.url, storage_options=self.s3)

    def create(self) -> None:
        deltalake.DeltaTable.create(self.url, deltalake.Schema.from_arrow(SCHEMA), storage_options=self.s3)

    def new_sink(self) -> TableSink:
        return TableSink("orders", DeltaTable(self.url, conn_id="lake"), lambda _: self.s3)

    def rows(self) -> list[int]:
        return sorted(self.table.to_pyarrow_table()["id"].to_pylist())

    def foreign(self, *ids: int) -> None:
        deltalake.write_deltalake(self.table, pa.table({"id": ids, "route": ["x"] * len(ids)}, SCHEMA), mode="append")

    def tidy(self) -> None:
        table = self.table
        table.vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)
        table.create_checkpoint()

    def named(self) -> set[str]:
        actions = pa.table(self.table.get_add_actions()).to_pylist()
        return {self.path(f"{self.url}/{each['path']}") for each in actions}
