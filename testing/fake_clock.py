"""A clock that a test sets."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from ..checkpoint.errors import InvalidConfigError

_FIRST = datetime(2026, 1, 1, tzinfo=UTC)


class FakeClock:
    """A clock that stands still until the test moves it; given to `local_epoch`, it is the epoch's clock.

    Args:
        now: where it stands at first, with a time zone.

    Raises:
        InvalidConfigError: the moment has no time zone.
    """

    def __init__(self, now: datetime = _FIRST) -> None:
        self.set(now)

    def __call__(self) -> int:
        """Give the time as Cairn reads it, milliseconds since 1970 UTC."""
        return round(self._now.timestamp() * 1000)

    @property
    def now(self) -> datetime:
        """Where it stands."""
        return self._now

    def set(self, now: datetime) -> None:
        """Set it; back too, as the clock of another machine may be behind.

        Raises:
            InvalidConfigError: the moment has no time zone.
        """
        if now.utcoffset() is None:
            raise InvalidConfigError(
                "a FakeClock is set to a moment with a time zone: write datetime(…, tzinfo=UTC)", now=now.isoformat()
            )
        self._now = now

    def advance(self, by: timedelta) -> None:
        """Move it on."""
        self.set(self._now + by)
