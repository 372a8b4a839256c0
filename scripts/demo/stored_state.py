"""Reads a keyed state in a completed checkpoint: its rows, and the bytes that the last epoch wrote of it."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_cairn.checkpoint import Coordinator
from airflow_cairn.spark.stored.deltas import DELETED, NUMBER
from airflow_cairn.spark.stored.key_groups import COLUMN
from airflow_cairn.spark.stored.outputs import of_checkpoint

Row = tuple[Any, ...]


def state_rows(coordinator: Coordinator, stage: str, name: str) -> dict[Row, dict[str, Any]]:
    """Give the rows of a keyed state in the newest completed checkpoint, by their key; none where there is none.

    The deltas are merged here in plain Python, another way than by Spark, so that a mistake there shows.

    Raises:
        ValueError: a key is twice in one delta, or the state is merged in a way that the flights do not need.
    """
    latest = coordinator.head().latest_completed()
    rows: dict[Row, dict[str, Any]] = {}
    if latest is None:
        return rows
    files = coordinator.files
    for contents in of_checkpoint(files, latest.metadata, lambda uid: uid == stage):
        stored = contents.outputs[f"state.{name}"]
        for number in sorted({file.handle.delta for file in stored.files}):
            seen: set[Row] = set()
            for file in (each for each in stored.files if each.handle.delta == number):
                data = files.store.get(files.full(file.handle.path)).data
                for row in pq.read_table(pa.BufferReader(data)).to_pylist():
                    key = tuple(row[column] for column in stored.output.key)
                    if key in seen:
                        raise ValueError(f"the key {key} stands twice in the delta {number} of {stage}.{name}")
                    seen.add(key)
                    _merge(rows, key, row, stored.output.merge)
    return rows


def _merge(rows: dict[Row, dict[str, Any]], key: Row, row: dict[str, Any], merge: Mapping[str, str]) -> None:
    deleted = row.pop(DELETED, False)
    row = {column: value for column, value in row.items() if column not in (COLUMN, NUMBER)}
    before = rows.get(key)
    if deleted:
        rows.pop(key, None)
    elif before is None or not merge:
        rows[key] = row
    else:
        rows[key] = before | {column: _SUMS[how](before[column], row[column]) for column, how in merge.items()}


_SUMS: dict[str, Callable[[Any, Any], Any]] = {
    "sum": operator.add,
    "each(sum)": lambda before, added: [one + other for one, other in zip(before, added, strict=True)],
}


@dataclass(frozen=True)
class Written:
    """Bytes that the newest completed checkpoint wrote of a state, and bytes of the whole state."""

    name: str
    added_bytes: int
    whole_bytes: int

    def __str__(self) -> str:
        """Say it in one line."""
        wrote = f"the last epoch wrote {self.added_bytes:,} bytes for {self.name}"
        if self.added_bytes >= self.whole_bytes:
            return f"{wrote}, which is all of it: small states are written whole, large ones now and then"
        return f"{wrote}; a snapshot of the whole, as the plain pass wrote it, has {self.whole_bytes:,}"


def written(coordinator: Coordinator, stage: str, name: str, whole: Path) -> Written:
    """Compare what the last epoch wrote of a state with a snapshot of all of it."""
    sizes: list[dict[str, int]] = [{}]
    for entry in coordinator.head().completed[-2:]:
        contents = of_checkpoint(coordinator.files, entry.metadata, lambda uid: uid == stage)
        handles = [file.handle for each in contents for file in each.outputs[f"state.{name}"].files]
        sizes.append({handle.path: handle.size_bytes for handle in handles})
    added = sum(size for path, size in sizes[-1].items() if path not in sizes[-2])
    return Written(f"{stage}.{name}", added, sum(path.stat().st_size for path in whole.glob("*.parquet")))
