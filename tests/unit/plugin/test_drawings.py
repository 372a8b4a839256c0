"""Lengths in drawings: the stages of a checkpoint, and the attempts of runs."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from airflow_cairn.checkpoint.documents.attempt import StageSpec
from airflow_cairn.checkpoint.reasons import Reason
from airflow_cairn.checkpoint.views.checkpoint_list import checkpoints
from airflow_cairn.checkpoint.views.details import details
from airflow_cairn.plugin.drawings import charts
from airflow_cairn.plugin.drawings.charts import BOX, MOST, THINNEST, Mark, graph_of, marks_of, timeline
from airflow_cairn.plugin.drawings.stage_progress import WIDTH, TaskTry, bars_of, progress_of
from tests.support import jobs
from tests.support.memory_store import MemoryStore
from tests.support.narrowing import known
from tests.support.world.world import World


def test_a_stage_waited_ran_and_wrote() -> None:
    world = jobs.wide(MemoryStore(), 3)
    jobs.run(world, "a", 2)
    bars = bars_of(progress_of(details(world.coordinator(), 1), {}, 0))
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
    assert (lost.id, lost.said, lost.start) == (3, "FAILED", 0)
    assert (pending.id, pending.said, pending.start) == (4, "IN_PROGRESS", lost.width)
    assert lost.width == round((WIDTH - THINNEST) * 7 / 20)
    assert pending.start + pending.width == WIDTH - THINNEST
    assert [(line.run_id, line.segments[0].width) for line in others] == [("b", THINNEST), ("a", THINNEST)]


def test_every_run_is_drawn_the_newest_first() -> None:
    world = World()
    world.run_epoch(*(f"e{number:03d}" for number in range(13)))
    lines = timeline(checkpoints(world.coordinator()), world.clock.now_ms)
    assert [line.run_id for line in lines] == [f"e{number:03d}" for number in range(12, -1, -1)]
    assert timeline((), 0) == ()


def test_a_stage_is_drawn_right_of_all_that_it_reads() -> None:  # semantics F1
    stages = (
        StageSpec("report", ("routes", "clean")),
        StageSpec("clean"),
        StageSpec("routes", ("clean",), pipelined=("clean",)),
        StageSpec("other"),
    )
    graph = known(graph_of(stages, {"clean": Mark("completed", "acknowledged")}))
    place = {box.uid: (box.x, box.y) for box in graph.boxes}
    assert place["clean"][0] == place["other"][0] < place["routes"][0] < place["report"][0]
    assert len(set(place.values())) == 4, "no two boxes at one place"
    assert all(x + BOX[0] <= graph.width and y + BOX[1] <= graph.height for x, y in place.values())
    assert [line.pipelined for line in graph.lines] == [False, False, True]
    assert graph.regions == (("clean", "routes"),)
    assert {box.uid: box.mark.text for box in graph.boxes} == {
        "report": "",
        "clean": "acknowledged",
        "routes": "",
        "other": "",
    }


def test_one_stage_and_very_many_are_not_drawn() -> None:
    assert graph_of((StageSpec("a"),), {}) is None
    assert graph_of((), {}) is None
    many = tuple(StageSpec(f"stage_with_a_long_name_{number}") for number in range(MOST))
    graph = known(graph_of(many, {}))
    assert graph.boxes[0].name == "stage_with_a_long_n…"
    assert graph_of((*many, StageSpec("more")), {}) is None
    circle = (StageSpec("a", ("b",)), StageSpec("b", ("a",)))
    assert graph_of(circle, {}) is not None, "a stored circle is drawn somehow"


def failed_over() -> World:
    """Give a job whose stage `routes` failed after four and a half minutes, while `airports` ran."""
    world = World()
    world.trigger("a")
    world.run_stage("a", "clean")
    world.submit("a", "airports")
    world.clock.advance(timedelta(seconds=20))
    routes = world.submit("a", "routes").handover
    world.clock.advance(timedelta(seconds=270))
    world.coordinator().fail("a", "routes", routes.claimant, "ValueError: bad row")
    return world


def a_try(world: World, state: str | None, number: int = 1, *, newest: bool = True, **at_s: int) -> TaskTry:
    """Give a try of a task, with the seconds since the job began."""
    began, ended = (World().clock.now_ms + 1000 * at_s[name] if name in at_s else None for name in ("started", "ended"))
    return TaskTry("a", "epoch.any", -1, number, state, began, ended, newest)


def test_what_failed_is_told_from_what_had_begun_and_what_had_not() -> None:
    world = failed_over()
    found = details(world.coordinator(), 1)
    failed = a_try(world, "failed", newest=False, started=20, ended=290)
    progress = progress_of(found, {"routes": [failed, a_try(world, "running", 2, started=350)]}, world.clock.now_ms)
    assert {uid: mark.text for uid, mark in marks_of(progress, lambda uid: uid).items()} == {
        "clean": "acknowledged",
        "routes": "failed after 4m 30s",
        "airports": "had begun",
        "report": "had not begun",
    }
    routes = progress["routes"]
    assert (routes.waited_ms, routes.ran_ms, routes.logged) == (20_000, 270_000, failed), "the try of that attempt"
    bar = bars_of(progress)["routes"]
    assert (bar.waited + bar.ran, bar.waited) == (WIDTH, round(WIDTH * 20 / 290))


@pytest.mark.parametrize(
    ("attempt", "started", "ended", "kind", "text"),
    [
        (1, 30, 60, "failed", "failed before it began"),
        (1, -5, 2, "failed", "failed before it began"),
        (1, -99, -90, "", "had not begun"),
        (2, 20, 291, "", "had not begun"),
        (2, 295, 299, "failed", "failed before it began"),
        (2, 295, 400, "", "had not begun"),
    ],
)
def test_a_failure_before_the_claim_is_on_the_attempts_page(
    attempt: int, started: int, ended: int, kind: str, text: str
) -> None:
    """The try is of the attempt in which it started; the first stage's try starts before its own trigger."""
    world = failed_over()
    world.clock.advance(timedelta(seconds=10))
    world.coordinator().abort(2, Reason.JOB_FAILURE, "routes: ValueError: bad row")
    tried = a_try(world, "failed", started=started, ended=ended)
    progress = progress_of(details(world.coordinator(), attempt), {"report": [tried]}, world.clock.now_ms)
    report = progress["report"]
    assert (report.kind, report.text, report.ran_ms > 0) == (kind, text, kind == "failed")
    assert report.logged == (tried if started == 295 or kind == "failed" else None)


