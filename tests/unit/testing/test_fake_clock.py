"""The clock that a test sets."""

from datetime import UTC, datetime, timedelta

import pytest

from airflow_cairn.checkpoint import InvalidConfigError
from airflow_cairn.testing import FakeClock


def test_it_stands_until_it_is_moved() -> None:
    clock = FakeClock(datetime(1970, 1, 1, 0, 0, 2, tzinfo=UTC))
    assert (clock(), clock()) == (2000, 2000)
    clock.advance(timedelta(milliseconds=5))
    assert clock() == 2005
    clock.set(datetime(1970, 1, 1, 1, tzinfo=UTC))
    assert clock.now == datetime(1970, 1, 1, 1, tzinfo=UTC)


def test_a_moment_without_a_zone_is_refused() -> None:
    with pytest.raises(InvalidConfigError, match=r"with a time zone.*tzinfo=UTC.*2026-01-01T00:00:00"):
        FakeClock(datetime(2026, 1, 1))  # noqa: DTZ001 - that is what is wrong with it
