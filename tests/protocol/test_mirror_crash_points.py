"""Every write of a pass to a mirror, what can go wrong at it, and who may come between (semantics M1 to M5)."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache

import pytest

from airflow_cairn.checkpoint import Coordinator, Runtime
from airflow_cairn.checkpoint.errors import CheckpointError
from airflow_cairn.checkpoint.mirrors import mirror_pass
from airflow_cairn.storage import ObjectStore, UnavailableError
from tests.support.covering import covering
from tests.support.memory_store import MemoryStore
from tests.support.parsed_once import one_after_the_other
from tests.support.world.operation import kind_of
from tests.support.world.world import World
from tests.support.wrapped_stores import Crashed, Fault, FaultyStore, RecordingStore

pytestmark = pytest.mark.large


@pytest.fixture(scope="module", autouse=True)
def _in_order() -> Iterator[None]:
    with one_after_the_other(mirror_pass):
        yield


@dataclass
class Scene:
    """A job and its mirror."""

    world: World
    mirror: MemoryStore

    def fork(self) -> Scene:
        return Scene(self.world.fork(), self.mirror.fork())

    def there(self, store: ObjectStore | None = None) -> Coordinator:
        return Coordinator(store or self.mirror, self.world.job, Runtime(self.world.clock, self.world.new_token))

    def run(self, store: ObjectStore | None = None, mirror: ObjectStore | None = None) -> object:
        return self.world.coordinator(store).mirror(mirror or self.mirror)

    def activate(self, store: ObjectStore | None = None, mirror: ObjectStore | None = None) -> object:
        return self.there(mirror).activate(store or self.world.store)

    def audit(self) -> None:
        """The mirror's head names only what is whole."""
        head = self.there().head()
        if head.completed:
            assert [each for each in self.there().verify() if not each.whole] == []


def _job(*epochs: str) -> Scene:
    world = World()
    world.appends = True
    world.run_epoch(*epochs)
    return Scene(world, MemoryStore("other"))


@cache
def _first() -> Scene:
    return _job("e1", "e2")


@cache
def _next() -> Scene:
    """A pass that drops what has left, while an epoch is under way."""
    scene = _job("e1", "e2")
    scene.run()
    scene.world.run_epoch("e3")
    scene.run()
    scene.world.run_epoch("e4")
    scene.world.trigger("e5")
    scene.world.run_stage("e5", "clean")
    return scene


PASSES: dict[str, Callable[[], Scene]] = {"the first pass": _first, "a later pass": _next}
ACTS: dict[str, tuple[Callable[[], Scene], Callable[..., object]]]
ACTS = {**{name: (scene, Scene.run) for name, scene in PASSES.items()}, "activate": (_next, Scene.activate)}


def _cleaner(scene: Scene) -> None:
    scene.world.run_epoch("e5", "e6", "e7")


def _newer_pass(scene: Scene) -> None:
    _cleaner(scene)
    scene.run()


def _failing_pass(scene: Scene) -> None:
    """The failed pass leaves files of a checkpoint that has gone when the next pass begins."""
    _cleaner(scene)
    with suppress(UnavailableError):
        scene.run(mirror=FaultyStore(scene.mirror, 3, Fault.FAILS))
    scene.world.run_epoch("e6-1", "e6-2", "e6-3", "e6-4")


def _rewind(scene: Scene) -> None:
    scene.world.coordinator().rewind(scene.world.coordinator().head().completed[0].id, abort_pending=True)
    scene.world.coordinator().clean()


def _activation(scene: Scene) -> None:
    with suppress(CheckpointError):
        scene.there().activate()


def _giving_up(scene: Scene) -> None:
    with suppress(CheckpointError):
        scene.world.coordinator().give_up_mirror(scene.mirror.uri, lambda: scene.mirror)


