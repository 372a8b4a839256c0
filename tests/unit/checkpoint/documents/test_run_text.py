"""Beside the id of a run stands the input that it reads, where the store says what that is (semantics T8, O1)."""

from dataclasses import replace

import pytest

from airflow_cairn.checkpoint.documents.attempt import Slice, run_of_slice, run_text
from airflow_cairn.checkpoint.documents.head import run_of_head
from airflow_cairn.checkpoint.documents.read_windows import WindowText, window_of
from airflow_cairn.checkpoint.views.checkpoint_list import checkpoints, jobs
from tests.support.narrowing import known
from tests.support.world.saved import saved
from tests.support.world.savepoints import asked, take
from tests.support.world.world import CONFIG, World

DAY = "2026-01-01T00:00:00+00:00"
NEXT = "2026-01-02T00:00:00+00:00"
RUN = "scheduled__2026-01-02T00:00:00+00:00"


@pytest.mark.parametrize(
    ("start", "end", "said"),
    [
        (DAY, NEXT, "2026-01-01 to 2026-01-02"),
        (DAY, "2026-01-01T01:00:00+00:00", "2026-01-01 00:00 to 01:00"),
        ("2026-01-01T23:00:00+00:00", NEXT, "2026-01-01 23:00 to 2026-01-02 00:00"),
        ("2026-01-01T02:00:00+02:00", "2026-01-01T02:00:30+02:00", "2026-01-01 00:00 to 00:00:30"),
        (None, NEXT, "the beginning to 2026-01-02"),
        (None, "2026-01-01T01:00:00+00:00", "the beginning to 2026-01-01 01:00"),
    ],
)
def test_a_window_in_a_few_characters(start: str | None, end: str, said: str) -> None:
    window = known(window_of(start, end))
    assert window.short == said


def test_a_run_with_and_without_its_input() -> None:
    assert run_text(RUN, None) == RUN
    assert run_text(RUN, WindowText(NEXT, DAY)) == f"{RUN} (input 2026-01-01 to 2026-01-02)"
    assert run_of_slice("e1", Slice(DAY, NEXT)) == "e1 (input 2026-01-01 to 2026-01-02)"
    assert run_of_slice("e1", Slice(detail={"files": 3})) == "e1", "it reads no window"
    assert run_of_slice("e1", Slice(DAY, NEXT, sources={"files": {}})) == "e1", "its source chooses what it reads"


def test_a_job_says_what_its_runs_read() -> None:
    """Input is shown while the checkpoint is pending, when it has failed, and when it has completed."""
    world = World(config=replace(CONFIG, retained=1))
    world.read_days("e1", "e2", "e3")
    first, second, third = (WindowText(each.end or "", each.start) for each in world.slices.values())
    world.run_epoch("e1", "e2")
    world.trigger("e3")
    world.decline(world.submit("e3", "clean").handover)
    world.coordinator().progress("e3")
    world.trigger("e3")
    head = world.coordinator().head()
    assert [head.window_of(epoch) for epoch in ("e1", "e2", "e3", "e4")] == [first, second, third, None]
    assert [row.input for row in checkpoints(world.coordinator())] == [third, third, second, first]
    (job,) = jobs(world.store)
    assert (job.latest_run_id, job.latest_input) == ("e2", second)
    assert run_of_head(head, "e3") == "e3 (input 2026-01-03 to 2026-01-04)"


def test_a_savepoint_and_the_job_that_starts_from_it_keep_it() -> None:
    world = World()
    world.read_days("e1", "e2")
    world.run_epoch("e1")
    assert take(world).window == WindowText(NEXT, DAY)
    folder = saved(world)
    world.trigger("e2")
    assert take(world, asked("another")).window is None, "it waits"
    world.run_epoch("e2")
    assert take(world, asked("another")).window == WindowText("2026-01-03T00:00:00+00:00", NEXT)
    other = World()
    other.coordinator().start_from(folder)
    (completed,) = other.coordinator().head().completed
    assert completed.window == WindowText(NEXT, DAY)
