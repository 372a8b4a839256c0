"""The watermark of a stage: the least of its inputs, never back, and state (semantics K6)."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_cairn.checkpoint.errors import InvalidStateError
from airflow_cairn.spark.event_time import moments
from airflow_cairn.spark.event_time.watermark import INPUTS, STAGE, Mark, StageWatermark, least
from airflow_cairn.storage.errors import DocumentError

TIMES = st.none() | st.integers(-100, 100)


def again(before: StageWatermark, *upstream: str) -> StageWatermark:
    """Give the stage's watermark in the next epoch, from what was kept."""
    kept = before.values()
    return StageWatermark("routes", upstream, kept.get(STAGE), kept.get(INPUTS))


def of(*upstream: str) -> StageWatermark:
    return StageWatermark("routes", upstream)


def test_a_stage_without_event_time_keeps_nothing() -> None:  # semantics K6
    mark = of("clean")
    mark.read({"clean": None})
    assert mark.ask() is None
    assert mark.values() == {}


def test_the_least_of_sources_and_upstreams_counts() -> None:  # semantics K6
    mark = of("clean", "refunds", "airports")
    mark.source("files", 30)
    mark.read({"clean": {"at": 20, "idle": False}})
    mark.read({"clean": {"at": 90, "idle": False}, "refunds": {"at": 25, "idle": False}, "airports": None})
    assert mark.held_back_by() == ["stage clean"]
    assert mark.ask() == 20, "what was read of an upstream first stays for the epoch"
    after = again(mark, "clean", "refunds")
    assert after.at_start == 20
    after.source("files", 40)
    after.read({"refunds": {"at": 50, "idle": False}})
    assert after.ask() == 20, "an upstream that is not read in an epoch holds it back"


def test_the_watermark_of_an_upstream_never_goes_back() -> None:  # semantics K6
    mark = of("clean")
    mark.source("files", 30)
    mark.read({"clean": {"at": 50, "idle": False}})
    after = again(mark, "clean")
    after.source("files", 60)
    after.read({"clean": {"at": 20, "idle": False}})
    assert after.ask() == 50


def test_an_input_without_any_row_so_far_holds_back() -> None:  # semantics K6
    mark = of("clean")
    mark.source("files", 30)
    mark.read({"clean": {"at": None, "idle": False}})
    assert mark.ask() is None
    assert mark.held_back_by() == ["stage clean"]
    assert mark.values()[STAGE] == {"at": None, "idle": False}


def test_an_upstream_that_the_dag_no_longer_names_holds_nothing_back() -> None:
    mark = of("clean", "refunds")
    mark.read({"clean": {"at": 10, "idle": False}, "refunds": {"at": 50, "idle": False}})
    assert again(mark, "clean", "refunds").ask() == 10
    assert again(mark, "refunds").ask() == 50


@given(st.lists(st.dictionaries(st.sampled_from("abc"), TIMES, min_size=1), min_size=1, max_size=12))
def test_it_never_goes_back_and_a_retry_gives_the_same(epochs: list[dict[str, int | None]]) -> None:  # semantics K6
    mark, last, seen = of(), None, dict[str, int]()
    for epoch in epochs:
        retried = again(mark)
        for source, at in epoch.items():
            # A first try that read something else, and failed.
            retried.source(source, None if at is None else at + 1000)
        retried.ask()
        mark = again(mark)
        for source, at in epoch.items():
            mark.source(source, at)
            seen[source] = max(seen.get(source, -1000), -1000 if at is None else at)
        now = mark.ask()
        lowest = min(seen.values())
        assert now == (None if lowest == -1000 and last is None else max(lowest, -1000 if last is None else last))
        assert last is None or (now is not None and now >= last)
        last = now


def test_an_idle_source_does_not_hold_back_and_comes_back() -> None:  # semantics K6
    mark = of()
    mark.source("a", 10)
    mark.source("b", 50)
    for epoch, expected in ((1, 10), (2, 60), (3, 60)):
        mark = again(mark)
        mark.source("a", None, idle_after=2)
        mark.source("b", 50 + 10 * min(epoch, 1), idle_after=2)
        assert mark.ask() == expected
    mark = again(mark)
    mark.source("a", 20, idle_after=2)
    mark.source("b", 70)
    assert mark.ask() == 60, "it is back, and late"
    mark = again(mark)
    mark.source("a", None, idle_after=2)
    mark.source("b", 80)
    assert mark.held_back_by() == ["source a"], "the count of quiet epochs begins anew"


