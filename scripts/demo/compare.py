"""Compares the state of a completed checkpoint, row by row, with what one plain Spark pass computed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from airflow_cairn.checkpoint import Coordinator
from airflow_cairn.checkpoint.documents import layout
from airflow_cairn.checkpoint.documents.metadata import HandleLine
from airflow_cairn.checkpoint.store import metadata_file

from .stored_state import Row, state_rows


@dataclass(frozen=True)
class Comparison:
    """The result of comparing one state."""

    name: str
    rows: int
    differences: tuple[str, ...]


def compare(coordinator: Coordinator, stage: str, name: str, key: list[str], expected: Path) -> Comparison:
    """Compare one keyed state of the newest completed checkpoint with a folder of Parquet files."""
    ours, theirs = state_rows(coordinator, stage, name), _plain_rows(expected, key)
    differences = [
        f"{found}: expected {theirs.get(found)}, found {ours.get(found)}"
        for found in sorted(set(ours) | set(theirs))
        if ours.get(found) != theirs.get(found)
    ]
    return Comparison(f"{stage}.{name}", len(theirs), tuple(differences))


def leftovers(coordinator: Coordinator) -> list[str]:
    """Give what lies below the job's checkpoints and belongs to no retained one: files, and pending uploads.

    The records of failed checkpoints, which people read, are not leftovers.

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
    recorded = head.recorded()
    return [key for key in found if key not in referred and layout.record_of(key) not in recorded] + uploads


def _plain_rows(folder: Path, key: list[str]) -> dict[Row, dict[str, Any]]:
    rows: dict[Row, dict[str, Any]] = {}
    for path in sorted(folder.glob("*.parquet")):
        for row in pq.read_table(path).to_pylist():
            rows[tuple(row[column] for column in key)] = row
    return rows
