"""`cairn state`: the first rows of a state; neither Spark nor Java runs."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from itertools import islice
from typing import Any

from ...checkpoint import Coordinator
from ...checkpoint.documents.entries import CompletedEntry
from ...checkpoint.documents.head import Head
from ...checkpoint.errors import NoCheckpointError
from ...checkpoint.rows.reading import StoredState, columns_of, find_state, pyarrow_parquet, rows_of
from ...checkpoint.rows.values import readable
from . import text

HEAD = 20
"""Default number of rows shown."""
_CELL = 40
"""Terminal columns for a value."""


def rows(coordinator: Coordinator, options: argparse.Namespace) -> tuple[list[str], dict[str, Any]]:
    """Return the first rows of a state.

    Args:
        coordinator: the job's coordinator.
        options: with `stage`, `name`, `checkpoint` (None: the newest) and `head`.

    Raises:
        NoCheckpointError: none has completed, or the requested one is not retained or holds no such state.
        InvalidConfigError: pyarrow is not installed.
        DocumentError: the metadata or a file is broken.
    """
    parquet = pyarrow_parquet("cairn state")

    def look(head: Head) -> tuple[int, StoredState, list[dict[str, Any]]]:
        entry = _entry(head, options.checkpoint)
        found = find_state(coordinator.files, entry, options.stage, options.name)
        count = options.head + 1
        return entry.id, found, list(islice(rows_of(parquet, coordinator.files, found, count), count))

    # A newer checkpoint may complete in between, and cleaning may delete the one that is read: then it looks again.
    checkpoint, found, there = coordinator.observe(look)
    shown, more = readable(there[: options.head]), len(there) > options.head
    output, names = found.output, [*columns_of(found.output)]
    document = {
        "job": coordinator.job,
        "checkpoint": checkpoint,
        "stage": options.stage,
        "name": options.name,
        "url": coordinator.files.spark_url(output.folder),
        "files": [coordinator.files.spark_url(handle.path) for _, handle in found.files],
        "key": list(output.key),
        "key_groups": output.key_groups,
        "runs": len({handle.run for _, handle in found.files if handle.run}),
        "merge": output.merge,
        "columns": names,
        "rows": shown,
        "more": more,
    }
    return list(_lines(document)), document


def _lines(document: dict[str, Any]) -> Iterator[str]:
    keyed = f", by {', '.join(document['key'])}" if document["key"] else ""
    groups = f" in {document['key_groups']} key groups" if document["key_groups"] else ""
    runs = f", {document['runs']} run{'s' if document['runs'] > 1 else ''}" if document["runs"] else ""
    yield f"state {document['name']} of {document['stage']} in checkpoint {document['checkpoint']}{keyed}{groups}{runs}"
    if document["runs"]:
        yield "read it with airflow_cairn.spark.state, which merges the runs with the base"
    else:
        yield f"files: {document['url']}"
    yield ""
    names = document["columns"]
    cells = [[_cell(row[name]) for name in names] for row in document["rows"]]
    numbers = {name for name in names if all(isinstance(row[name], int | float | None) for row in document["rows"])}
    yield from text.table([text.fit(name, _CELL) for name in names], cells, right=numbers)
    if document["more"]:
        yield "… and more rows; raise --head to see them"
    elif not cells:
        yield "no rows"


def _cell(value: Any) -> str:
    if not isinstance(value, str):
        value = json.dumps(value, ensure_ascii=False)
    return text.fit(value, _CELL)


def _entry(head: Head, checkpoint: int | None) -> CompletedEntry:
    if checkpoint is not None:
        return head.retained(checkpoint)
    latest = head.latest_completed()
    if latest is None:
        raise NoCheckpointError("no checkpoint of the job has completed yet, so it has no state", job=head.job)
    return latest
