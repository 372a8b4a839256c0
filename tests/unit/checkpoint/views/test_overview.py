"""A job at a glance: what needs a person comes first, with what to do (semantics O1, O2)."""

import json
from dataclasses import replace
from datetime import timedelta

import pytest

from airflow_cairn.checkpoint import FixedDelayRestart
from airflow_cairn.checkpoint.documents.attempt import Owner
from airflow_cairn.checkpoint.documents.read_windows import ReadWindows, WindowText
from airflow_cairn.checkpoint.views.overview import PENDING, Alarm, alarms, overview
from airflow_cairn.checkpoint.views.wording import moment
from tests.support.narrowing import known
from tests.support.shut_down import shut_down
from tests.support.world.world import CONFIG, JOB, TIMEOUT, World

LAKE = "s3://lake/cairn"


@pytest.fixture
def busy() -> World:
    """Two completed checkpoints, one that failed over, and its next attempt half-way."""
    world = World(config=replace(CONFIG, restart_strategy=FixedDelayRestart(3)))
    world.run_epoch("a", "b")
    world.trigger("c")
    world.run_stage("c", "clean")
    routes = world.submit("c", "routes").handover
    world.coordinator().fail("c", "routes", routes.claimant, "ValueError: bad row")
    return world


def said(world: World, after: timedelta = timedelta(0)) -> tuple[Alarm, ...]:
    return alarms(overview(world.coordinator()), LAKE, world.clock.now_ms + after // timedelta(milliseconds=1))


def test_what_is_waited_for_is_a_note(busy: World) -> None:
    assert said(busy, timedelta(minutes=3)) == (
        Alarm(
            "note",
            "Checkpoint 4 waits for `routes`, `airports`, `report` (1 of 4 stages have acknowledged); it was triggered "
            "3m 00s ago. The attempt before it ended: routes: ValueError: bad row. "
            "Its epoch has had 1 restart, 2 left.",
            run_id="c",
            stages=("routes", "airports", "report"),
        ),
    )


def test_without_a_restart_strategy_the_attempt_is_counted() -> None:
    """Airflow's own retries open the attempts."""
    world = World()
    world.trigger("a")
    assert "This is attempt" not in said(world)[0].text
    for attempt in (2, 3):
        clean = world.submit("a", "clean").handover
        world.coordinator().fail("a", "clean", clean.claimant, "ValueError: bad row")
        ended = " The attempt before it ended: clean: ValueError: bad row."
        assert said(world)[0].text.endswith(f"{ended} This is attempt {attempt} of its epoch.")


def test_the_next_try_is_announced_until_it_begins(busy: World) -> None:  # semantics F4
    at = moment(busy.clock.now_ms + 1_000)
    (alarm,) = said(busy)
    assert alarm.text.endswith(f" Its epoch has had 1 restart, 2 left. The next try begins at {at} (in 1.0s).")
    assert alarm.at_ms == busy.clock.now_ms + 1_000
    (alarm,) = said(busy, timedelta(seconds=1))
    assert ("next try" in alarm.text, alarm.at_ms) == (False, None)


def test_a_checkpoint_that_is_about_to_fail_is_a_warning(busy: World) -> None:
    (alarm,) = said(busy, TIMEOUT - timedelta(seconds=29))  # the next try begins a second after the failure
    assert alarm.level == "warning"
    assert alarm.text.endswith(" It fails in 30s.")
    assert "timeout" in alarm.way_out
    (alarm,) = said(busy, TIMEOUT + timedelta(seconds=30))
    assert alarm.text.endswith(" Its timeout has run out.")


def test_a_stage_that_declined_is_named_with_its_reason(busy: World) -> None:
    busy.decline(busy.submit("c", "routes").handover, "OSError: disk full")
    first, second = said(busy)
    assert first == Alarm(
        "warning", "Checkpoint 4: `routes` declined: OSError: disk full", run_id="c", stages=("routes",)
    )
    assert second.text.startswith("Checkpoint 4 waits for `airports`, `report` (1 of 4")


def test_a_failed_checkpoint_comes_with_its_way_out(busy: World) -> None:
    busy.clock.advance(timedelta(minutes=11))
    busy.coordinator().restore_latest()
    (alarm,) = said(busy)
    assert alarm.level == "error"
    assert alarm.text == "Checkpoint 4 failed: not complete after 601 s."
    assert f"cairn show {JOB} 4 --storage {LAKE}" in alarm.way_out
    assert (alarm.run_id, alarm.stages) == ("c", ())


def test_what_has_completed_since_needs_nothing(busy: World) -> None:
    busy.run_stage("c", "routes", "airports", "report")
    busy.coordinator().complete(busy.pending_id("c"))
    assert said(busy) == ()


def test_a_job_that_is_shut_down_comes_with_the_command(busy: World) -> None:
    shut_down(busy.coordinator())
    levels = [alarm.level for alarm in said(busy)]
    assert levels == sorted(levels, key=("error", "warning", "note").index)
    (alarm,) = [alarm for alarm in said(busy) if alarm.text == "The job is shut down."]
    assert f"cairn resume {JOB} --storage {LAKE}" in alarm.way_out


def test_requests_that_wait_are_counted(busy: World) -> None:
    busy.coordinator().trigger(replace(busy.request("d"), owner=Owner("flights", "d")))
    assert Alarm("note", "1 request waits for a free place.") in said(busy)


def test_the_latest_of_each_kind(busy: World) -> None:
    found = overview(busy.coordinator())
    assert (known(found.latest_completed).id, known(found.latest_failed).id) == (2, 3)
    assert known(found.latest_restore).into == 4
    assert found.latest_savepoint is None
    document = json.loads(json.dumps(found.as_json(storage=LAKE, now_ms=busy.clock.now_ms)))
    assert document["latest_completed"]["id"] == 2
    assert [stage["stage"] for stage in document["pending"][0]["stages"]][-1] == "clean"
    assert document["alarms"][0]["level"] == "note"


def test_a_job_that_never_ran_has_nothing() -> None:
    found = overview(World().coordinator())
    assert (found.revision, found.latest_completed, alarms(found, LAKE, 0)) == (0, None, ())


def test_of_many_pending_checkpoints_the_newest_are_described() -> None:
    world = World(config=replace(CONFIG, max_concurrent_checkpoints=PENDING + 2))
    for number in range(PENDING + 2):
        world.trigger(f"e{number}")
    found = overview(world.coordinator())
    assert [each.found.row.id for each in found.pending] == [7, 6, 5, 4, 3]
    assert found.stats.in_progress == PENDING + 2


@pytest.mark.parametrize(
    ("days", "exact_from", "text"),
    [
        ([(1, 4)], None, ""),
        ([(1, 2), (6, 7)], None, "No run has read 2001-01-02 to 2001-01-06 UTC."),
        ([(1, 2), (3, 4), (6, 7)], None, "No run has read 2001-01-04 to 2001-01-06 UTC and an older gap."),
        ([(1, 2), (6, 7)], 7, ""),
    ],
)
def test_a_gap_is_a_warning_with_its_backfill(
    days: list[tuple[int, int]], exact_from: int | None, text: str
) -> None:  # semantics T8
    at = "2001-01-{:02}T00:00:00+00:00".format
    read = ReadWindows(
        tuple(WindowText(at(end), at(start)) for start, end in days), at(exact_from) if exact_from else None
    )
    found = alarms(replace(overview(World().coordinator()), gaps=read.gaps), LAKE, 0)
    assert [each.text for each in found] == ([text] if text else [])
    if text:
        assert "--to-date 2001-01-05T23:59:59+00:00 --max-active-runs 1" in found[0].way_out


def test_the_gap_of_the_newest_completed_checkpoint_counts() -> None:  # semantics T12
    world = World()
    world.read_days("a", "missed", "b")
    for epoch, texts in (("a", []), ("b", ["No run has read 2026-01-02 to 2026-01-03 UTC."]), ("missed", [])):
        world.run_epoch(epoch)
        assert [each.text for each in said(world)] == texts
