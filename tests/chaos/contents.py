"""Contents of a checkpoint's stages, read from its metadata lines and the files that these name: JSON or Parquet."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass, field
from typing import Any

from pyarrow import parquet

from tests.chaos.stored import Folder

UPDATED, COUNTED = "state.newest", "state.count"
"""States that grow by runs: a key has its newest row, and numbers add up."""
DELETED = "_cairn_deleted"
"""The column of a run that says that a key has ended."""


@dataclass
class Held:
    """Contents of one stage, as far as it keeps them."""

    runs: list[str]
    """The runs that it says it has read."""
    log: list[str] | None = None
    """The runs as its list state has them."""
    sums: dict[str, int] | None = None
    """Sums in its keyed state."""
    table_runs: list[str] | None = None
    table_sums: dict[str, int] | None = None
    """Runs or sums in its published table."""
    grown: dict[str, Any] = field(default_factory=dict)
    """States that grow: the keys of the updated one, and the number of runs that the other has counted."""
    _parts: dict[str, list[bytes]] = field(default_factory=dict)
    _grown: dict[str, list[tuple[int, bytes]]] = field(default_factory=dict)
    """Of each state that grows the files of its base, which has the number 0, and of its runs."""


def held(folder: Folder, read: list[dict[str, Any]]) -> dict[str, Held]:
    """Give what each stage holds.

    Args:
        folder: in which the files lie.
        read: the metadata's lines.
    """
    found: dict[str, Held] = {}
    stage = Held([])
    for line in read:
        if line["kind"] == "stage":
            stage = found[line["stage"]] = Held(line["values"].get("runs", []))
            for output in line["outputs"]:
                if output["kind"] == "list":
                    stage.log = [run for items in output["items"] for run in items]
        elif line["kind"] == "file":
            output, _, _ = line["handle"]["output"].partition(".")
            if line["handle"]["output"] == "state.totals" or output == "table":
                stage._parts.setdefault(output, []).append(folder.bytes(line["handle"]["path"]))
            elif line["handle"]["output"] in (UPDATED, COUNTED):
                part = line["handle"].get("run", 0), folder.bytes(line["handle"]["path"])
                stage._grown.setdefault(line["handle"]["output"], []).append(part)
    for each in found.values():
        _understand(each)
    return found


def _understand(stage: Held) -> None:
    for name, numbered in stage._grown.items():
        rows = [row for _, part in sorted(numbered, key=lambda each: each[0]) for row in _rows(part)]
        stage.grown[name] = sum(row["v"] for row in rows) if name == COUNTED else _newest(rows)
    for kind, parts in stage._parts.items():
        if all(part.startswith(b"PAR1") for part in parts):
            rows = [row for part in parts for row in _rows(part)]
            sums = dict(sorted((row["key"], row["amount"]) for row in rows))
            # A key that occurs twice is no sum of anything.
            content: dict[str, Any] = {"sums": sums if len(sums) == len(rows) else {"?": len(rows)}}
        else:
            content = json.loads(b"".join(parts))
        if kind == "table":
            stage.table_runs, stage.table_sums = content.get("runs"), content.get("sums")
        else:
            stage.sums, stage.log = content["sums"], content.get("runs", stage.log)


def _rows(part: bytes) -> list[dict[str, Any]]:
    """Read rows of a file of Parquet, or of JSON."""
    found: list[dict[str, Any]] = (
        parquet.read_table(io.BytesIO(part)).to_pylist() if part.startswith(b"PAR1") else json.loads(part)
    )
    return found


def _newest(rows: list[dict[str, Any]]) -> dict[str, Any]:
    found = {row["k"]: row for row in rows}
    return {key: row["v"] for key, row in found.items() if not row.get(DELETED)}
