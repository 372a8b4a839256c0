"""Views of the command: every kind of checkpoint, from the store alone (semantics O1, O2)."""

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from airflow_cairn.checkpoint import CheckpointConfig, Coordinator
from airflow_cairn.checkpoint.answers import EpochCompleted
from airflow_cairn.checkpoint.documents import head, layout
from airflow_cairn.checkpoint.documents.entries import Slowest
from airflow_cairn.checkpoint.documents.head import MAX_RECORDED, Head
from airflow_cairn.checkpoint.documents.metadata import HandedOn
from airflow_cairn.checkpoint.documents.strict_json import to_json
from airflow_cairn.checkpoint.errors import NoCheckpointError
from airflow_cairn.checkpoint.reasons import Reason, Status
from airflow_cairn.checkpoint.rules import history
from airflow_cairn.checkpoint.views import checkpoint_list
from airflow_cairn.checkpoint.views.checkpoint_list import JobState
from airflow_cairn.checkpoint.views.details import details
from airflow_cairn.storage import GoneError
from airflow_cairn.storage.clock import Runtime
from tests.support import jobs
from tests.support.memory_store import MemoryStore
from tests.support.page_world import busy_world
from tests.support.world.savepoints import Below, asked
from tests.support.world.world import JOB, STAGES, TIMEOUT, World
from tests.support.wrapped_stores import InterleavingStore, RecordingStore

RUN = "scheduled__2026-01-02T00:00:00+00:00"
EPOCH = layout.epoch_name(RUN)


@pytest.fixture
def busy(world: World) -> World:
    """Three completed checkpoints of which two are retained, a failed one, and a pending one half-way."""
    for epoch in ("a", "b", "c"):
        world.run_epoch(epoch)
        world.clock.advance(timedelta(seconds=5))
    world.trigger(EPOCH)
    world.run_stage(EPOCH, "clean")
    world.submit(EPOCH, "routes", "routes-1")
    world.clock.advance(timedelta(seconds=7))
    world.coordinator().fail(EPOCH, "routes", "routes-1", "killed by signal 9")
    world.run_stage(EPOCH, "airports")
    world.decline(world.submit(EPOCH, "routes").handover, "ValueError: bad row")
    return world


def test_checkpoints_newest_first(busy: World) -> None:
    rows = checkpoint_list.checkpoints(busy.coordinator())
    assert [(row.id, row.run_id, row.attempt, row.status, f"{row.acks}/{row.stages}") for row in rows] == [
        (5, RUN, 2, "PENDING", "2/4"),
        (4, RUN, 1, "FAILED", "1/4"),
        (3, "c", 1, "COMPLETED", "4/4"),
        (2, "b", 1, "COMPLETED", "4/4"),
        (1, "a", 1, "COMPLETED", "4/4"),
    ]
    assert [row.retained for row in rows] == [False, False, True, True, False]
    assert [row.restored_from for row in rows] == [3, 3, 2, 1, None]
    assert [row.duration_ms for row in rows] == [None, 7000, 0, 0, 0]
    assert (rows[1].reason, rows[1].detail) == ("JOB_FAILOVER_REGION", "routes: killed by signal 9")
    assert rows[2].size_bytes == busy.coordinator().head().completed[-1].size_bytes > 0


@pytest.mark.large
def test_a_retained_checkpoint_is_shown_after_the_history_forgot_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (head, history):
        monkeypatch.setattr(module, "MAX_HISTORY", 3)
    world.config = CheckpointConfig(timeout=TIMEOUT, retained=200)
    world.stages = world.stages[:1]
    world.run_epoch(*(f"e{number:03d}" for number in range(6)))
    rows = checkpoint_list.checkpoints(world.coordinator())
    assert [row.id for row in rows] == [6, 5, 4, 3, 2, 1]
    assert {(row.status, row.acks, row.stages, row.retained) for row in rows} == {("COMPLETED", 1, 1, True)}
    assert world.coordinator().complete(1) == EpochCompleted("e000", 1)