def test_a_stage_whose_failure_no_restart_follows_has_failed_too() -> None:  # semantics F4
    world = failed_over()
    claimant = world.submit("a", "routes").handover.claimant
    world.coordinator().fail("a", "routes", claimant, "ValueError: bad row", final=True, curable=False)
    found = details(world.coordinator(), 2)
    assert not found.row.detail.startswith("routes: ")
    assert found.failed_stages == {"routes"}


@pytest.mark.parametrize(
    ("begun", "state", "started", "kind", "text"),
    [
        (True, "running", 290, "running", "running for 1m 00s"),
        (True, "deferred", 290, "running", "deferred for 1m 00s"),
        (True, "up_for_retry", 290, "retry", "up for retry"),
        (True, None, 290, "", "not begun"),
        (False, "queued", None, "queued", "queued"),
        (False, "scheduled", None, "queued", "scheduled"),
        (False, "running", 340, "queued", "starting"),
        (False, "running", 20, "queued", "to run again"),
        (False, "success", 20, "queued", "to run again"),
        (False, "up_for_retry", 20, "retry", "up for retry"),
        (False, "upstream_failed", None, "failed", "upstream failed"),
        (False, "removed", None, "failed", "not in the DAG"),
        (False, None, None, "", "not begun"),
        (False, "a state of a later Airflow", None, "", "not begun"),
        (True, "a state of a later Airflow", 290, "running", "begun"),
    ],
)
def test_airflow_says_what_a_stage_waits_for(
    begun: bool, state: str | None, started: int | None, kind: str, text: str
) -> None:
    world = failed_over()
    if begun:
        world.submit("a", "routes")
    world.clock.advance(timedelta(seconds=60))
    tried = a_try(world, state, 2) if started is None else a_try(world, state, 2, started=started)
    found = progress_of(details(world.coordinator(), 2), {"routes": [tried]}, world.clock.now_ms)["routes"]
    assert (found.kind, found.text) == (kind, text)
    assert found.logged == (tried if started is not None else None), "what has not started has no log"


