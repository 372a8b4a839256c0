"""A job's mirror: what a pass copies, holds and drops, how far it is, and what an activation makes of it (M1 to M6)."""

from __future__ import annotations

import sys
from dataclasses import replace
from datetime import timedelta

import pytest
from airflow.sdk.exceptions import AirflowNotFoundException

from airflow_cairn.checkpoint import Coordinator, Runtime
from airflow_cairn.checkpoint.acts.resume import Resumption
from airflow_cairn.checkpoint.answers import EpochCompleted
from airflow_cairn.checkpoint.documents import head
from airflow_cairn.checkpoint.documents.attempt import Owner
from airflow_cairn.checkpoint.documents.head import Head
from airflow_cairn.checkpoint.errors import CheckpointError, DamagedError, NoCheckpointError, RefusedError
from airflow_cairn.checkpoint.health.examine import stuck
from airflow_cairn.checkpoint.mirrors.mirror_pass import tell_moved
from airflow_cairn.checkpoint.rules import history, mirrors
from airflow_cairn.checkpoint.store import completed_epochs
from airflow_cairn.checkpoint.store.head_store import OpenJob
from airflow_cairn.checkpoint.views.checkpoint_list import job_row
from airflow_cairn.checkpoint.views.overview import alarms, overview
from airflow_cairn.operators.group.checks import check_mirror
from airflow_cairn.storage import ObjectStore
from airflow_cairn.tasks.extensions import Mirror
from tests.support.memory_store import MemoryStore
from tests.support.narrowing import known
from tests.support.world.listed_folder import Job
from tests.support.world.world import World
from tests.support.wrapped_stores import Crashed, Fault, FaultyStore, RecordingStore
from tests.unit.checkpoint.extensions.test_committables import stage

WEST = "west"


@pytest.fixture
def west() -> MemoryStore:
    return MemoryStore(WEST)


def _there(world: World, west: ObjectStore) -> Coordinator:
    return Coordinator(west, world.job, Runtime(world.clock, world.new_token))


def _in_west(world: World, west: MemoryStore) -> World:
    """The job as its DAG in the second region runs it."""
    there = World(west, job=world.job)
    there.clock, there._tokens, there.appends = world.clock, world._tokens, world.appends
    return there


@pytest.mark.parametrize("appends", [False, True])
def test_a_pass_costs_the_epochs_new_files(world: World, west: MemoryStore, appends: bool) -> None:  # semantics M2
    world.appends = appends
    world.run_epoch("e1", "e2")
    world.coordinator().mirror(west)
    world.run_epoch("e3")
    recording = RecordingStore(west)
    found = world.coordinator().mirror(recording)
    created = {write.key for write in recording.writes if write.verb == "create"}
    named = {f"{world.job}/{key}" for key in world.referred() if key.startswith("chk-0000000003")}
    assert created == named | {f"{world.job}/epochs/e3.json"}
    assert found.files == len(created)
    again = RecordingStore(west)
    assert world.coordinator().mirror(again).files == 0
    assert again.writes == [], "a second pass has nothing to do"


@pytest.mark.parametrize("first", [True, False])
def test_a_sink_that_was_behind_commits_in_the_mirror(world: World, west: MemoryStore, first: bool) -> None:
    """Notices that completed checkpoints still owe go with the job, however old they are (semantics M6, C4)."""
    world.listen("warehouse", Mirror.name)
    for epoch in ("e1", "e2", "e3", "e4"):
        _stage(world, epoch)
        if not first:
            world.coordinator().mirror(west)
    world.coordinator().mirror(west)
    staged = [f"chk-{number:010d}/_metadata-" for number in (1, 2, 3, 4)]
    assert [each[: len(staged[0])] for each in _metadata(world, west)] == staged
    found = _there(world, west).activate()
    assert [(each.checkpoint, each.names, each.undelivered) for each in found.staged] == [
        (number, ("routes: orders",), ("warehouse",)) for number in (4, 3, 2, 1)
    ]
    ear = world.ears[0]
    _there(world, west).deliver([ear])
    assert [one.value for each in ear.heard for one in each.committables] == ["e1", "e2", "e3", "e4"]
    assert _there(world, west).clean().deleted


def test_what_a_sink_has_committed_leaves_the_mirror(world: World, west: MemoryStore) -> None:  # semantics M2, M3
    world.listen("warehouse")
    for epoch in ("e1", "e2", "e3", "e4"):
        _stage(world, epoch)

    def delivered(_: object) -> None:
        world.coordinator().deliver(world.ears)
        world.coordinator().clean()

    world.coordinator().mirror(west, delivered, parallel=1)
    assert len(_metadata(world, west)) == 4, "a pass holds what it copies"
    world.run_epoch("e5")
    world.coordinator().mirror(west)
    world.coordinator().deliver(world.ears)
    assert _metadata(world, west) == _metadata(world, world.store)


