"""Tables and bars, as wide as the terminal."""

from __future__ import annotations

import os
import re
import shutil
import sys
import textwrap
from collections.abc import Collection, Iterable, Sequence
from typing import TextIO

from ...checkpoint.answers import FilesProgress
from ...checkpoint.documents.read_windows import WindowText
from ...checkpoint.errors import RefusedError
from ...checkpoint.views import wording
from ...storage.errors import printable

_LABEL = 17


def width() -> int:
    """Return the number of columns to fill: the terminal's, or `COLUMNS`, between 80 and 120; 100 without either."""
    return min(120, max(80, shutil.get_terminal_size((100, 24)).columns))


def table(headings: Sequence[str], rows: Sequence[Sequence[str]], *, right: Collection[str] = ()) -> list[str]:
    """Lay out rows below headings, columns as wide as their widest cell, the columns in `right` flush right."""
    widths = [max(len(row[column]) for row in (headings, *rows)) for column in range(len(headings))]
    ruled = ["-" * width for width in widths]

    def line(row: Sequence[str]) -> str:
        cells = zip(headings, row, widths, strict=True)
        return "  ".join(
            cell.rjust(width) if heading in right else cell.ljust(width) for heading, cell, width in cells
        ).rstrip()

    return [line(row) for row in (headings, ruled, *rows)]


def fit(text: str, columns: int) -> str:
    """Shorten a name in its middle if it is too long."""
    if len(text) <= columns:
        return text
    tail = (columns - 1) // 2
    return f"{text[: columns - 1 - tail]}…{text[len(text) - tail :]}"


def table_width(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> int:
    """Return the width of a table."""
    return sum(2 + max(len(row[number]) for row in (headings, *rows)) for number in range(len(headings))) - 2


def fitting_columns(
    headings: Sequence[str], rows: Sequence[Sequence[str]], columns: int, spare: Sequence[str]
) -> list[int]:
    """Choose which columns of a table to show; those in `spare` may be dropped, the first one first."""
    shown = list(range(len(headings)))
    for heading in spare:
        if table_width([headings[n] for n in shown], [[row[n] for n in shown] for row in rows]) > columns:
            shown.remove(headings.index(heading))
    return shown


def run_name(run_id: str, columns: int) -> str:
    """Shorten a DAG run's id to its distinguishing part: the moment in it, if it has one."""
    if len(run_id) <= columns:
        return run_id
    return fit(run_id.rpartition("__")[2].removesuffix("+00:00"), columns)


def window(found: WindowText | None) -> str:
    """Return a run's input as text, in UTC; the end is exclusive."""
    return "-" if found is None else found.window.short


def bar(parts: Sequence[tuple[str, int]], whole: int, columns: int) -> str:
    """Draw amounts one after another: nothing for a sum of 0, at least one character for any other."""
    drawn, before = "", 0
    for character, amount in parts:
        before += amount
        end = round(columns * before / whole) if whole else 0
        drawn += character * (min(end, columns) - len(drawn))
    return drawn or (parts[-1][0] if before else "")


def labelled(label: str, text: str) -> list[str]:
    """Write a label and a text beside it, on as many lines as needed."""
    first, *others = textwrap.wrap(text, width() - _LABEL, break_long_words=False, break_on_hyphens=False) or [""]
    return [f"  {label}".ljust(_LABEL) + first, *(" " * _LABEL + line for line in others)]


def paragraph(text: str, columns: int | None = None) -> list[str]:
    """Write a text on as many lines as needed, all but the first indented further; words are not broken."""
    columns = width() if columns is None else columns
    indent = text[: len(text) - len(text.lstrip())]
    return textwrap.wrap(text, columns, subsequent_indent=f"{indent}  ", break_long_words=False, break_on_hyphens=False)


# Asks the user at the terminal before data is lost.


def ask(lost: Iterable[str], question: str, code: str, nothing: str = "changed", **facts: object) -> None:
    """Print the data that would be lost, and ask for a yes.

    Raises:
        RefusedError: with this code: there is no terminal, or the answer is not yes.
    """
    if not sys.stdin.isatty():
        why = f"there is no terminal to ask at; give --yes. Nothing was {nothing}"
        raise RefusedError(why, code=code, **facts, option="--yes")
    # The question is not part of the output, which may go to a file.
    print("\n".join(printable(line) for line in lost), file=sys.stderr)
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise RefusedError(f"not agreed to; nothing was {nothing}", code=code, **facts)


# Colours states and errors: only on a terminal, and not if the user has set `NO_COLOR` (no-color.org).


_RED, _GREEN, _YELLOW = 31, 32, 33
_COLOURS = {
    "COMPLETED": _GREEN,
    "IN_PROGRESS": _YELLOW,
    "WARNING": _YELLOW,
    "FAILED": _RED,
    "DAMAGED": _RED,
    "BROKEN": _RED,
    "ERROR": _RED,
}
_WORD = re.compile(rf"(?<![\w-])(?:{'|'.join(_COLOURS)})(?![\w-])")


def are_wanted(stream: TextIO) -> bool:
    """Return whether a stream is a terminal whose user wants colours."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def painted(line: str, stream: TextIO) -> str:
    """Return a line with its states in colours, if the stream supports them. Do not shorten it afterwards."""
    if not are_wanted(stream):
        return line
    return _WORD.sub(lambda found: _in(_COLOURS[found[0]], found[0]), line)


def alarming(word: str, stream: TextIO) -> str:
    """Return a word in the colour of an error, if the stream supports colours."""
    return _in(_RED, word) if are_wanted(stream) else word


def _in(colour: int, word: str) -> str:
    return f"\x1b[{colour}m{word}\x1b[0m"


# Shows the progress of work on many files, on a terminal.


_COLUMNS = 24


class ProgressLine:
    """One line on a terminal's standard error that is overwritten; nothing without a terminal. Use in `with`."""

    def __init__(self, doing: str) -> None:
        self._doing = doing
        self._drawn = False

    def __enter__(self) -> ProgressLine:
        return self

    def __exit__(self, *_: object) -> None:
        if self._drawn:
            print(file=sys.stderr)

    def show(self, progress: FilesProgress) -> None:
        if not sys.stderr.isatty():
            return
        share = progress.bytes_done / progress.size_bytes if progress.size_bytes else 1.0
        full = min(_COLUMNS, round(share * _COLUMNS))
        of = f" of {progress.files:,}" if progress.files else ""
        done = f"{progress.files_done:,}{of} files, {wording.size(progress.bytes_done)}"
        print(
            f"\r[{'#' * full}{'.' * (_COLUMNS - full)}] {self._doing} {done} of {wording.size(progress.size_bytes)}",
            end="\x1b[K",
            file=sys.stderr,
            flush=True,
        )
        self._drawn = True


# Suggests the intended name for a mistyped one.


def meant(word: str, known: Iterable[str], prefix: str = "") -> str:
    """Return a remark in brackets with the known word most like this one, after its prefix; empty if none is close."""
    from difflib import get_close_matches  # needed only after a mistake

    found = get_close_matches(word, list(known), n=1)
    return f" (did you mean {prefix}{found[0]}?)" if found else ""