def test_without_a_word_of_airflow_the_store_says_what_has_begun() -> None:  # semantics O2
    world = failed_over()
    world.submit("a", "routes")
    progress = progress_of(details(world.coordinator(), 2), {}, world.clock.now_ms)
    assert {uid: (each.kind, each.text) for uid, each in progress.items()} == {
        "clean": ("kept", "kept from 1"),
        "routes": ("running", "begun"),
        "airports": ("running", "begun"),
        "report": ("", "not begun"),
    }
    assert {each.logged for each in progress.values()} == {None}


def test_a_box_says_how_far_its_stages_are(busy: World) -> None:
    busy.decline(busy.submit("c", "routes").handover, "OSError: disk full")
    coordinator = busy.coordinator()

    def marks(checkpoint: int, drawn: Callable[[str], str | None]) -> dict[str, Mark]:
        return marks_of(progress_of(details(coordinator, checkpoint), {}, 0), drawn)

    assert marks(4, lambda uid: uid) == {
        "clean": Mark("kept", "kept from 3"),
        "routes": Mark("failed", "declined"),
        "airports": Mark("", "not begun"),
        "report": Mark("", "not begun"),
    }
    assert marks(3, lambda uid: uid) == {
        "clean": Mark("completed", "acknowledged"),
        "routes": Mark("failed", "failed"),
        "airports": Mark("", "had not begun"),
        "report": Mark("", "had not begun"),
    }
    assert marks(4, lambda uid: None if uid == "routes" else "all") == {"all": Mark("", "1 of 3")}
    assert marks(2, lambda _: "all") == {"all": Mark("completed", "4 of 4")}


def test_a_bar_is_as_high_as_its_checkpoint_took_of_the_longest() -> None:
    """The oldest first; what failed, is pending, or was undone by a rewind is none of them."""
    world = World()
    for number in (1, 2, 3):
        world.trigger(f"e{number}")
        world.clock.advance(timedelta(seconds=10 * number))
        world.run_epoch(f"e{number}")
    world.trigger("e4")
    rows = checkpoints(world.coordinator())
    drawn = charts.durations(rows)
    assert [(bar.checkpoint, bar.value) for bar in drawn.bars] == [(1, 10_000), (2, 20_000), (3, 30_000)]
    assert (drawn.highest, drawn.bars[-1].height, drawn.bars[-1].y) == (30_000, charts.HEIGHT, 0)
    assert drawn.bars[0].height == round(charts.HEIGHT / 3, 1)
    assert [bar.x for bar in drawn.bars] == [0, round(charts.WIDTH / 3, 1), round(charts.WIDTH * 2 / 3, 1)]
    assert [bar.value for bar in charts.new_bytes(rows).bars] == [row.new_bytes for row in rows[:0:-1]]
    undone = [replace(row, rewound_to=1) if row.id == 3 else row for row in rows]
    assert [bar.checkpoint for bar in charts.durations(undone).bars] == [1, 2]
    assert charts.durations(()).bars == ()


def test_no_more_bars_than_can_be_seen() -> None:
    world = World()
    world.run_epoch("a")
    (row,) = checkpoints(world.coordinator())
    rows = [replace(row, id=number) for number in range(charts.MOST_BARS + 10, 0, -1)]
    drawn = charts.durations(rows)
    assert [bar.checkpoint for bar in drawn.bars] == list(range(11, charts.MOST_BARS + 11))
    last = drawn.bars[-1]
    assert last.x + last.width <= charts.WIDTH
