"""The first rows of a state or a published table for people to look at in a page: few, short, no secrets (O1).

Many people may open a page. So there are limits, whatever the state holds: for rows, columns, a value's text, the bytes
that are read, the keys in memory, and in `apart.py` for what the bytes unpack to.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from typing import Any

from ...storage.records import dataclass
from ..documents.strict_json import Json
from ..masking import MASK, masked, names_a_secret
from .reading import Ranges, ReadBudget, RowsKind, StoredState, TooMuchToReadError, columns_of, rows_of
from .values import readable

ROWS = 20
COLUMNS = 50
CELL = 200
"""Characters of a value."""
READ_BYTES = 64 * 1024 * 1024
"""Bytes of the files. Of each column a dictionary and a page are read; Spark writes about a megabyte of each."""
KEYS = 100_000
"""Keys of a state's deltas, all of which are read before the first row is known."""
_LOOKED_AT = 20_000
"""Characters of a value that are searched for secrets; no more are shown."""

Rows = tuple[tuple[Json, ...], ...]


@dataclass(frozen=True, slots=True)
class FirstRows:
    """The first rows of a state or a table of one checkpoint."""

    checkpoint: int
    stage: str
    name: str
    kind: RowsKind
    columns: tuple[str, ...]
    more_columns: int
    """Columns that are not shown."""
    rows: Rows
    """A value for each column; a long one is cut, a nested one is its JSON as text, a secret is masked."""
    more_rows: bool
    read_in_part: bool
    """Whether reading ended early, at `READ_BYTES` or `KEYS`."""

    def as_json(self) -> dict[str, Json]:
        """Give the rows as plain JSON values."""
        rows: list[Json] = [dict(zip(self.columns, row, strict=True)) for row in self.rows]
        return {
            "checkpoint": self.checkpoint,
            "stage": self.stage,
            "name": self.name,
            "kind": self.kind,
            "columns": list(self.columns),
            "more_columns": self.more_columns,
            "rows": rows,
            "more": self.more_rows,
            "read_in_part": self.read_in_part,
        }


def shown_columns(found: StoredState) -> list[str]:
    """Give the columns that are shown."""
    return [*columns_of(found.output)][:COLUMNS]


def shown_rows(parquet: Any, files: Ranges, found: StoredState, budget: ReadBudget) -> tuple[Rows, bool]:
    """Read the first rows, and one more to know whether there are more; tell whether the budget ran out.

    Args:
        parquet: pyarrow's reader.
        files: reads the files.
        found: the state or table.
        budget: what may be read.
    """
    columns = shown_columns(found)
    wanted = [*dict.fromkeys((*columns, *found.output.key))]
    there, read_in_part = _within(rows_of(parquet, files, found, ROWS + 1, wanted, budget))
    return tuple(tuple(_shown(each, readable(row[each])) for each in columns) for row in there), read_in_part


def _within(rows: Iterator[dict[str, Any]]) -> tuple[list[dict[str, Any]], bool]:
    """Give as many rows as are needed, or as the budget allows, and whether the budget ran out."""
    found: list[dict[str, Any]] = []
    try:
        found.extend(islice(rows, ROWS + 1))
    except TooMuchToReadError:
        return found, True
    return found, False


def _shown(column: str, value: Any) -> Json:
    if value is None:
        return None
    if names_a_secret(column):
        return MASK
    if isinstance(value, bool | int | float):
        return value
    text = value if isinstance(value, str) else json.dumps(_without_secrets(value), ensure_ascii=False)
    whole = masked(text[:_LOOKED_AT])
    return whole if len(whole) <= CELL else f"{whole[: CELL - 1]}…"


def _without_secrets(value: Any) -> Any:
    """Mask all values below a secret's name in a nested value, numbers and lists too."""
    if isinstance(value, dict):
        return {name: _below(name, inner) for name, inner in value.items()}
    if isinstance(value, list):
        # An entry of a map is a pair of its key and its value.
        if len(value) == 2 and isinstance(value[0], str):
            return [value[0], _below(value[0], value[1])]
        return [_without_secrets(inner) for inner in value]
    return value


def _below(name: str, value: Any) -> Any:
    return MASK if value is not None and names_a_secret(name) else _without_secrets(value)