GIVING_UP = "who gives the mirror up"
OTHERS: dict[str, Callable[[Scene], object]] = {
    "nobody": lambda _: None,
    "epochs, and their cleaner": _cleaner,
    "a rewind": _rewind,
    "a second pass": Scene.run,
    "a newer pass": _newer_pass,
    "a newer pass that fails": _failing_pass,
    "an activation": _activation,
    GIVING_UP: _giving_up,
}


@cache
def _writes(name: str) -> tuple[list[str], list[str]]:
    made, act = ACTS[name]
    scene = made().fork()
    job, mirror = RecordingStore(scene.world.store), RecordingStore(scene.mirror)
    with one_after_the_other(mirror_pass):
        act(scene, job, mirror)
    return [str(each) for each in job.writes], [str(each) for each in mirror.writes]


def _cases() -> Iterator[tuple[str, bool, int, Fault, str]]:
    for name in ACTS:
        job, mirror = _writes(name)
        for there, writes in ((False, job), (True, mirror)):
            for at in range(len(writes)):
                yield from ((name, there, at, fault, "nobody") for fault in Fault)
                yield from ((name, there, at, Fault.ANSWER_LOST, other) for other in list(OTHERS)[1:])


def _shows(case: tuple[str, bool, int, Fault, str]) -> Iterator[Hashable]:
    """Yield what has to be seen once: each write struck, and in each store each fault at each kind of write."""
    name, there, at, fault, other = case
    yield name, there, at
    yield name, there, fault, other
    yield there, kind_of(_writes(name)[there][at]), fault, other


@pytest.mark.parametrize(("name", "there", "at", "fault", "other"), covering(_cases(), _shows))
def test_the_next_pass_finishes_it(name: str, there: bool, at: int, fault: Fault, other: str) -> None:
    """The mirror's head names whole files, whatever dies and whoever comes between (semantics M1, M2, M3)."""
    made, act = ACTS[name]
    scene = made().fork()
    faulty = FaultyStore(scene.mirror if there else scene.world.store, at, fault, lambda: OTHERS[other](scene))
    with suppress(Crashed, UnavailableError, CheckpointError):
        act(scene, *((None, faulty) if there else (faulty, None)))
    assert faulty.struck
    scene.audit()
    head = scene.there().head()
    if head.mirror_of is not None and head.mirror_of.activated_at_ms:
        passes = scene.world.coordinator().head().mirrors if name != "activate" and other != "nobody" else ()
        assert not any(each.holds for each in passes), "a pass that finds the mirror activated ends its hold"
        _goes_on_there(scene)
        return
    if other == GIVING_UP:
        _giving_up(scene)
        scene.world.settle("e5", "e8")
        return
    if name == "activate" and scene.world.coordinator().head().moved is not None:
        scene.activate()
        _goes_on_there(scene)
        return
    with suppress(CheckpointError):
        scene.world.settle("e5", "e8")
    scene.run()
    scene.audit()
    latest = scene.world.coordinator().head().latest_completed()
    assert scene.there().head().latest_completed() == latest
    named = {found.key for found in scene.mirror.list("")} - {found.key for found in scene.world.store.list("")}
    assert named == set(), "a mirror holds nothing that the job does not hold"


def _goes_on_there(scene: Scene) -> None:
    """The job runs in its mirror, and in its first storage no more (semantics M5)."""
    world = World(scene.mirror, job=scene.world.job)
    world.clock, world._tokens, world.appends = scene.world.clock, scene.world._tokens, True
    before = world.folded()
    world.settle("e8", "e9")
    assert world.folded() == {stage: [*epochs, "e8", "e9"] for stage, epochs in before.items()}
    world.coordinator().clean()
    assert world.standing() - world.lent() == world.referred(), "no orphan"
    with pytest.raises(CheckpointError) as refused:
        scene.run()
    assert refused.value.code in ("mirror_activated", "job_moved")
    with pytest.raises(CheckpointError, match="has moved to"):
        scene.world.trigger("e10")
    assert not scene.world.coordinator().head().pending
