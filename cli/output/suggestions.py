"""What a user may have meant who mistyped a name."""

from __future__ import annotations

from collections.abc import Iterable


def meant(word: str, known: Iterable[str], prefix: str = "") -> str:
    """Give a remark in brackets that names the known word most like this one, after its prefix; empty if none is."""
    from difflib import get_close_matches  # only a mistake needs it

    found = get_close_matches(word, list(known), n=1)
    return f" (did you mean {prefix}{found[0]}?)" if found else ""
