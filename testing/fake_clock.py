"""A clock that a test sets."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from ..checkpoint.errors import InvalidConfigError

_FIRST = datetime(2026, 1, 1, tzinfo=UTC)


class FakeClock:
    """A clock that only the test moves; pass it to `local_epoch` as the epoch's clock.

    Args:
        now: the first moment, with a time zone.

    Raises:
        InvalidConfigError: the moment has no time zone.
    """

    def __init__(self, now: datetime = _FIRST) -> None:
        self.set(now)

    def __call__(self) -> int:
        """Return the time as Cairn reads it, in milliseconds since 1970 UTC."""
        return round(self._now.timestamp() * 1000)

    @property
    def now(self) -> datetime:
        """The clock's current moment."""
        return self._now

    def set(self, now: datetime) -> None:
        """Set the clock; also backwards, since another machine's clock may be behind.

        Raises:
            InvalidConfigError: the moment has no time zone.
        """
        if now.utcoffset() is None:
            raise InvalidConfigError(
                "a FakeClock is set to a moment with a time zone: write datetime(…, tzinfo=UTC)", now=now.isoformat()
            )
        self._now = now

    def advance(self, by: timedelta) -> None:
        """Advance the clock."""
        self.set(self._now + by)
