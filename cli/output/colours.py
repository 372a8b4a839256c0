"""Colours of states and errors: on a terminal only, and not where the user has set `NO_COLOR` (no-color.org)."""

from __future__ import annotations

import os
import re
from typing import TextIO

_RED, _GREEN, _YELLOW = 31, 32, 33
_COLOURS = {
    "COMPLETED": _GREEN,
    "PENDING": _YELLOW,
    "WARNING": _YELLOW,
    "FAILED": _RED,
    "DAMAGED": _RED,
    "BROKEN": _RED,
    "ERROR": _RED,
}
_WORD = re.compile(rf"(?<![\w-])(?:{'|'.join(_COLOURS)})(?![\w-])")


def are_wanted(stream: TextIO) -> bool:
    """Tell whether a stream is a terminal whose user has colours."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def painted(line: str, stream: TextIO) -> str:
    """Give a line with its states in colours, where the stream has any. Nothing may be cut off it afterwards."""
    if not are_wanted(stream):
        return line
    return _WORD.sub(lambda found: _in(_COLOURS[found[0]], found[0]), line)


def alarming(word: str, stream: TextIO) -> str:
    """Give a word in the colour of an error, where the stream has any."""
    return _in(_RED, word) if are_wanted(stream) else word


def _in(colour: int, word: str) -> str:
    return f"\x1b[{colour}m{word}\x1b[0m"
