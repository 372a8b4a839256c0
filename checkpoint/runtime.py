"""Clock and randomness, passed to constructors, so that every decision can be replayed."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Runtime:
    """Clock and token source of the domain, which may not use the system's directly."""

    now_ms: Callable[[], int]
    """Wall clock, milliseconds since 1970 UTC. Used for expiry and display, never to order or to identify."""
    new_token: Callable[[], str]
    """A fresh unguessable name part of 16 lower-case hex digits (semantics W4)."""


def system_runtime() -> Runtime:
    """Give the real clock and the operating system's randomness."""
    return Runtime(now_ms=lambda: time.time_ns() // 1_000_000, new_token=lambda: secrets.token_hex(8))
