"""Compares the state of a completed checkpoint, row by row, with what one plain Spark pass computed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_cairn.checkpoint import Coordinator
from airflow_cairn.checkpoint.documents import layout
from airflow_cairn.checkpoint.documents.metadata import HandleLine
from airflow_cairn.checkpoint.store import metadata_file
from airflow_cairn.spark.stored.key_groups import COLUMN
from airflow_cairn.spark.stored.outputs import of_checkpoint

Row = tuple[Any, ...]


@dataclass(frozen=True)
class Comparison:
    """What comparing one state found."""

    name: str
    rows: int
    differences: tuple[str, ...]


def compare(coordinator: Coordinator, stage: str, name: str, key: list[str], expected: Path) -> Comparison:
    """Compare one keyed state of the newest completed checkpoint with a folder of Parquet files.

    Args:
        coordinator: the job's.
        stage: whose state.
        name: the state's name.
        key: its key columns.
        expected: where the plain pass wrote the same columns.
    """
    ours = _rows(state_files(coordinator, stage, name), key)
    theirs = _rows([path.read_bytes() for path in sorted(expected.glob("*.parquet"))], key)
    differences = [
        f"{found}: expected {theirs.get(found)}, found {ours.get(found)}"
        for found in sorted(set(ours) | set(theirs))
        if ours.get(found) != theirs.get(found)
    ]
    return Comparison(f"{stage}.{name}", len(theirs), tuple(differences))


def leftovers(coordinator: Coordinator) -> list[str]:
    """Give what lies below the job's checkpoints and belongs to no retained one: files, and pending uploads.

    Only meaningful while nothing is pending.
    """
    files = coordinator.files
    head = coordinator.head()
    referred = {each.document.key for each in head.segments}
    for entry in head.completed:
        referred.add(entry.metadata.key)
        for line in metadata_file.read(files, entry.metadata):
            if isinstance(line, HandleLine):
                referred |= {line.handle.path, *metadata_file.led_to(files, line.handle)}
    found = [each.key for each in files.listing("") if layout.checkpoint_of(each.key) is not None]
    uploads = [f"{upload.key} (pending upload)" for upload in files.uploads()]
    return [key for key in found if key not in referred] + uploads


def state_files(coordinator: Coordinator, stage: str, name: str) -> list[bytes]:
    """Give the content of the files of a stage's state in the newest completed checkpoint; none where there is none."""
    latest = coordinator.head().latest_completed()
    if latest is None:
        return []
    files = coordinator.files
    return [
        files.store.get(files.full(file.handle.path)).data
        for contents in of_checkpoint(files, latest.metadata, lambda uid: uid == stage)
        for file in contents.outputs[f"state.{name}"].files
    ]


def _rows(parts: Iterable[bytes], key: list[str]) -> dict[Row, Row]:
    rows: dict[Row, Row] = {}
    for part in parts:
        table = pq.read_table(pa.BufferReader(part))
        values = sorted(set(table.column_names) - {*key, COLUMN})
        for row in table.to_pylist():
            where = tuple(row[column] for column in key)
            if where in rows:
                raise ValueError(f"the key {where} stands twice in the state")
            rows[where] = tuple((column, row[column]) for column in values)
    return rows
