"""The real world as this package sees it: waiting, randomness and fresh ids, in one place.

Everything else in `storage/` takes these by constructor, so that a test can hold them still. The linter refuses
`time.sleep`, `random` and `uuid` everywhere but here.
"""

from __future__ import annotations

import secrets  # noqa: TID251 - the one place of this package that draws randomness
import time
from collections.abc import Callable

Sleeper = Callable[[float], None]
"""Waits for so many seconds."""

Fraction = Callable[[], float]
"""Draws a number from [0, 1)."""

TokenSource = Callable[[], str]
"""Makes a token that was never made before."""

_RESOLUTION = 1 << 53


def system_sleep(seconds: float) -> None:
    """Wait. What a signal's handler raises, such as at Ctrl-C, comes out as it is.

    `Event().wait` may turn it into a RuntimeError, because its Python code releases a lock before it watches over it.
    """
    time.sleep(seconds)  # noqa: TID251 - the one place of this package that waits


def system_fraction() -> float:
    """Draw a number from [0, 1), from the system's own source, so that forked processes never draw the same."""
    return secrets.randbelow(_RESOLUTION) / _RESOLUTION


def new_token() -> str:
    """Make a token of 128 random bits: 32 hexadecimal digits."""
    return secrets.token_hex(16)
