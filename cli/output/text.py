"""Tables, bars, moments and sizes as people read them."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Collection, Sequence
from dataclasses import asdict
from datetime import UTC, datetime

from ...checkpoint.documents.read_windows import WindowText

_KIBI = 1024
_LABEL = 17


def width() -> int:
    """Give how many columns to fill: the terminal's, or those of `COLUMNS`, between 80 and 120; 100 without either."""
    return min(120, max(80, shutil.get_terminal_size((100, 24)).columns))


def table(headings: Sequence[str], rows: Sequence[Sequence[str]], *, right: Collection[str] = ()) -> list[str]:
    """Lay out rows below headings, columns as wide as their widest cell, those of some headings flush right."""
    widths = [max(len(row[column]) for row in (headings, *rows)) for column in range(len(headings))]
    ruled = ["-" * width for width in widths]

    def line(row: Sequence[str]) -> str:
        cells = zip(headings, row, widths, strict=True)
        return "  ".join(
            cell.rjust(width) if heading in right else cell.ljust(width) for heading, cell, width in cells
        ).rstrip()

    return [line(row) for row in (headings, ruled, *rows)]


def fit(text: str, columns: int) -> str:
    """Shorten a name in its middle, where it is longer than there is room."""
    if len(text) <= columns:
        return text
    tail = (columns - 1) // 2
    return f"{text[: columns - 1 - tail]}…{text[len(text) - tail :]}"


def table_width(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> int:
    """Give how wide a table would become."""
    return sum(2 + max(len(row[number]) for row in (headings, *rows)) for number in range(len(headings))) - 2


def columns_that_fit(
    headings: Sequence[str], rows: Sequence[Sequence[str]], columns: int, spare: Sequence[str]
) -> list[int]:
    """Choose which columns of a table to show.

    Args:
        headings: of all columns.
        rows: their cells.
        columns: how wide the table may become.
        spare: headings of what may be left out, the first to go first.

    Returns:
        The positions of the columns to show.
    """
    shown = list(range(len(headings)))
    for heading in spare:
        if table_width([headings[n] for n in shown], [[row[n] for n in shown] for row in rows]) > columns:
            shown.remove(headings.index(heading))
    return shown


def run_name(run_id: str, columns: int) -> str:
    """Shorten a DAG run's id to what tells it from others: the moment in it, where it has one."""
    if len(run_id) <= columns:
        return run_id
    return fit(run_id.rpartition("__")[2].removesuffix("+00:00"), columns)


def window(found: WindowText | None) -> str:
    """Write the input of a run, in UTC; the end is the first moment after it."""
    return "-" if found is None else found.window.short


def window_fields(found: WindowText | None) -> dict[str, str | None] | None:
    """Give the input of a run as `--json` has it."""
    return None if found is None else asdict(found)


def bar(parts: Sequence[tuple[str, int]], whole: int, columns: int) -> str:
    """Draw amounts one after another.

    Args:
        parts: the character and the amount of each.
        whole: the amount that fills all columns; an amount of which the whole is none draws nothing.
        columns: how wide the bar may become.
    """
    drawn, before = "", 0
    for character, amount in parts:
        before += amount
        end = round(columns * before / whole) if whole else 0
        drawn += character * (min(end, columns) - len(drawn))
    return drawn or (parts[-1][0] if before else "")


def labelled(label: str, text: str, columns: int) -> list[str]:
    """Write a label and a text beside it, as many lines as it takes."""
    first, *others = textwrap.wrap(text, columns - _LABEL, break_long_words=False, break_on_hyphens=False) or [""]
    return [f"  {label}".ljust(_LABEL) + first, *(" " * _LABEL + line for line in others)]


def paragraph(text: str, columns: int) -> list[str]:
    """Write a text in as many lines as it takes, all but the first indented further; words are not broken."""
    indent = text[: len(text) - len(text.lstrip())]
    return textwrap.wrap(text, columns, subsequent_indent=f"{indent}  ", break_long_words=False, break_on_hyphens=False)


def moment(at_ms: int | None) -> str:
    """Write a moment in UTC, to the second."""
    return "-" if at_ms is None else f"{datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%d %H:%M:%SZ}"


def duration(took_ms: int | None) -> str:
    """Write how long something took, in two units at most."""
    if took_ms is None:
        return "-"
    if took_ms < 99_950:
        return f"{took_ms / 1000:.1f} s"
    minutes, seconds = divmod(round(took_ms / 1000), 60)
    if minutes < 100:
        return f"{minutes}m {seconds:02}s"
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


def how_stopped(stopped: str) -> str:
    """Say in what way a job is stopped, so that it reads well behind "is"."""
    return "shut down" if stopped == "shutdown" else stopped


def restart(count: int, left: int | None) -> str:
    """Say what a restart strategy has counted of an epoch (semantics F4).

    Args:
        count: restarts in a row so far.
        left: how many more failed tries would be answered by a restart; None: any number.
    """
    said = "no restart yet" if count == 0 else "1 restart" if count == 1 else f"{count} restarts"
    return said if left is None else f"{said}, {left} left"
