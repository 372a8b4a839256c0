"""Inputs of an epoch on this machine."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from airflow_cairn.checkpoint import InvalidConfigError, Slice, StageSpec
from airflow_cairn.testing.epochs import LocalJob, window_of

ONE = "2026-01-01T00:00:00+00:00"


def test_moments_are_texts_or_datetimes() -> None:
    assert window_of(datetime(2026, 1, 1, tzinfo=UTC), ONE, {"a": 1}) == Slice(ONE, ONE, {"a": 1})
    assert window_of(None, None, None) == Slice()


@pytest.mark.parametrize("moment", ["yesterday", "2026-01-01", datetime(2026, 1, 1), 5])  # noqa: DTZ001
def test_another_moment_is_refused(moment: object) -> None:
    with pytest.raises(InvalidConfigError, match="end must be a moment with a time zone"):
        window_of(None, moment, None)  # type: ignore[arg-type]


def test_a_window_does_not_end_before_it_starts() -> None:
    with pytest.raises(InvalidConfigError, match="ends before it starts"):
        window_of("2026-01-02T00:00:00+00:00", ONE, None)


def test_a_window_is_read_once(tmp_path: Path) -> None:
    job, window, stages = LocalJob(tmp_path), window_of(ONE, "2026-01-02T00:00:00+00:00", None), [StageSpec("a")]
    job.trigger("one", stages, window)
    submit = job.begin("one", "a")
    assert (submit.handover.slice.start, submit.handover.slice.end) == (window.start, window.end)
    with pytest.raises(InvalidConfigError, match=r"cannot begin.*window of its own.*answer=`Declined`"):
        job.trigger("two", stages, window)


def test_files_are_given_as_a_source_gives_them(tmp_path: Path) -> None:
    """The epoch after it may have no files."""
    job, stages = LocalJob(tmp_path), [StageSpec("a")]
    job.trigger("one", stages, Slice(), [tmp_path / "a.csv", "s3a://lake/b.csv"])
    submit = job.begin("one", "a")
    assert [each["url"] for each in (submit.handover.slice.sources or {})["files"]["files"]] == [
        f"file://{tmp_path}/a.csv",
        "s3a://lake/b.csv",
    ]