def test_rows_and_details_are_json(busy: World) -> None:
    assert json.loads(json.dumps([to_json(row) for row in checkpoint_list.checkpoints(busy.coordinator())]))
    for checkpoint in range(1, 6):
        assert json.loads(json.dumps(details(busy.coordinator(), checkpoint).as_json(storage="s3://lake")))


def test_details_of_a_pending_checkpoint(busy: World) -> None:
    found = details(busy.coordinator(), 5)
    stages = {stage.stage: stage for stage in found.stages}
    assert found.cause == "routes: killed by signal 9"
    assert found.slice == busy.request(EPOCH).slice
    assert [(stage.stage, stage.home, stage.attempt, stage.acknowledged) for stage in found.stages] == [
        ("routes", 5, 2, False),
        ("report", 5, 2, False),
        ("clean", 4, 1, True),
        ("airports", 4, 1, True),
    ], "what is still awaited comes first, what was carried over last"
    assert [stage.carried for stage in found.stages] == [False, False, True, True]
    assert (found.acked_subtasks, found.expected_subtasks, found.slowest) == (4, None, None)
    assert stages["routes"].declined == "ValueError: bad row"
    assert stages["report"].parallelism == 2
    clean, airports = stages["clean"], stages["airports"]
    assert [(output.kind, output.name, output.files) for output in clean.outputs] == [
        ("state", "totals", 1),
        ("exchange", "rows", 1),
    ]
    assert clean.size_bytes == clean.new_bytes > 0
    assert (airports.files, airports.values, airports.parallelism) == (3, ("seen",), 2)
    assert airports.size_bytes - airports.new_bytes == len('"written once"'), "referred to, not written again"


def test_details_of_a_retained_checkpoint(busy: World) -> None:
    found = details(busy.coordinator(), 3)
    assert found.row.retained
    assert found.tables == ("league",)
    assert [stage.stage for stage in found.stages] == ["clean", "routes", "airports", "report"]
    assert all(stage.acknowledged and stage.metrics is not None for stage in found.stages)
    assert [output.name for output in found.stages[3].outputs] == ["totals", "league"]
    assert sum(stage.size_bytes for stage in found.stages) == found.row.size_bytes
    assert sum(stage.files for stage in found.stages) == 6
    assert found.acked_subtasks == found.expected_subtasks == 8


def test_stages_come_slowest_first_and_their_largest_subtasks(world: World) -> None:  # semantics O1
    wide = jobs.wide(world.store, 4)
    checkpoint = jobs.run(wide, "a", 20)
    found = details(wide.coordinator(), checkpoint, subtasks=2)
    assert [stage.stage[-2:] for stage in found.stages] == ["03", "02", "01", "00"]
    assert [stage.took_ms for stage in found.stages] == [18_200, 11_100, 5_700, 2_000]
    for stage in found.stages:
        assert [each.index for each in stage.subtasks] == [6, 13], "the largest, then the lower number"
        assert {(each.files, each.size_bytes, each.new_bytes) for each in stage.subtasks} == {(1, 241_000, 241_000)}
        assert (stage.acked_subtasks, stage.subtasks_left_out) == (20, 18)
    assert found.slowest == Slowest("flights.stage_03", 18_200, 6)


def test_details_of_a_past_checkpoint(busy: World) -> None:
    found = details(busy.coordinator(), 1)
    assert (found.row.status, found.row.retained, found.stages) == ("COMPLETED", False, ())


@pytest.mark.parametrize("rows", [16_000, None])
def test_what_a_stage_handed_on_is_counted_though_its_files_are_gone(world: World, rows: int | None) -> None:
    world.trigger(EPOCH)
    ack = world.write(world.submit(EPOCH, "clean").handover)
    counted = [replace(each, handles=tuple(replace(it, rows=rows) for it in each.handles)) for each in ack.subtasks]
    world.coordinator().acknowledge(replace(ack, subtasks=tuple(counted)))
    world.run_epoch(EPOCH)
    world.coordinator().clean()
    assert not [key for key in world.standing() if "exchange" in key]
    clean = next(each for each in details(world.coordinator(), 1).stages if each.stage == "clean")
    size_bytes = sum(it.size_bytes for each in counted for it in each.handles if it.output.startswith("exchange."))
    assert clean.handed_on == HandedOn(1, size_bytes, rows)
    assert "exchange" not in {each.kind for each in clean.outputs}


