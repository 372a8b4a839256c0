"""What a pass to a mirror makes of what it finds: the order of its writes, what a dead pass has left, and damage."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest

from airflow_cairn.checkpoint import Coordinator, Runtime
from airflow_cairn.checkpoint.answers import FilesProgress
from airflow_cairn.checkpoint.documents import layout
from airflow_cairn.checkpoint.errors import DamagedError, RefusedError
from airflow_cairn.storage.port import DeleteFailure, DeleteFailures
from tests.support.memory_store import MemoryStore
from tests.support.narrowing import known
from tests.support.world.world import World
from tests.support.wrapped_stores import Crashed, Fault, FaultyStore, RecordingStore, Write

WEST = "west"
DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "other bytes": lambda data: bytes([data[0] ^ 1]) + data[1:],
    "a byte less": lambda data: data[:-1],
    "a byte more": lambda data: data + b"x",
}


@pytest.fixture
def west() -> MemoryStore:
    return MemoryStore(WEST)


@pytest.fixture
def world(world: World) -> World:
    """A job with tables, whose manifests are shared, and with states that grow."""
    world.appends = True
    return world


def _there(world: World, west: MemoryStore) -> Coordinator:
    return Coordinator(west, world.job, Runtime(world.clock, world.new_token))


def _keys(world: World, store: MemoryStore) -> set[str]:
    return {found.key.removeprefix(f"{world.job}/") for found in store.list("")}


def _created(world: World, writes: Iterable[Write]) -> list[str]:
    return [each.key.removeprefix(f"{world.job}/") for each in writes if each.verb == "create"]


def _assert_whole(world: World, west: MemoryStore) -> None:
    """The mirror has the job's newest checkpoint, and each that it names is whole."""
    there = _there(world, west)
    assert there.head().latest_completed() == world.coordinator().head().latest_completed()
    assert [each for each in there.verify(deep=True) if not each.whole] == []


def _state(world: World, store: MemoryStore) -> str:
    """Give the key of a file of a state."""
    return next(found.key for found in store.list("") if "/state/" in found.key)


@pytest.mark.parametrize("parallel", [1, 8])
def test_files_come_then_the_metadata_then_the_head_and_deletes_last(
    world: World, west: MemoryStore, parallel: int
) -> None:  # semantics M1
    for epoch in ("e1", "e2", "e3", "e4", "e5"):
        world.run_epoch(epoch)
        recording = RecordingStore(west)
        world.coordinator().mirror(recording, parallel=parallel)
        writes = [(each.verb, each.key.removeprefix(f"{world.job}/")) for each in recording.writes]
        metadata = known(world.coordinator().head().latest_completed()).metadata.key
        at = writes.index(("create", metadata))
        assert {verb for verb, _ in writes[:at]} == {"create"}
        assert writes[at + 1] == ("replace", layout.HEAD)
        assert {verb for verb, _ in writes[at + 2 :]} <= {"delete"}


def test_a_pass_goes_on_where_a_dead_one_stopped(world: World) -> None:  # semantics M1, M2
    world.run_epoch("e1", "e2")
    whole = RecordingStore(MemoryStore(WEST))
    world.fork().coordinator().mirror(whole, parallel=1)
    wanted = _created(world, whole.writes)
    assert len(wanted) > 10
    for at in range(len(wanted)):
        job, west = world.fork(), MemoryStore(WEST)
        with pytest.raises(Crashed):
            job.coordinator().mirror(FaultyStore(west, at, Fault.CRASH_AFTER), parallel=1)
        assert _keys(job, west) == set(wanted[: at + 1])
        recording = RecordingStore(west)
        job.coordinator().mirror(recording, parallel=1)
        assert _created(job, recording.writes) == wanted[at + 1 :]
        _assert_whole(job, west)


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_a_dead_pass_left_is_taken_only_where_it_is_whole(
    world: World, west: MemoryStore, damage: str
) -> None:  # semantics M1
    world.run_epoch("e1")
    with pytest.raises(Crashed):
        world.coordinator().mirror(FaultyStore(west, 6, Fault.CRASH_AFTER), parallel=1)
    key = _state(world, west)
    west.put(key, DAMAGES[damage](west.get(key).data))
    with pytest.raises(DamagedError, match=rf"in the mirror .*{key} is another object than in the job"):
        world.coordinator().mirror(west)
    assert _there(world, west).head().completed == ()
    west.delete([key])
    world.coordinator().mirror(west)
    _assert_whole(world, west)


@pytest.mark.parametrize("damage", [*DAMAGES, "gone"])
def test_damage_is_not_copied(world: World, west: MemoryStore, damage: str) -> None:  # semantics M1, W9
    world.run_epoch("e1")
    world.coordinator().mirror(west)
    before = _there(world, west).head().completed
    world.run_epoch("e2")
    key = next(found.key for found in world.store.list(f"{world.job}/chk-0000000002/") if "/state/" in found.key)
    data = world.memory.get(key).data
    world.store.delete([key])
    if damage != "gone":
        world.memory.put(key, DAMAGES[damage](data))
    with pytest.raises(DamagedError, match="a file of the checkpoint cannot be copied"):
        world.coordinator().mirror(west)
    assert _there(world, west).head().completed == before
    assert key not in {found.key for found in west.list("")}
    world.memory.put(key, data)
    world.coordinator().mirror(west)
    _assert_whole(world, west)


