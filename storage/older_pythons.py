"""Substitutes for what Python 3.10 in a driver lacks: `StrEnum`, and the reading of all ISO 8601 texts."""

from __future__ import annotations

import re
import sys
from datetime import datetime

__all__ = ["StrEnum"]

if sys.version_info >= (3, 11):
    from enum import StrEnum
else:
    from enum import Enum

    class StrEnum(str, Enum):
        """Python 3.11's, for members with explicit texts."""

        __str__ = str.__str__  # Enum's own `__format__` goes by it


_MOMENT = re.compile(
    r"(?P<year>\d{4})-?(?P<month>\d\d)-?(?P<day>\d\d)"
    r"(?:.(?P<hour>\d\d)(?::?(?P<minute>\d\d)(?::?(?P<second>\d\d)(?:[.,](?P<fraction>\d+))?)?)?"
    r"(?:(?P<utc>Z)|(?P<sign>[+-])(?P<hours>\d\d)(?::?(?P<minutes>\d\d)(?::?(?P<seconds>\d\d))?)?)?)?",
    re.ASCII | re.DOTALL,
)


def moment_of(text: str) -> datetime:
    """Parse a moment; it has a time zone if the text has one."""
    return datetime.fromisoformat(text if sys.version_info >= (3, 11) else written_out(text))


def written_out(text: str) -> str:
    """Format a moment in the one form that Python 3.10 reads; return any other text unchanged."""
    found = _MOMENT.fullmatch(text)
    if found is None:
        return text
    part = found.groupdict("00")
    fraction = (found["fraction"] or "").ljust(6, "0")[:6]
    moment = "{year}-{month}-{day}T{hour}:{minute}:{second}".format(**part) + f".{fraction}"
    if found["utc"]:
        return f"{moment}+00:00"
    return moment + "{sign}{hours}:{minutes}:{seconds}".format(**part) if found["sign"] else moment
