"""Every write of a start from a savepoint, what can go wrong at it, and who may come between (C1, R5, R6, W2).

The next process ends up where an undisturbed start would have, or where the other party has led.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import cache

import pytest

from airflow_cairn.checkpoint.errors import CheckpointError, NoSavepointError, RefusedError
from airflow_cairn.checkpoint.savepoints import copy_in
from airflow_cairn.checkpoint.savepoints.savepoint_request import ImportOptions
from airflow_cairn.storage import ObjectStore, UnavailableError
from tests.support.covering import covering
from tests.support.memory_store import MemoryStore
from tests.support.parsed_once import one_after_the_other
from tests.support.world.operation import kind_of
from tests.support.world.places import CLOUDS, MEMORY, can_fork
from tests.support.world.saved import audit_started, saved
from tests.support.world.world import World
from tests.support.wrapped_stores import Crashed, Fault, FaultyStore, InterleavingStore, RecordingStore

CLAIM = ImportOptions(claim=True)


pytestmark = pytest.mark.large


@pytest.fixture(scope="module", autouse=True)
def _in_order() -> Iterator[None]:
    with one_after_the_other(copy_in):
        yield


@dataclass
class Scene:
    """A job, and the savepoint that it is to start from."""

    world: World
    folder: ObjectStore

    def fork(self) -> Scene:
        assert isinstance(self.folder, MemoryStore)
        return Scene(self.world.fork(), self.folder.fork())

    def start(self, store: ObjectStore | None = None, folder: ObjectStore | None = None) -> object:
        return self.world.coordinator(store).start_from(folder or self.folder, CLAIM)


def _new() -> Scene:
    """A new job, and another one's savepoint."""
    old = World()
    old.run_epoch("e1", "e2")
    return Scene(World(), saved(old, job="rides"))


def _back() -> Scene:
    """A job that has gone on since the savepoint was taken, and has an epoch under way."""
    world = World()
    world.run_epoch("e1", "e2")
    folder = saved(world)
    world.run_epoch("e3")
    world.trigger("e4")
    world.run_stage("e4", "clean")
    return Scene(world, folder)


SCENES: dict[str, Callable[[], Scene]] = {"a new job": _new, "going back": _back}


@cache
def _in_memory(name: str) -> Scene:
    return SCENES[name]()


def scene_of(name: str) -> Scene:
    """Give a scene of one's own, where worlds lie."""
    return _in_memory(name).fork() if can_fork() else SCENES[name]()


@cache
def _writes(name: str) -> tuple[list[str], list[str]]:
    scene = scene_of(name)
    job, folder = RecordingStore(scene.world.store), RecordingStore(scene.folder)
    with one_after_the_other(copy_in):
        scene.start(job, folder)
    return [str(each) for each in job.writes], [str(each) for each in folder.writes]


def _cases() -> Iterator[tuple[str, bool, int, Fault]]:
    for name in SCENES:
        job, folder = _writes(name)
        for fault in Fault:
            yield from ((name, False, at, fault) for at in range(len(job)))
            yield from ((name, True, at, fault) for at in range(len(folder)))


Case = tuple[str, str, bool, int, Fault]


def _shows(case: Case) -> Iterator[Hashable]:
    """Yield what has to be seen once: each write struck, and in each store each fault at each kind of write."""
    _, name, in_folder, at, fault = case
    yield name, in_folder, at
    yield name, in_folder, fault
    yield in_folder, kind_of(_writes(name)[in_folder][at]), fault


def _shows_on_clouds(case: Case) -> Iterator[Hashable]:
    """Yield what `make test` shows on the clouds: of each something."""
    yield case[0]


EACH = [
    *covering([(MEMORY, *case) for case in _cases()], _shows),
    *covering([(cloud, *case) for case in _cases() for cloud in CLOUDS], _shows_on_clouds),
]
in_each_place = pytest.mark.parametrize(("place", "name", "in_folder", "at", "fault"), EACH, indirect=["place"])


def _struck(name: str, in_folder: bool, at: int, fault: Fault) -> Scene:
    """Start the job from the savepoint, with a fault at a write; give what that leaves."""
    scene = scene_of(name)
    faulty = FaultyStore(scene.folder if in_folder else scene.world.store, at, fault)
    with suppress(Crashed, UnavailableError):
        scene.start(*((None, faulty) if in_folder else (faulty, None)))
    assert faulty.struck
    return scene


