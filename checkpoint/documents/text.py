"""Texts that the head keeps for users to read."""

from __future__ import annotations

from ...storage.printable import printable
from ..masking import masked

MAX_DETAIL = 500
"""Characters of a failure's detail that the head keeps."""


def one_line(text: str) -> str:
    """Shorten a text for the head: one line, at most `MAX_DETAIL` characters, without secrets."""
    line = printable(masked(" ".join(text.encode("utf-8", "replace").decode().split())))
    return line if len(line) <= MAX_DETAIL else line[: MAX_DETAIL - 1] + "…"
