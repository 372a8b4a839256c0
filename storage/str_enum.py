"""`StrEnum`, for a driver on Python 3.10 too: its members are their texts, however they are printed."""

from __future__ import annotations

import sys

__all__ = ["StrEnum"]

if sys.version_info >= (3, 11):
    from enum import StrEnum
else:
    from enum import Enum

    class StrEnum(str, Enum):
        """As that of Python 3.11, for members whose texts are written out."""

        __str__ = str.__str__  # Enum's own `__format__` goes by it
