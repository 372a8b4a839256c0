"""Windows of a schedule: no gap, no overlap, whatever happens in between (semantics S2)."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_cairn.plugin.timetable import GRACE, INSTANT, Bounds, Window, first_window, window_after
from tests.support.narrowing import known

DAY = datetime(2026, 3, 29, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)

moments = st.integers(0, 2_000_000_000).map(lambda seconds: datetime.fromtimestamp(seconds, UTC))
spans = st.timedeltas(timedelta(seconds=1), timedelta(days=40))


def whole(length: timedelta, part: int) -> timedelta:
    return max(timedelta(seconds=1), length * part // 100)


@given(moments, spans, st.integers(0, 100), st.booleans(), st.data())
def test_windows_meet_each_other(
    start: datetime, interval: timedelta, part: int, catchup: bool, data: st.DataObject
) -> None:
    """semantics S2: over any row of runs, whenever the scheduler looks; a manual run changes nothing it looks at."""
    delay = whole(interval, part)
    bounds = Bounds(earliest=start, catchup=catchup)
    now = start + data.draw(spans)
    window = known(first_window(delay, interval, bounds, now))
    assert window.end - window.start in ({delay} if catchup or window.start == start else {interval})
    for _ in range(data.draw(st.integers(0, 8))):
        now += data.draw(spans)
        after = known(window_after(window, delay, interval, bounds, now))
        assert after.start == window.end
        count, rest = divmod(after.end - after.start, interval)
        assert (count >= 1, rest) == (True, timedelta(0))
        if catchup:
            assert count == 1
        elif count > 1:
            assert after.end <= now < after.end + interval
        window = after


@given(moments, spans, st.integers(1, 100), st.timedeltas(timedelta(0), timedelta(days=300)), spans)
def test_what_was_missed_reaches_as_far_in_one_run_as_in_many(
    start: datetime, interval: timedelta, part: int, until: timedelta, away: timedelta
) -> None:
    """semantics S2: with an end date too."""
    interval = max(interval, HOUR)
    delay, now = whole(interval, part), start + until + away
    one_by_one = Bounds(earliest=start, latest=start + until)
    begun = known(first_window(delay, interval, one_by_one, now))
    window: Window | None = begun
    many = []
    while window is not None and window.end <= now:
        many.append(window)
        window = window_after(window, delay, interval, one_by_one, now)
    found = window_after(begun, delay, interval, replace(one_by_one, catchup=False), now)
    if len(many) > 1:
        assert found == Window(begun.end, many[-1].end)
    else:
        assert found == window_after(begun, delay, interval, one_by_one, now)


@given(moments, moments, spans, st.integers(1, 100), st.timedeltas(timedelta(0), timedelta(days=2)))
def test_a_first_run_waits_for_whoever_creates_it(
    start: datetime, now: datetime, interval: timedelta, part: int, later: timedelta
) -> None:
    """semantics S2: looking again, as each parse of the file does, keeps the run for a while after it has come due."""
    bounds = Bounds(earliest=start, catchup=False)
    found = known(first_window(whole(interval, part), interval, bounds, now))
    assert found.end > now - min(GRACE, interval / 2)
    assert found.start == start or found.end - interval <= now - min(GRACE, interval / 2)
    again = known(first_window(whole(interval, part), interval, bounds, now + later))
    if now + later < found.end + min(GRACE, interval / 2):
        assert again == found
    else:
        assert (again.start - found.end) % interval == timedelta(0)


def test_two_jobs_that_start_together_keep_their_distance() -> None:  # semantics S2
    bounds = Bounds(earliest=DAY)
    late, soon = (first_window(delay, HOUR, bounds, DAY) for delay in (50 * MINUTE, 5 * MINUTE))
    for _ in range(30):
        assert late is not None
        assert soon is not None
        assert late.end - soon.end == 45 * MINUTE
        late, soon = (window_after(each, HOUR, HOUR, bounds, DAY) for each in (late, soon))


def test_without_a_start_date_the_schedule_stands_all_the_same() -> None:  # semantics S2
    """Each process finds the same windows, also after a restart."""
    assert first_window(MINUTE, HOUR, Bounds(), DAY) is None
    found = [first_window(7 * MINUTE, HOUR, Bounds(catchup=False), DAY + minutes * MINUTE) for minutes in (0, 6, 11)]
    assert found == [Window(DAY - 53 * MINUTE, DAY + 7 * MINUTE)] * 3
    after = first_window(7 * MINUTE, HOUR, Bounds(catchup=False), DAY + 12 * MINUTE)
    assert after == Window(DAY + 7 * MINUTE, DAY + 67 * MINUTE)


def test_the_end_date_ends_it() -> None:
    bounds = Bounds(earliest=DAY, latest=DAY + HOUR)
    last = Window(DAY, DAY + HOUR)
    assert window_after(last, HOUR, HOUR, bounds, DAY) == Window(DAY + HOUR, DAY + 2 * HOUR)
    assert window_after(last, HOUR, HOUR, replace(bounds, latest=DAY + HOUR - INSTANT), DAY) is None
    assert first_window(HOUR, HOUR, replace(bounds, earliest=DAY + HOUR + INSTANT), DAY) is None


@pytest.mark.parametrize("catchup", [True, False])
def test_a_start_date_that_moved_on_begins_anew(catchup: bool) -> None:
    bounds = Bounds(earliest=DAY + 3 * HOUR, catchup=catchup)
    found = window_after(Window(DAY, DAY + HOUR), MINUTE, HOUR, bounds, DAY + HOUR)
    assert found == Window(DAY + 3 * HOUR, DAY + 3 * HOUR + MINUTE)


def test_a_run_without_length_is_passed() -> None:
    """Airflow tells runs apart by where they start: one that started there again would never be made."""
    found = window_after(Window(DAY, DAY), HOUR, HOUR, Bounds(earliest=DAY), DAY)
    assert found == Window(DAY + INSTANT, DAY + INSTANT + HOUR)


def test_another_interval_counts_from_the_last_run_on() -> None:  # semantics S2
    found = window_after(Window(DAY, DAY + HOUR), MINUTE, 7 * MINUTE, Bounds(earliest=DAY), DAY)
    assert found == Window(DAY + HOUR, DAY + HOUR + 7 * MINUTE)
