"""Texts from outside, made fit for logs and terminals."""

from __future__ import annotations


def printable(text: str, *, keep: str = "") -> str:
    """Replace what a terminal or a page would take for a command: ESC, NUL, marks that turn the writing direction.

    Args:
        text: names, errors, whatever comes from outside.
        keep: control characters that are meant, such as a line's end.
    """
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() or each in keep else "\N{REPLACEMENT CHARACTER}" for each in text)