@in_each_place
def test_whoever_names_it_next_finishes_it(place: str, name: str, in_folder: bool, at: int, fault: Fault) -> None:
    scene = _struck(name, in_folder, at, fault)
    whole = bool(list(scene.folder.list("")))
    made = scene.world.coordinator().head().imports
    assert whole or made, "it is not deleted before it is copied"
    scene.world.coordinator().clean()
    with suppress(NoSavepointError):  # done, down to the last note of it
        scene.start()
    assert list(scene.folder.list("")) == [], "the job owns it"
    head = scene.world.coordinator().head()
    assert [each.claimed for each in head.imports] == [False], "once"
    audit_started(scene.world, "e1", "e2")
    scene.world.run_epoch("e3", "e4")
    audit_started(scene.world, "e1", "e2", "e3", "e4")


@in_each_place
def test_if_nobody_goes_on_with_it_the_job_does(place: str, name: str, in_folder: bool, at: int, fault: Fault) -> None:
    # semantics D2, C3, R1: what was copied does not stay for good
    scene = _struck(name, in_folder, at, fault)
    world = scene.world
    world.clock.advance(timedelta(days=8))
    started = bool(world.coordinator().head().imports)
    before = ["e1", "e2"] if started else [each.epoch for each in world.counting()]
    world.settle("e4", "e5")
    audit_started(world, *before, "e4", "e5")
    assert started or list(scene.folder.list("")), "nobody has deleted what the job has no copy of"


def _another(scene: Scene) -> None:
    world = World()
    world.run_epoch("x1")
    scene.world.coordinator().start_from(saved(world, "other", job="rides"))


def _epoch(scene: Scene) -> None:
    with suppress(CheckpointError):
        for entry in scene.world.coordinator().head().pending:
            scene.world.run_epoch(entry.epoch)
        scene.world.run_epoch("e9")


def _rewind(scene: Scene) -> None:
    for entry in scene.world.coordinator().head().completed[:1]:
        scene.world.coordinator().rewind(entry.id, abort_pending=True)


OTHERS: dict[str, Callable[[Scene], object]] = {
    "the same once more": Scene.start,
    "another savepoint": _another,
    "an epoch": _epoch,
    "a trigger": lambda scene: scene.world.ask("e8"),
    "a rewind": _rewind,
    "a cleaner": lambda scene: scene.world.coordinator().clean(),
}


@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("name", SCENES)
def test_who_comes_between_is_before_it_or_after_it(name: str, other: str) -> None:  # semantics D3, R5, T6
    writes = _writes(name)[0]
    for at, write in enumerate(writes):
        verb = write.partition(" ")[0]
        _meet(name, other, verb, sum(each.startswith(f"{verb} ") for each in writes[:at]), write)


def _meet(name: str, other: str, verb: str, at: int, write: str) -> None:
    """Let the other act right before a write reaches the store, and see that the job stands somewhere sound."""
    scene = scene_of(name)
    store = InterleavingStore(scene.world.store, verb, at, lambda: OTHERS[other](scene))
    replaced = False
    try:
        scene.start(store)
    except RefusedError:
        assert other == "another savepoint", write
        replaced = True
    except NoSavepointError:
        assert other == "the same once more", write
    world = scene.world
    head = world.coordinator().head()
    assert head.importing is None, write
    stands = [each for each in head.imports if head.rewind_of(each.checkpoint) is None]
    # The process that rewinds at the very end goes back behind it, to the checkpoint that the savepoint was taken of.
    assert len(stands) == 1 or (other == "a rewind" and head.latest_id() == 2), "the later one is where the job stands"
    led_away = any(each.origin.epoch == "x1" for each in stands)
    assert replaced <= led_away <= (other == "another savepoint"), write
    world.coordinator().clean()
    for entry in head.pending:
        world.run_epoch(entry.epoch)
    start = stands[0].checkpoint if stands else 2
    since = [each.epoch for each in world.counting() if each.id > start]
    audit_started(world, *(["x1"] if led_away else ["e1", "e2"]), *since)
    assert len(set(since)) == len(since), "each once"
