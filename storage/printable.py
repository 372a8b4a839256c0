"""Makes texts from outside safe for logs and terminals."""

from __future__ import annotations


def printable(text: str, *, keep: str = "") -> str:
    """Replace characters that control a terminal or a page: ESC, NUL, marks of the writing direction.

    Args:
        text: a name, an error, any text from outside.
        keep: control characters to keep, such as line ends.
    """
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() or each in keep else "\N{REPLACEMENT CHARACTER}" for each in text)
