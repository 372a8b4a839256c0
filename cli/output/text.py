"""Tables and bars, as wide as the terminal."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Collection, Sequence

from ...checkpoint.documents.read_windows import WindowText

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
