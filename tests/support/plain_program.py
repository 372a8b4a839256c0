"""A program that knows nothing of Cairn: it reads and writes Parquet at the places that its arguments name."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq


def rows_at(url: str) -> list[dict[str, object]]:
    """Read a folder as Spark would: what is hidden is passed over."""
    folder = Path(url.removeprefix("file://"))
    found = [pq.read_table(each) for each in sorted(folder.rglob("[!._]*.parquet"))]
    assert found, f"nothing to read in {folder}"
    return [row for each in found for row in each.to_pylist()]


def write_to(url: str, rows: list[dict[str, object]], *, success: bool = True) -> None:
    """Write a folder as Spark does, which refuses one that is there."""
    folder = Path(url.removeprefix("file://"))
    folder.mkdir(parents=True)
    columns = pa.schema([("key", pa.string()), ("n", pa.int64())])
    pq.write_table(pa.Table.from_pylist(rows, columns), folder / "part-00000.parquet")
    if success:
        (folder / "_SUCCESS").touch()


def add_up(before: str, raw: str, out: str) -> None:
    """Add the counts of a day to the totals before."""
    totals = {str(row["key"]): int(str(row["n"])) for row in (rows_at(before) if before else [])}
    for row in rows_at(raw):
        totals[str(row["key"])] = totals.get(str(row["key"]), 0) + int(str(row["n"]))
    write_to(out, [{"key": key, "n": n} for key, n in sorted(totals.items())])