def test_what_failed_is_shown_whole_after_its_run_has_completed(world: World) -> None:  # semantics O3
    """The view keeps stages, acknowledgements, their times, and who had begun, whatever the DAG file says by then."""
    world.trigger(EPOCH)
    world.run_stage(EPOCH, "clean")
    routes = world.submit(EPOCH, "routes").handover
    world.decline(routes)
    world.coordinator().fail(EPOCH, "routes", routes.claimant, "ValueError: bad row")
    before = details(world.coordinator(), 1)
    assert {each.stage: (each.acknowledged, each.begun) for each in before.stages} == {
        "clean": (True, True),
        "routes": (False, True),
        "airports": (False, False),
        "report": (False, False),
    }
    world.run_epoch(EPOCH, "later")
    world.coordinator().clean()
    after = details(world.coordinator(), 1)
    assert {each for each in before.stages if each.begun} < set(after.stages), "with metrics, files and reasons"
    assert {each.stage for each in after.stages if each.acknowledged} == {"clean", "airports"}, "the next attempt's too"
    assert (after.cause, after.slice, after.row.detail) == (before.cause, before.slice, before.row.detail)
    assert [(each.uid, each.reads) for each in after.drawn] == [(each.uid, each.upstream) for each in STAGES]
    assert not [key for key in world.standing() if key.startswith("chk-0000000001/state/routes")]


def test_the_records_of_what_failed_are_bounded(world: World) -> None:  # semantics O3
    for number in range(MAX_RECORDED + 3):
        world.trigger(f"e{number}")
        world.run_stage(f"e{number}", "clean")
        world.coordinator().abort(world.pending_id(f"e{number}"), Reason.CHECKPOINT_EXPIRED, "slow")
        world.run_epoch(f"e{number}")
    world.coordinator().clean()
    kept = {layout.record_of(key) for key in world.standing()} - {None}
    failed = sorted(each.id for each in world.coordinator().head().history if each.status is Status.FAILED)
    assert kept == set(failed[-MAX_RECORDED:])
    assert details(world.coordinator(), failed[0]).stages == ()


def test_details_of_a_replay(world: World) -> None:  # semantics R1
    world.run_epoch("a", EPOCH)
    victim = next(key for key in world.referred() if key.startswith("chk-0000000002/state"))
    world.memory.put(f"{JOB}/{victim}", b"")
    world.trigger("c")
    assert details(world.coordinator(), 3).replay == (RUN,)
    world.run_epoch("c")
    assert details(world.coordinator(), 3).replay == (RUN,)


def test_a_broken_ack_is_shown_as_a_problem(busy: World) -> None:  # semantics W5
    marker = next(key for key in busy.memory.all_keys() if "chk-0000000004/acks/clean/" in key)
    busy.memory.put(marker, b"{")
    clean = next(stage for stage in details(busy.coordinator(), 5).stages if stage.stage == "clean")
    assert clean.acknowledged
    assert clean.problem is not None
    assert marker in clean.problem


def test_metadata_that_is_gone_is_named(busy: World) -> None:
    busy.store.delete([f"{JOB}/{busy.coordinator().head().completed[-1].metadata.key}"])
    with pytest.raises(GoneError):
        details(busy.coordinator(), 3)


def test_an_id_that_nobody_knows_is_named_with_those_known(busy: World) -> None:
    with pytest.raises(NoCheckpointError, match="no such checkpoint") as caught:
        details(busy.coordinator(), 99)
    assert caught.value.fields["known"] == "5, 4, 3, 2, 1"


def test_looking_changes_nothing_even_where_something_is_due(busy: World) -> None:  # semantics O2
    busy.clock.advance(TIMEOUT)
    before = {key: busy.memory.get(key).data for key in busy.memory.all_keys()}
    recording = RecordingStore(busy.store)
    list(checkpoint_list.jobs(recording))
    checkpoint_list.checkpoints(busy.coordinator(recording))
    details(busy.coordinator(recording), 5)
    assert recording.writes == []
    assert before == {key: busy.memory.get(key).data for key in busy.memory.all_keys()}