@pytest.mark.parametrize("retained", [1, 3])
def test_what_the_mirror_retains_stays_whole(world: World, west: MemoryStore, retained: int) -> None:  # semantics M2
    world.config = replace(world.config, retained=retained)
    for number in range(1, 9):
        world.run_epoch(f"e{number}")
        world.coordinator().mirror(west)
        _assert_whole(world, west)
        assert len(_there(world, west).head().completed) == min(number, retained)
        assert _keys(world, west) == _keys(world, world.memory)
        assert world.coordinator().mirror(west).deleted == 0, "the pass before has dropped what the job has dropped"


def test_a_sweep_aborts_unfinished_uploads(world: World, west: MemoryStore) -> None:  # semantics M2, W7
    world.run_epoch("e1")
    with pytest.raises(Crashed):
        world.coordinator().mirror(FaultyStore(west, 6, Fault.CRASH_AFTER), parallel=1)
    world.clock.advance(known(world.config.timeout) * 12)
    world.run_epoch("e2", "e3", "e4")
    dead, lives = (west.begin_upload(f"{world.job}/chk-{number:010d}/state/part") for number in (1, 5))
    world.coordinator().mirror(west)
    # A pass that has begun since may copy the next checkpoint.
    assert [*west.uploads("")] == [lives], f"and {dead} is of a checkpoint that the job has dropped"
    _assert_whole(world, west)


class _Keeps(MemoryStore):
    """Deletes nothing while it is told not to."""

    keeps = True

    def delete(self, keys: Iterable[str]) -> DeleteFailures:
        if self.keeps:
            return [DeleteFailure(key, "denied") for key in keys]
        return super().delete(keys)


def test_what_could_not_be_deleted_the_next_pass_deletes(world: World) -> None:  # semantics M2, W7
    west = _Keeps(WEST)
    for number in range(1, 5):
        world.run_epoch(f"e{number}")
        found = world.coordinator().mirror(west)
    assert found.failures
    assert found.deleted == 0
    assert _keys(world, west) > _keys(world, world.memory)
    west.keeps = False
    assert world.coordinator().mirror(west).deleted > 0
    assert _keys(world, west) == _keys(world, world.memory)
    _assert_whole(world, west)


def test_a_pass_whose_last_answer_is_lost_ends_as_any_other(world: World, west: MemoryStore) -> None:
    """semantics M1, M2, W2"""
    for epoch in ("e1", "e2", "e3"):
        world.run_epoch(epoch)
        world.coordinator().mirror(west)
    world.run_epoch("e4")
    calm, recording = world.fork(), RecordingStore(west.fork())
    expected = calm.coordinator().mirror(recording)
    assert expected.deleted > 0
    at = [each.verb for each in recording.writes].index("replace")
    assert world.coordinator().mirror(FaultyStore(west, at, Fault.ANSWER_LOST)) == expected
    assert world.coordinator().head().mirrors == calm.coordinator().head().mirrors, "nothing is left to sweep"


def test_an_older_pass_takes_nothing_back(world: World, west: MemoryStore) -> None:  # semantics M1, M2
    world.run_epoch("e1")
    newer: list[int] = []

    def another(_: object) -> None:
        if not newer:
            newer.append(0)
            world.run_epoch("e2")
            newer[0] = world.coordinator().mirror(west).checkpoint

    assert world.coordinator().mirror(west, another, parallel=1).checkpoint == newer[0] == 2
    _assert_whole(world, west)
    world.coordinator().mirror(west)
    assert _keys(world, west) == _keys(world, world.memory)


@pytest.mark.parametrize("first", [0, 3])
def test_a_pass_writes_no_head_of_a_mirror_that_is_activated_meanwhile(
    world: World, west: MemoryStore, first: int
) -> None:  # semantics M5
    world.run_epoch("e1")
    world.coordinator().mirror(west)
    world.run_epoch("e2")

    def activate(progress: FilesProgress) -> None:
        if progress.files_done == first + 1:
            _there(world, west).activate()

    with pytest.raises(RefusedError, match="was activated: the job goes on there"):
        world.coordinator().mirror(west, activate, parallel=1)
    head = _there(world, west).head()
    assert [each.epoch for each in head.completed] == ["e1"]
    assert not head.is_mirror
    assert known(world.coordinator().head().moved).uri == west.uri
    assert [each for each in _there(world, west).verify(deep=True) if not each.whole] == []


@pytest.mark.parametrize("damage", ["gone", "a byte less"])
def test_a_mirror_that_lost_its_metadata_is_copied_anew(
    world: World, west: MemoryStore, damage: str
) -> None:  # semantics M1, M2
    world.run_epoch("e1")
    world.coordinator().mirror(west)
    key = f"{world.job}/{known(_there(world, west).head().latest_completed()).metadata.key}"
    data = west.get(key).data
    west.delete([key])
    if damage != "gone":
        west.put(key, DAMAGES[damage](data))
    for epoch in ("e2", "e3", "e4"):
        world.run_epoch(epoch)
        world.coordinator().mirror(west)
        assert max(_there(world, west).verify(deep=True), key=lambda each: each.checkpoint).whole, "the newest"
    assert _keys(world, west) == _keys(world, world.memory)
    _assert_whole(world, west)