def _stage(world: World, epoch: str) -> None:
    """Run an epoch that stages something for sinks."""
    world.trigger(epoch)
    world.run_stage(epoch, "clean")
    stage(world, epoch, "routes", orders=epoch)
    world.run_epoch(epoch)


def _metadata(world: World, store: ObjectStore) -> list[str]:
    keys = (found.key.removeprefix(f"{world.job}/") for found in store.list(""))
    return sorted(key for key in keys if "/_metadata-" in key)


@pytest.mark.parametrize("later", [(), ("e4",)])
def test_a_pass_left_out_loses_no_epoch(world: World, west: MemoryStore, later: tuple[str, ...]) -> None:
    """A restore of the mirror that falls back passes over no epoch that it cannot replay (semantics M2)."""
    world.config = replace(world.config, retained=4)
    world.run_epoch("e1")
    world.coordinator().mirror(west)
    world.run_epoch("e2")
    for epoch in ("e3", *later):
        world.run_epoch(epoch)
        world.coordinator().mirror(west)
    _there(world, west).activate()
    there = _in_west(world, west)
    newest = there.coordinator().head().latest_completed()
    assert newest is not None
    west.delete([f"{world.job}/{newest.metadata.key}"])
    if not later:
        with pytest.raises(NoCheckpointError):
            there.trigger("e5")
        return
    there.run_epoch("e5")
    assert there.folded()["report"] == ["e1", "e2", "e3", "e4", "e5"]


def test_a_hold_ends_by_itself(world: World, west: MemoryStore) -> None:  # semantics M3
    world.run_epoch("e1")
    with pytest.raises(Crashed):
        world.coordinator().mirror(FaultyStore(west, 2, Fault.CRASH_BEFORE))
    world.run_epoch("e2", "e3", "e4")
    held = {key for key in world.standing() if key.startswith("chk-0000000001/_metadata")} | {"epochs/e1.json"}
    assert len(held) == 2, "the cleaner spares what the dead pass was copying"
    assert {f"{world.job}/{key}" for key in held} <= {found.key for found in world.store.list("")}
    world.clock.advance(timedelta(hours=1))
    world.coordinator().clean()
    assert not {f"{world.job}/{key}" for key in held} & {found.key for found in world.store.list("")}
    world.coordinator().mirror(west)
    assert not _there(world, west).head().completed_by_id(1)


def test_a_long_pass_renews_its_hold(world: World, west: MemoryStore) -> None:  # semantics M3
    world.run_epoch("e1")
    files: list[int] = []

    def slow(_: object) -> None:
        world.clock.advance(timedelta(minutes=31))
        files.append(len(world.coordinator().head().mirrors[0].holds))
        if len(files) == 3:
            world.run_epoch("e2", "e3", "e4")

    assert world.coordinator().mirror(west, slow, parallel=1).checkpoint == 1
    assert len(files) > 4
    assert all(found.whole for found in _there(world, west).verify())


def test_the_lag_is_seen_from_the_job_alone(world: World, west: MemoryStore) -> None:  # semantics M4
    world.run_epoch("e1")
    world.coordinator().mirror(west)
    before = world.clock.now_ms
    world.clock.advance(timedelta(hours=25))
    (lag,) = mirrors.lags(world.coordinator().head())
    assert (lag.behind, lag.completed_at_ms, lag.behind_since_ms) == (0, before, None)
    world.run_epoch("e2")
    world.run_epoch("e3")
    since = world.clock.now_ms
    world.clock.advance(timedelta(hours=25))
    (lag,) = job_row(world.coordinator().head()).mirrors
    assert (lag.uri, lag.checkpoint, lag.behind, lag.completed_at_ms) == (west.uri, 1, 2, before)
    assert lag.behind_since_ms == since
    runtime = Runtime(world.clock, world.new_token)
    (finding,) = stuck(world.store.uri, world.coordinator(), runtime)
    assert finding.name == "mirror-behind"
    (alarm,) = alarms(overview(world.coordinator()), world.store.uri, world.clock.now_ms)
    assert (alarm.level, "lacks 2 completed" in alarm.text) == ("warning", True)
    world.coordinator().mirror(west)
    assert list(stuck(world.store.uri, world.coordinator(), runtime)) == []
    undone = world.coordinator().head().completed
    world.coordinator().rewind(undone[0].id)
    rewound = world.clock.now_ms
    world.clock.advance(timedelta(hours=25))
    (lag,) = mirrors.lags(world.coordinator().head())
    assert (lag.checkpoint, lag.behind, lag.behind_since_ms) == (3, 1, rewound), "the mirror would go on from it"
    assert [each.name for each in stuck(world.store.uri, world.coordinator(), runtime)] == ["mirror-behind"]
    world.coordinator().mirror(west)
    (lag,) = mirrors.lags(world.coordinator().head())
    assert (lag.checkpoint, lag.behind) == (undone[0].id, 0)


