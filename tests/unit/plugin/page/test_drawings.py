"""What is drawn has the right lengths: the stages of a checkpoint, and the attempts of runs."""

from __future__ import annotations

from datetime import timedelta

from airflow_cairn.checkpoint.views.checkpoint_list import checkpoints
from airflow_cairn.checkpoint.views.details import details
from airflow_cairn.plugin.page.stage_bars import WIDTH, bars_of
from airflow_cairn.plugin.page.timeline import LINES, THINNEST, timeline
from tests.support import jobs
from tests.support.memory_store import MemoryStore
from tests.support.world.world import World


def test_a_stage_waited_ran_and_wrote() -> None:
    world = jobs.wide(MemoryStore(), 3)
    jobs.run(world, "a", 2)
    bars = bars_of(details(world.coordinator(), 1))
    first, second, last = (bars[f"flights.stage_{number:02d}"] for number in range(3))
    # 2.0, 3.7 and 5.4 s one after another; a third of each, and a twentieth, is writing.
    assert first.waited == 0
    assert first.waited + first.ran + first.wrote == round(WIDTH * 2.0 / 11.1)
    assert second.waited == first.ran + first.wrote
    assert last.waited + last.ran + last.wrote == WIDTH
    assert last.wrote == round(WIDTH * 5.4 * (1 / 3 + 1 / 20) / 11.1)


def test_a_line_has_its_attempts_one_after_another(busy: World) -> None:
    busy.clock.advance(timedelta(seconds=13))
    newest, *others = timeline(checkpoints(busy.coordinator()), busy.clock.now_ms)
    assert newest.run_id == "c"
    lost, pending = newest.segments
    assert (lost.id, lost.status, lost.start) == (3, "FAILED", 0)
    assert (pending.id, pending.status, pending.start) == (4, "PENDING", lost.width)
    assert lost.width == round((WIDTH - THINNEST) * 7 / 20)
    assert pending.start + pending.width == WIDTH - THINNEST
    assert [(line.run_id, line.segments[0].width) for line in others] == [("b", THINNEST), ("a", THINNEST)]


def test_the_newest_runs_are_drawn() -> None:
    world = World()
    for number in range(LINES + 3):
        world.run_epoch(f"e{number:03d}")
    lines = timeline(checkpoints(world.coordinator()), world.clock.now_ms)
    assert [line.run_id for line in lines] == [f"e{number:03d}" for number in range(LINES + 2, 2, -1)]
    assert timeline((), 0) == ()
