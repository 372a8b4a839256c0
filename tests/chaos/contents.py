"""What a checkpoint's stages hold, read from its metadata lines and from the files that these name: JSON or Parquet."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass, field
from typing import Any

from pyarrow import parquet

from tests.chaos.stored import Folder


@dataclass
class Held:
    """What one stage holds, as far as it keeps it."""

    runs: list[str]
    """The runs that it says it has read."""
    log: list[str] | None = None
    """The same as its list state says it."""
    sums: dict[str, int] | None = None
    """Its keyed state."""
    table_runs: list[str] | None = None
    table_sums: dict[str, int] | None = None
    """What its table shows: runs, or sums."""
    _parts: dict[str, list[bytes]] = field(default_factory=dict)


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
    for each in found.values():
        _understand(each)
    return found


def _understand(stage: Held) -> None:
    for kind, parts in stage._parts.items():
        if all(part.startswith(b"PAR1") for part in parts):
            rows = [row for part in parts for row in parquet.read_table(io.BytesIO(part)).to_pylist()]
            sums = dict(sorted((row["key"], row["amount"]) for row in rows))
            # A key that occurs twice is no sum of anything.
            content: dict[str, Any] = {"sums": sums if len(sums) == len(rows) else {"?": len(rows)}}
        else:
            content = json.loads(b"".join(parts))
        if kind == "table":
            stage.table_runs, stage.table_sums = content.get("runs"), content.get("sums")
        else:
            stage.sums, stage.log = content["sums"], content.get("runs", stage.log)
