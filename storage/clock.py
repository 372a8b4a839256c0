"""All access to the outside world: waiting, time, randomness and fresh ids.

All else gets these by constructor, so that tests can replace them. The linter refuses the system's own.
"""

from __future__ import annotations

import secrets  # noqa: TID251 - the one place of this package that draws randomness
import time
from collections.abc import Callable

from .records import dataclass

Sleeper = Callable[[float], None]
"""Waits for a number of seconds."""

Clock = Callable[[], float]
"""Returns the time in seconds since 1970 UTC."""

Fraction = Callable[[], float]
"""Draws a number from [0, 1)."""

TokenSource = Callable[[], str]
"""Makes a token that was never made before."""

_RESOLUTION = 1 << 53


def system_sleep(seconds: float) -> None:
    """Wait. An error raised by a signal's handler, such as at Ctrl-C, propagates unchanged.

    `Event().wait` may turn it into a RuntimeError, because its Python code releases a lock before it guards it.
    """
    time.sleep(seconds)  # noqa: TID251 - the one place of this package that waits


def system_time() -> float:
    """Return the time. It bounds waits and is shown to people; it orders nothing."""
    return time.time()  # noqa: TID251 - the one place of this package that looks at the clock


def system_fraction() -> float:
    """Draw a number from [0, 1) from the system's source, so that forked processes never draw the same."""
    return secrets.randbelow(_RESOLUTION) / _RESOLUTION


def new_token() -> str:
    """Make a token of 128 random bits: 32 hexadecimal digits."""
    return secrets.token_hex(16)


@dataclass(frozen=True, slots=True)
class Runtime:
    """Clock and token source of a coordinator, which may not use the system's directly: decisions can be replayed."""

    now_ms: Callable[[], int]
    """Wall clock, milliseconds since 1970 UTC. Used for expiry and display, never to order or to identify."""
    new_token: Callable[[], str]
    """A fresh unguessable name part of 16 lower-case hex digits (semantics W4)."""


def system_runtime() -> Runtime:
    """Return the real clock and the operating system's randomness."""
    return Runtime(
        now_ms=lambda: time.time_ns() // 1_000_000,  # noqa: TID251 - as system_time
        new_token=lambda: secrets.token_hex(8),
    )