def test_a_mirror_changes_by_passes_alone(world: World, west: MemoryStore) -> None:  # semantics M5
    world.listen("warehouse")
    world.run_epoch("e1", "e2")
    world.coordinator().mirror(west)
    there = _there(world, west)
    before = {found.key for found in west.list("")}
    for act in (
        lambda: there.trigger(world.request("e3")),
        lambda: there.ownership.check(Owner("another", "run")),
        lambda: there.deliver(world.ears),
        there.clean,
        there.restore_latest,
        there.pause,
        lambda: there.mirror(MemoryStore("further")),
    ):
        with pytest.raises(CheckpointError, match=f"`cairn activate {world.job} --storage {west.uri}`"):
            act()
    assert not world.ears[0].heard
    assert {found.key for found in west.list("")} == before
    with pytest.raises(RefusedError, match="is not a mirror"):
        world.coordinator().activate()


def test_activated_it_goes_on_from_its_newest_checkpoint(world: World, west: MemoryStore) -> None:  # semantics M5, M6
    world.appends = True
    world.run_epoch("e1", "e2")
    world.coordinator().mirror(west)
    world.run_epoch("e3")
    world.trigger("e4")
    handover = world.submit("e4", "clean").handover
    used = world.coordinator().head().next_id
    _there(world, west).activate()
    there = _in_west(world, west)
    there.run_epoch("e3", "e4")
    assert there.folded()["report"] == ["e1", "e2", "e3", "e4"]
    assert (there.coordinator().head().latest_id() or 0) > used, "no id that the first storage handed out"
    # A zombie driver of the first region writes there, and the job there ends with the next pass.
    world.drive(handover)
    with pytest.raises(RefusedError, match="was activated"):
        world.coordinator().mirror(west)
    assert world.coordinator().head().pending == ()
    here = world.coordinator()
    resumption = Resumption(OpenJob(world.store, world.job, Runtime(world.clock, world.new_token)))
    for act in (
        lambda: here.trigger(world.request("e5")),
        lambda: here.ownership.check(Owner(world.job, "run")),
        lambda: here.begin("e4", "clean", world.new_claimant()),
        lambda: resumption.resume("e4"),
    ):
        with pytest.raises(CheckpointError, match=f"has moved to {west.uri}"):
            act()
    assert job_row(world.coordinator().head()).moved_to == west.uri


def test_a_planned_move_loses_nothing_and_goes_back(world: World, west: MemoryStore) -> None:  # semantics M6
    world.run_epoch("e1")
    world.coordinator().mirror(west)
    world.run_epoch("e2")
    world.trigger("e3")
    found = _there(world, west).activate(world.store)
    assert found.head.latest_completed() == world.coordinator().head().latest_completed()
    assert known(found.head.mirror_of).again == ("e3",)
    there = _in_west(world, west)
    assert "e3: run them again" in alarms(overview(there.coordinator()), west.uri, world.clock.now_ms)[0].text
    there.run_epoch("e3")
    assert not alarms(overview(there.coordinator()), west.uri, world.clock.now_ms)
    back = MemoryStore("back")
    there.coordinator().mirror(back)
    _there(world, back).activate(west)
    home = _in_west(world, back)
    home.run_epoch("e4")
    assert home.folded()["report"] == ["e1", "e2", "e3", "e4"]
    with pytest.raises(CheckpointError, match="has moved to s3://back"):
        there.coordinator().trigger(world.request("e5"))