def test_where_all_are_idle_the_furthest_counts_and_readers_do_not_wait() -> None:  # semantics K6
    mark = of()
    mark.source("a", 10)
    mark.source("b", 50)
    mark = again(mark)
    mark.source("a", None, idle_after=1)
    mark.source("b", None, idle_after=1)
    assert mark.values()[STAGE] == {"at": 50, "idle": True}
    reader = of("routes", "clean")
    reader.read({"routes": mark.values()[STAGE], "clean": {"at": 90, "idle": False}})
    assert reader.ask() == 90


@given(st.lists(st.builds(Mark, TIMES, st.booleans())))
def test_the_least_lies_among_those_awake(marks: list[Mark]) -> None:
    found = least(marks)
    awake = [mark.at for mark in marks if not mark.idle]
    if awake and None not in awake:
        assert found == Mark(min(at for at in awake if at is not None))
    if None in awake:
        assert found == Mark()
    assert found.idle == (bool(marks) and not awake)


def test_inputs_after_the_watermark_was_asked_for_are_refused() -> None:  # semantics K6
    mark = of("clean", "airports")
    mark.source("files", 1)
    assert mark.ask() == 1
    with pytest.raises(InvalidStateError, match="asked for before this input was read"):
        mark.source("more", 1)
    mark.read({"airports": None})
    with pytest.raises(InvalidStateError, match="asked for before this input was read"):
        mark.read({"clean": {"at": 1, "idle": False}})
    with pytest.raises(InvalidStateError, match=r"'files' was given before in this epoch.*stage=`routes`"):
        mark.source("files", 1)


def test_a_source_that_is_dropped_holds_nothing_back() -> None:
    mark = of()
    mark.source("old", 1)
    mark.source("new", 5)
    with pytest.raises(InvalidStateError, match="'old' cannot be dropped: it was given in this epoch"):
        mark.forget("old")
    mark = again(mark)
    with pytest.raises(InvalidStateError, match=r"'gone' cannot be dropped: it is not there.*sources=`new, old`"):
        mark.forget("gone")
    mark.forget("old")
    mark.source("new", 7)
    assert mark.ask() == 7
    assert list(again(mark).values()[INPUTS]) == ["source.new"]


def test_a_moment_that_lies_before_the_watermark_is_refused() -> None:  # semantics K6
    mark = of()
    mark.check_forward("main", -5)
    mark.source("main", moments.micros_of(datetime(2026, 1, 2, tzinfo=UTC)))
    after = again(mark)
    after.check_forward("main", moments.micros_of(datetime(2026, 1, 2, tzinfo=UTC)))
    with pytest.raises(
        InvalidStateError, match=r"never goes back: .*2026-01-02T00:00:00\+00:00, and 2026-01-01T23:59:59\+00:00"
    ):
        after.check_forward("main", moments.micros_of(datetime(2026, 1, 1, 23, 59, 59, tzinfo=UTC)))


@pytest.mark.parametrize(
    "broken", ["text", 3, {"at": "now"}, {"at": 1, "idle": 0}, {"at": True}, {"moment": 1}, [], {"at": 2**63}]
)
def test_what_is_no_watermark_is_refused(broken: Any) -> None:
    with pytest.raises(DocumentError, match="watermark"):
        StageWatermark("routes", (), broken)
    with pytest.raises(DocumentError, match="watermark"):
        StageWatermark("routes", (), None, {"source.main": broken})
    with pytest.raises(DocumentError, match="watermark"):
        of("clean").read({"clean": broken})
    if not isinstance(broken, dict):
        with pytest.raises(DocumentError, match="watermark"):
            StageWatermark("routes", (), None, broken)


@given(st.datetimes())
def test_moments_come_back(moment: datetime) -> None:
    aware = moment.replace(tzinfo=UTC)
    assert moments.moment_of(moments.micros_of(aware)) == aware
    assert moments.micros_of(moment) == moments.micros_of(aware), "without a zone it is UTC"


def test_another_zone_is_the_same_moment() -> None:
    there = datetime(2026, 1, 1, 12, tzinfo=timezone(timedelta(hours=5)))
    assert moments.micros_of(there) == moments.micros_of(datetime(2026, 1, 1, 7, tzinfo=UTC))


@pytest.mark.parametrize("length", ["10 minutes", 5, None, timedelta(seconds=-1)])
def test_what_is_no_length_of_time_is_refused(length: object) -> None:
    with pytest.raises(InvalidStateError, match="the delay must be a timedelta, not negative, and is"):
        moments.length_of("the delay", length, may_be_nothing=True)
    assert moments.length_of("the delay", timedelta(0), may_be_nothing=True) == 0
    with pytest.raises(InvalidStateError, match="longer than nothing"):
        moments.length_of("it", timedelta(0), may_be_nothing=False)
