"""Tables with a history of commits, each of which has added one small file, made faster than by as many commits."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem
    from pyiceberg.manifest import ManifestFile
    from pyiceberg.table import Table

SCHEMA = pa.schema([("id", pa.int64()), ("value", pa.float64()), ("text", pa.string())])
_INTERVAL = 100
"""Commits from one checkpoint of Delta's log to the next, unless a table says another number."""
_ROW = pa.table({"id": [1], "value": [0.5], "text": ["a"]}, SCHEMA)


def write_iceberg(table: Table, commits: int) -> None:
    """Give an empty table so many snapshots and manifests, as appends without merging leave them.

    All snapshots go in by one commit, and the older ones name the manifest list of the newest: an append reads that one
    alone, and as many lists would take minutes.
    """
    from pyiceberg.manifest import write_manifest_list
    from pyiceberg.table.snapshots import Snapshot
    from pyiceberg.table.update import AddSnapshotUpdate, SetSnapshotRefUpdate

    with table.transaction() as transaction:
        transaction.set_properties({"schema.name-mapping.default": table.schema().name_mapping.model_dump_json()})
    first = table.metadata.new_snapshot_id() >> 1
    with ThreadPoolExecutor(8) as pool:
        manifests = list(pool.map(lambda at: _manifest(table, at + 1, first + at), range(commits)))
    listed = f"{table.location()}/metadata/snap-{first}.avro"
    newest = first + commits - 1
    with write_manifest_list(2, table.io.new_output(listed), newest, newest - 1, commits, "deflate") as into:
        into.add_manifests(manifests[::-1])
    now = int(time.time() * 1000) - commits
    snapshots = [
        Snapshot.model_validate(
            {
                "snapshot-id": first + at,
                "parent-snapshot-id": first + at - 1 if at else None,
                "sequence-number": at + 1,
                "timestamp-ms": now + at,
                "manifest-list": listed,
                "summary": {"operation": "append", "total-data-files": str(at + 1), "total-records": str(at + 1)},
                "schema-id": table.schema().schema_id,
            }
        )
        for at in range(commits)
    ]
    to_newest = {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": newest}
    added = (AddSnapshotUpdate(action="add-snapshot", snapshot=each) for each in snapshots)
    table.catalog.commit_table(table, (), (*added, SetSnapshotRefUpdate.model_validate(to_newest)))


def _manifest(table: Table, number: int, snapshot: int) -> ManifestFile:
    from pyiceberg.io.pyarrow import parquet_file_to_data_file
    from pyiceberg.manifest import ManifestEntry, ManifestEntryStatus, write_manifest

    url = f"{table.location()}/data/before-{number}.parquet"
    data = io.BytesIO()
    pq.write_table(_ROW, data)
    with table.io.new_output(url).create() as out:
        out.write(data.getvalue())
    file = parquet_file_to_data_file(table.io, table.metadata, url)
    entry = ManifestEntry.from_args(
        status=ManifestEntryStatus.ADDED,
        snapshot_id=snapshot,
        sequence_number=number,
        file_sequence_number=number,
        data_file=file,
    )
    output = table.io.new_output(f"{table.location()}/metadata/before-{number}.avro")
    with write_manifest(2, table.spec(), table.schema(), output, snapshot, "deflate") as writer:
        writer.add_entry(entry)
    made = writer.to_manifest_file()
    made.sequence_number = made.min_sequence_number = number  # else each is of the newest snapshot
    return made


def write_delta(url: str, options: Mapping[str, str], filesystem: FileSystem, commits: int) -> None:
    """Make a table with so many versions that have added a file, and a checkpoint of its log half an interval ago."""
    import deltalake

    settings: dict[str, Any] = {"storage_options": {**options}}
    deltalake.write_deltalake(url, _ROW, **settings)
    table = deltalake.DeltaTable(url, **settings)
    [add] = pa.table(table.get_add_actions()).to_pylist()
    now = int(time.time() * 1000) - commits

    def commit(number: int) -> None:
        path = f"before-{number}.parquet"
        size = _put(filesystem, path)
        action = {"path": path, "partitionValues": {}, "size": size, "modificationTime": now + number}
        action |= {"dataChange": True, "stats": json.dumps({"numRecords": add["num_records"]})}
        info = {"timestamp": now + number, "operation": "WRITE", "operationParameters": {"mode": "Append"}}
        _put(
            filesystem,
            f"_delta_log/{number:020}.json",
            f"{json.dumps({'add': action})}\n{json.dumps({'commitInfo': info})}",
        )

    middle = max(commits - _INTERVAL // 2, 1)
    with ThreadPoolExecutor(8) as pool:
        for some in (range(1, middle), range(middle, commits)):
            list(pool.map(commit, some))
            if some.start == 1 and commits > _INTERVAL:
                deltalake.DeltaTable(url, **settings).create_checkpoint()


def _put(filesystem: FileSystem, path: str, text: str | None = None) -> int:
    """Write a text, or the file of one row; give its size."""
    data = io.BytesIO()
    if text is None:
        pq.write_table(_ROW, data)
    content = text.encode() if text is not None else data.getvalue()
    with filesystem.open_output_stream(path) as out:
        out.write(content)
    return len(content)
