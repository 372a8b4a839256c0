"""Tables, moments and sizes as people read them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

_KIBI = 1024


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Lay out rows below headings, columns as wide as their widest cell."""
    widths = [max(len(row[column]) for row in (headings, *rows)) for column in range(len(headings))]
    ruled = ["-" * width for width in widths]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in (headings, ruled, *rows)
    ]


def moment(at_ms: int | None) -> str:
    """Write a moment in UTC, to the second."""
    return "-" if at_ms is None else f"{datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%d %H:%M:%SZ}"


def seconds(begin_ms: int, end_ms: int | None) -> str:
    """Write how long something took."""
    return "-" if end_ms is None else f"{(end_ms - begin_ms) / 1000:.1f} s"


def size(count: int) -> str:
    """Write a number of bytes in the largest unit that keeps it above one."""
    amount = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < _KIBI:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= _KIBI
    return f"{amount:.1f} TiB"