def test_a_move_that_cannot_end_is_taken_back(
    world: World, west: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:  # semantics M6
    world.run_epoch("e1")
    world.coordinator().mirror(west)
    world.run_epoch("e2")
    job = OpenJob(world.store, world.job, Runtime(world.clock, world.new_token))
    lost = next(found for found in world.store.list("") if "chk-0000000002/state" in found.key).key
    content = world.memory.get(lost).data
    world.store.delete([lost])
    with pytest.raises(DamagedError) as refused:
        _there(world, west).activate(world.store)
    assert "to move" not in str(refused.value)
    assert world.coordinator().head().moved is None, "the job goes on"
    of = _there(world, west).head().mirror_of
    assert of is not None
    tell_moved(job.heads, of.id, west.uri)  # what a killed command leaves
    with pytest.raises(DamagedError, match=r"Without `--from`.* --give-up"):
        _there(world, west).activate(world.store)
    with pytest.raises(CheckpointError, match="--give-up"):
        world.trigger("e3")
    assert world.coordinator().give_up_mirror(west.uri, lambda: west)
    assert not world.coordinator().give_up_mirror(west.uri, lambda: west)
    world.memory.put(lost, content)
    world.run_epoch("e3")
    with pytest.raises(RefusedError, match="holds no job that this is a mirror of"):
        _there(world, west).activate(world.store)
    north = MemoryStore("north")
    world.coordinator().mirror(north)

    def given_up(head: Head) -> tuple[str, ...]:
        assert head.moved is None or world.coordinator().give_up_mirror(north.uri, lambda: north)
        return ()

    with monkeypatch.context() as patch:
        patch.setattr(mirrors, "begun", given_up)
        with pytest.raises(RefusedError, match="holds no job that this is a mirror of"):
            _there(world, north).activate(world.store)
    world.run_epoch("e4")
    north = MemoryStore("farther-north")
    world.coordinator().mirror(north)
    _there(world, north).activate(world.store)
    with pytest.raises(RefusedError, match="was activated"):
        world.coordinator().give_up_mirror(north.uri, lambda: north)


def test_what_is_no_mirror_of_this_job_is_refused(world: World, west: MemoryStore) -> None:
    with pytest.raises(NoCheckpointError, match="nothing to mirror"):
        world.coordinator().mirror(west)
    world.run_epoch("e1")
    with pytest.raises(RefusedError, match="a storage of its own"):
        world.coordinator().mirror(MemoryStore(world.store.uri.removeprefix("s3://")))
    other = World(west)
    other.run_epoch("e1")
    with pytest.raises(RefusedError, match="is not a mirror of this job"):
        world.coordinator().mirror(west)
    assert world.coordinator().head().mirrors == ()
    with pytest.raises(RefusedError, match="is not a mirror"):
        other.coordinator().activation_plan()
    backup = World(world.memory.fork())
    elsewhere = MemoryStore("elsewhere")
    world.coordinator().mirror(elsewhere)
    world.run_epoch("e2")
    world.coordinator().mirror(elsewhere)
    world.memory.put(f"{world.job}/head.json", backup.memory.get(f"{world.job}/head.json").data)
    with pytest.raises(RefusedError, match="is not a mirror of this job"):
        world.coordinator().mirror(elsewhere)


def test_the_listener_mirrors_and_does_not_fail_the_run(
    world: World, west: MemoryStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A second region that is away costs a warning; the notice is delivered (semantics M1, C4)."""
    stores: list[ObjectStore] = [FaultyStore(west, 0, Fault.FAILS), west]

    def opened(*_: object, **__: object) -> ObjectStore:
        if not stores:
            raise AirflowNotFoundException("The conn_id isn't defined")
        return stores.pop(0)

    monkeypatch.setattr("airflow_cairn.hooks.storage.CheckpointStorageHook.open_store", opened)
    monkeypatch.setattr(sys.modules["airflow_cairn.storage.probe"], "ensure_probed", lambda *_, **__: None)
    world.listen(Mirror.name)
    listener = Mirror("s3://west")
    for epoch in ("e1", "e2", "e3"):
        world.run_epoch(epoch)
        assert world.coordinator().deliver([listener.of_job(world.coordinator())]) == 1
    assert caplog.text.count("The job was not mirrored to s3://west") == 2
    assert "isn't defined" in caplog.text
    found = _there(world, west).head()
    assert found.latest_id() == 2
    assert found.notices == (), "the mirror has no listener that mirrors"
    with pytest.raises(RefusedError, match="a storage of its own"):
        check_mirror([listener], "s3://west/cairn")


def test_lists_of_input_and_of_completed_epochs_go_with_it(
    west: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:  # semantics M1, T8, T9
    for module in (history, head):
        monkeypatch.setattr(module, "MAX_HISTORY", 2)
    monkeypatch.setattr(completed_epochs, "MAX_NOTED", 1)
    job = Job(3_000, max_files=1_000)
    for number in range(5):
        job.trigger(f"e{number}")
        job.world.run_epoch(f"e{number}")
        job.folder.add(*(f"later-{number}-{each}.parquet" for each in range(1_000)))
        recording = RecordingStore(west)
        job.world.coordinator().mirror(recording, parallel=1)
        written = [write.key for write in recording.writes if "/epoch" in write.key]
        assert written[-1].endswith(f"epochs/e{number}.json"), "a pass that is killed leaves no slice without its lists"
    assert any("positions/" in found.key for found in west.list(""))
    assert any("/epochs-" in found.key for found in west.list(""))
    there = _there(job.world, west)
    assert all(found.whole for found in there.verify())
    assert there.verify_lists(deep=True) == {}
    assert {found.key for found in west.list("")} <= {found.key for found in job.world.store.list("")}
    there.activate()
    read = job.names(job.trigger("e5"))
    twin = job.fork()
    twin.source, twin.world = job.source, _in_west(job.world, west)
    assert twin.names(twin.trigger("e5")) == read, "it goes on with the same files"
    assert isinstance(twin.trigger("e0"), EpochCompleted)
