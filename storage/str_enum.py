"""`StrEnum`, also for a driver on Python 3.10: each member prints as its text."""

from __future__ import annotations

import sys

__all__ = ["StrEnum"]

if sys.version_info >= (3, 11):
    from enum import StrEnum
else:
    from enum import Enum

    class StrEnum(str, Enum):
        """The same as Python 3.11's, for members with explicit texts."""

        __str__ = str.__str__  # Enum's own `__format__` goes by it