def test_looking_while_a_checkpoint_is_cleaned_shows_the_newer_state(busy: World) -> None:
    def epochs_go_by() -> None:
        busy.coordinator().abort(5, Reason.JOB_FAILURE, "by hand")
        busy.run_epoch(EPOCH, "z")

    store = InterleavingStore(busy.store, "read_range", 0, epochs_go_by)
    found = details(busy.coordinator(store), 3)
    assert (found.row.status, found.row.retained, found.stages) == ("COMPLETED", False, ())


def test_jobs_are_the_folders_with_a_head(world: World) -> None:
    store = MemoryStore()
    for job in ("weather", "flights-10", "flights"):
        Coordinator(store, job, Runtime(world.clock, world.new_token)).trigger(world.request("a"))
    store.put("notes/readme.txt", b"no job")
    store.put("_cairn/probe/head.json", b"no job")
    assert [row.job for row in checkpoint_list.jobs(store)] == ["flights-10", "flights", "weather"], "in key order"
    assert list(checkpoint_list.jobs(MemoryStore())) == []


def test_a_job_in_one_row(busy: World) -> None:
    (row,) = checkpoint_list.jobs(busy.store)
    assert (row.job, row.pending, row.latest_completed, row.latest_run_id) == (JOB, (5,), 3, "c")
    assert (row.triggered, row.completed, row.failed, row.restored) == (5, 3, 1, 4)


THE_FOURTH_MS = round(datetime(2026, 1, 4, tzinfo=UTC).timestamp() * 1000)


def _nothing(world: World) -> None:
    """Leave the job as it is."""


def _fails(world: World) -> None:
    world.coordinator().abort(world.pending_id("c"), Reason.JOB_FAILURE, "by hand")


def _stops(world: World) -> None:
    world.coordinator().open_savepoint(replace(asked("stop"), stop=True), lambda uri: Below(world.memory, uri))


@pytest.mark.parametrize(
    ("happens", "state", "failed_since", "attempt"),
    [
        (_nothing, JobState.RUNNING, 1, 2),
        (_fails, JobState.FAILED, 2, None),
        (lambda world: world.coordinator().pause(), JobState.PAUSED, 1, None),
        (_stops, JobState.STOPPING, 1, 2),
        (lambda world: world.run_epoch("c"), JobState.IDLE, 0, None),
    ],
)
def test_a_jobs_row_says_how_it_is(
    happens: Callable[[World], object], state: JobState, failed_since: int, attempt: int | None
) -> None:  # semantics O1
    """A pause ends an attempt too, and is no failure."""
    world = busy_world()
    happens(world)
    (row,) = checkpoint_list.jobs(world.store)
    assert (row.state, row.failed_since, row.running_attempt) == (state, failed_since, attempt)


def test_a_jobs_row_says_since_when_input_waits() -> None:
    """From the end of the oldest window that a run has asked for since the newest completed checkpoint."""
    world = busy_world(THE_FOURTH_MS + 86_400_000)
    (row,) = checkpoint_list.jobs(world.store)
    assert row.due_at_ms == THE_FOURTH_MS, "of epoch c, which reads the third"
    _fails(world)
    world.read_days("x", "x", "x", "d")
    world.trigger("d")
    assert next(checkpoint_list.jobs(world.store)).due_at_ms == THE_FOURTH_MS
    world.run_epoch("d")
    assert next(checkpoint_list.jobs(world.store)).due_at_ms is None, "only what was asked for since it completed"


def test_a_new_jobs_row() -> None:
    row = checkpoint_list.job_row(Head(JOB))
    assert (row.state, row.due_at_ms, row.usual_ms, row.savepoint_at_ms) == (JobState.NEW, None, None, None)


@pytest.mark.parametrize("folder", ["broken", ".hidden", "-dash"])
def test_a_folder_that_is_no_sound_job_has_a_row_with_its_problem(busy: World, folder: str) -> None:  # semantics W1, W5
    busy.memory.put(f"{folder}/head.json", b"{")
    assert {row.job: row.problem is None for row in checkpoint_list.jobs(busy.store)} == {JOB: True, folder: False}
