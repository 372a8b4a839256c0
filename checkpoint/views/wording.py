"""Formats times, durations, sizes and counts for people."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone

_KIBI = 1024


def moment(at_ms: int | None) -> str:
    """Write a moment in UTC, to the second."""
    return "-" if at_ms is None else f"{datetime.fromtimestamp(at_ms / 1000, timezone.utc):%Y-%m-%d %H:%M:%SZ}"


def duration(took_ms: int | None) -> str:
    """Write a duration in its two largest units; below ten seconds with tenths."""
    if took_ms is None:
        return "-"
    if took_ms < 9_950:
        return f"{took_ms / 1000:.1f}s"
    minutes, seconds = divmod(round(took_ms / 1000), 60)
    if minutes < 60:
        return f"{minutes}m {seconds:02}s" if minutes else f"{seconds}s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h {minutes:02}m" if hours < 48 else f"{hours // 24}d {hours % 24:02}h"


def size(count: int) -> str:
    """Write a number of bytes in the largest unit that keeps it above one."""
    amount = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < _KIBI:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= _KIBI
    return f"{amount:.1f} TiB"


def some(names: Sequence[str], most: int) -> str:
    """Write the first names, and the number of the others."""
    shown = ", ".join(names[:most])
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown


def how_stopped(stopped: str) -> str:
    """Say how a job is stopped, in words that follow "is"."""
    return "shut down" if stopped == "shutdown" else stopped


def restart(count: int, left: int | None) -> str:
    """Give the restarts of an epoch that a strategy has counted (semantics F4).

    Args:
        count: restarts in a row so far.
        left: number of further failed tries that would lead to a restart; None: any number.
    """
    said = "no restart yet" if count == 0 else "1 restart" if count == 1 else f"{count} restarts"
    return said if left is None else f"{said}, {left} left"
