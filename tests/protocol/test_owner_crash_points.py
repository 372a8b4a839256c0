"""Every write by which an owner stops a job, lets it go on or throws a savepoint away, and who may come between.

Whatever happens at a write: the next to ask finishes it, and if nobody does, the job stands still or goes on as P2
says. No epoch is lost or folded in twice, and nothing is left over (semantics P2, P3, S1, C3, D3, W2).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta

import pytest

from airflow_cairn.checkpoint import Runtime
from airflow_cairn.checkpoint.answers import Declined
from airflow_cairn.checkpoint.documents.entries import SavepointEntry, Stopped
from airflow_cairn.checkpoint.errors import CheckpointError, NoSavepointError, RefusedError
from airflow_cairn.checkpoint.reasons import Reason, Status
from airflow_cairn.checkpoint.savepoints import disposal, savepoint_format
from airflow_cairn.checkpoint.savepoints.savepoint_request import ImportOptions
from airflow_cairn.storage import UnavailableError
from airflow_cairn.storage.port import ObjectStore
from tests.support.narrowing import known
from tests.support.world.crash_case import in_each_place
from tests.support.world.operation import (
    EPOCH,
    Operation,
    Run,
    after,
    by,
    completed,
    completes,
    fails,
    forked,
    kind_of,
    ran,
    under_way,
    writes_of,
)
from tests.support.world.saved import saved
from tests.support.world.savepoints import TARGET, Below, asked, assert_whole, folder, standing, take
from tests.support.world.world import CONFIG, World
from tests.support.wrapped_stores import Crashed, Fault, FaultyStore, InterleavingStore

pytestmark = [pytest.mark.large, pytest.mark.usefixtures("parsed_once_for_all")]

LAST = "last"
HARMLESS = (Crashed, UnavailableError, CheckpointError)


# Stopping, and what belongs to it.


def _stop(world: World, store: ObjectStore | None = None) -> SavepointEntry:
    return take(world, asked("upgrade", stop=True), store)


def _drain(world: World, store: ObjectStore | None = None) -> SavepointEntry:
    return take(world, asked("upgrade", stop=True, drain=LAST), store)


def _stops(_: World) -> Run:
    return _stop


def _drains(_: World) -> Run:
    return _drain


def _tolerant(world: World) -> None:
    world.config = replace(CONFIG, tolerable_failed_checkpoints=3, max_concurrent_checkpoints=2)


def _ran_last(world: World) -> None:
    world.run_stages(LAST)


def _completes_last(world: World) -> Run:
    pending = world.pending_id(LAST)
    return lambda world, store: world.coordinator(store).complete(pending)


_idle = after(_tolerant, completed("e1"))
_running = after(_tolerant, under_way("clean"))
_stopping = after(_running, _stop)
_draining = after(_idle, _drain)
_resumes = by(lambda it: it.resume())

STOPPING = (
    Operation("stop an idle job", after(_idle, _stops)),
    Operation("ask a job to stop that runs", after(_running, _stops)),
    Operation("stop a job whose epoch has completed", after(_stopping, completed(EPOCH), _stops)),
    Operation("complete the epoch that a stop waits for", after(_stopping, ran, completes)),
    Operation("open the next attempt of that epoch", after(_stopping, fails("routes", has_written=False))),
    Operation("let a job go on that is being stopped", after(_stopping, _resumes)),
    Operation("ask for a last epoch", after(_idle, _drains)),
    Operation("begin the last epoch", after(_draining, lambda _: lambda world, store: world.ask(LAST, store))),
    Operation("complete the last epoch", after(_draining, _ran_last, _completes_last)),
    Operation("stop a job whose last epoch has completed", after(_draining, completed(LAST), _drains)),
    Operation("let a job go on whose last epoch runs", after(_draining, _ran_last, _resumes)),
)


def _again(world: World) -> None:
    """The process that asked asks again, until it has ended."""
    for request in ("another", "upgrade"):
        if request == "another" and world.coordinator().look_for_savepoint(request) is None:
            continue
        with suppress(RefusedError):  # the other one has stopped it
            _ask_until_it_has_ended(world, request)


def _ask_until_it_has_ended(world: World, request: str) -> None:
    entry = world.coordinator().look_for_savepoint(request)
    wish = asked(request, stop=True, drain=LAST if entry is not None and entry.drains else None)
    entry = take(world, wish)
    for _ in range(2):
        if entry.waits:
            with suppress(CheckpointError):
                world.run_epoch(entry.epoch)
            entry = take(world, wish)
    assert entry.ended


def _nobody(world: World) -> None:
    """Nobody asks again, and somebody triggers the next epoch a day later."""
    world.clock.advance(timedelta(days=1))
    world.ask("e7")


THEN = {"asked again": _again, "nobody for long": _nobody}


def _failover(world: World) -> None:
    """A try of the epoch that runs dies, and its next attempt is opened."""
    for entry in world.coordinator().head().pending:
        begun = world.coordinator().begin(entry.epoch, "airports", world.new_claimant())
        handover = getattr(begun, "handover", None)
        if handover is not None:
            world.coordinator().fail(entry.epoch, "airports", handover.claimant, "killed")


def _pause(world: World) -> None:
    """The DAG is paused and unpaused again, by somebody who knows of nothing."""
    world.coordinator().pause()
    world.coordinator().unpause()


def _rewind(world: World) -> None:
    for entry in world.coordinator().head().completed[:1]:
        world.coordinator().rewind(entry.id, abort_pending=True)


def _lose(world: World) -> None:
    for entry in world.coordinator().head().pending:
        world.coordinator().abort(entry.id, Reason.JOB_FAILURE, "the DAG run has ended")


def _import(world: World) -> None:
    world.coordinator().start_from(saved(world, "elsewhere"))


def _expire(world: World) -> None:
    world.clock.advance(timedelta(hours=2))
    world.coordinator().look_for_savepoint("x")


AT_A_STOP: dict[str, Callable[[World], object]] = {
    "a trigger": lambda world: world.ask("e5"),
    "a failover": _failover,
    "who unpauses": _pause,
    "who resumes": lambda world: world.coordinator().resume(),
    "who rewinds": _rewind,
    "who starts it from a savepoint": _import,
    "another stop": lambda world: take(world, asked("another", stop=True)),
    "who loses the epoch": _lose,
    "an expirer": _expire,
    "a cleaner": lambda world: world.coordinator().clean(),
}


@dataclass(frozen=True)
class Case:
    operation: Operation
    at: int
    write: str
    fault: Fault | None
    """None: nothing goes wrong, and the other one comes right before the write lands."""
    other: str | None = None
    then: str = "asked again"

    def __str__(self) -> str:
        name = self.write.rpartition("/")[2]
        met = f"{self.fault}" if self.fault else f"after {self.other}"
        return f"{self.operation.name}, write {self.at} ({name}): {met}, {self.then}"

    def shows(self) -> Iterator[Hashable]:
        """Yield what has to be seen once: each write struck, each operation and kind of write with all that comes."""
        yield self.operation.name, self.at
        yield self.operation.name, self.fault, self.other
        yield kind_of(self.write), self.fault, self.other, self.then


def _stop_cases() -> Iterator[Case]:
    for operation in STOPPING:
        for at, write in enumerate(writes_of(operation)):
            for then in THEN:
                yield from (Case(operation, at, write, fault, then=then) for fault in Fault)
            yield from (Case(operation, at, write, None, other) for other in AT_A_STOP)


def _struck(case: Case, others: dict[str, Callable[[World], object]]) -> World:
    """Run the operation, with what the case says at its write."""
    world, run = forked(case.operation)
    if case.fault is not None:
        faulty = FaultyStore(world.store, case.at, case.fault)
        with suppress(*HARMLESS):
            run(world, faulty)
        assert faulty.struck
        return world
    verb = case.write.partition(" ")[0]
    before = sum(each.startswith(f"{verb} ") for each in writes_of(case.operation)[: case.at])
    met: list[str] = []

    def meanwhile() -> None:
        assert case.other is not None
        with suppress(RefusedError, NoSavepointError):
            others[case.other](world)
        met.append(case.other)

    with suppress(CheckpointError):
        run(world, InterleavingStore(world.store, verb, before, meanwhile))
    assert met
    return world


@pytest.mark.parametrize(("place", "case"), in_each_place(_stop_cases()), ids=str, indirect=["place"])
def test_a_job_has_stopped_or_goes_on(place: str, case: Case) -> None:  # semantics P2, S1, D3, T6, W2
    world = _struck(case, AT_A_STOP)
    THEN[case.then](world)
    head = world.coordinator().head()
    stops = [each for each in head.savepoints if each.stops]
    assert all(each.ended for each in stops), "it is not being stopped for ever"
    made = [each for each in stops if each.status is Status.COMPLETED]
    for each in made:
        assert_whole(world, each)
    if head.stopped is Stopped.SHUTDOWN:
        assert made, "it stands still with a savepoint"
        assert (known(made[-1].source).checkpoint, head.pending) == (head.latest_id(), ()), "no epoch in between"
        assert isinstance(world.ask("e8"), Declined)
    else:
        assert head.stopped is None
        assert not made or case.other or case.operation.name.startswith("let a job go on"), "it was made: it stops"
    _audit(world, "e8", died=case.then != "asked again")


def _audit(world: World, *epochs: str, died: bool = False) -> None:
    """The job goes on from here; all that has completed is there once, and nothing is kept for nobody."""
    head = world.coordinator().head()
    cut_off = dict.fromkeys(each.epoch for each in head.history if head.resumable(each.epoch) is not None)
    world.settle(*cut_off, *epochs)
    assert set(epochs) <= {each.epoch for each in world.counting()}
    coordinator = world.coordinator()
    coordinator.clean()
    held = world.folded()["clean"]
    assert {uid: list(done) for uid, done in world.folded().items()} == {stage.uid: held for stage in world.stages}
    assert len(set(held)) == len(held), "none twice"
    assert held == [each.epoch for each in world.counting()] or coordinator.head().imports, "none lost"
    assert all(found.whole for found in coordinator.verify())
    assert world.standing() - world.lent() == world.referred(), "no orphan"
    _audit_target(world, died=died)


def _audit_target(world: World, *, died: bool) -> None:
    """The target holds what the head knows of, or the word of somebody who died before it did."""
    known = {entry.folder for entry in world.coordinator().head().savepoints}
    keys = [found.key.split("/") for found in Below(world.store, TARGET).list("")]
    unknown = {name for place, name, *_ in keys if place not in known}
    assert unknown <= ({savepoint_format.REQUEST} if died else set()), "nothing lies there that nobody knows of"


def test_every_operation_is_looked_at() -> None:
    names = {case.operation.name for case in _stop_cases()}
    assert names == {operation.name for operation in STOPPING}, "each writes"


# Throwing away.


def _dispose(world: World, entry: SavepointEntry, store: ObjectStore | None = None) -> object:
    store = store or world.store
    return disposal.dispose(store, Below(store, entry.uri), Runtime(world.clock, world.new_token))


def _prune(world: World, store: ObjectStore | None = None) -> object:
    store = store or world.store
    rule = disposal.HistoryRule(keep=1)
    runtime = Runtime(world.clock, world.new_token)
    return disposal.prune(store, "flights", rule, TARGET, lambda uri: Below(store, uri), runtime, series="n")


def _three(world: World) -> tuple[SavepointEntry, ...]:
    world.run_epoch("e1")
    made = [take(world, asked("n1")), take(world, asked("n2"))]
    world.run_epoch(EPOCH)
    return (*made, take(world, asked("n3")))


def _disposes(world: World) -> Run:
    entry = _three(world)[0]
    return lambda world, store: _dispose(world, entry, store)


THROWING = (
    Operation("throw one away", _disposes),
    Operation("throw away what is too old", after(_three, lambda _: _prune)),
)


def _known(world: World, request: str) -> SavepointEntry | None:
    return next((each for each in world.coordinator().head().savepoints if each.request == request), None)


def _start(world: World) -> None:
    entry = _known(world, "n1")
    if entry is not None:
        world.coordinator().start_from(folder(world, entry), ImportOptions(claim=True))


def _dispose_first(world: World) -> None:
    entry = _known(world, "n1")
    if entry is not None:
        _dispose(world, entry)


def _take_again(world: World) -> None:
    _dispose_first(world)
    take(world, asked("n1"))


AT_A_DISPOSAL: dict[str, Callable[[World], object]] = {
    "the same": _dispose_first,
    "who throws away what is too old": _prune,
    "who starts the job from it": _start,
    "who takes it again": _take_again,
    "who stops the job": _stop,
    "an epoch": lambda world: world.run_epoch("e5"),
    "a cleaner": lambda world: world.coordinator().clean(),
}


def _throws() -> Iterator[Case]:
    for operation in THROWING:
        for at, write in enumerate(writes_of(operation)):
            yield from (Case(operation, at, write, fault) for fault in Fault)
            yield from (Case(operation, at, write, fault, then="nobody for long") for fault in Fault)
            yield from (Case(operation, at, write, None, other) for other in AT_A_DISPOSAL)


@pytest.mark.parametrize(("place", "case"), in_each_place(_throws()), ids=str, indirect=["place"])
def test_what_is_thrown_away_is_gone_or_still_said(place: str, case: Case) -> None:  # semantics P3, R1, R6, D3, W2
    world = _struck(case, AT_A_DISPOSAL)
    newest = _known(world, "n3")
    assert newest is not None, "the newest one is kept"
    for entry in world.coordinator().head().savepoints:
        if not standing(world, entry):
            assert case.fault is not None, "the head forgets it last, and the next who disposes of it finishes"
    if case.then == "asked again":
        for request in ("n1", "n2") if "old" in case.operation.name else ("n1",):
            known = _known(world, request)
            if known is not None and case.other != "who takes it again":
                _dispose(world, known)
                assert standing(world, known) == []
    assert_whole(world, newest)
    head = world.coordinator().head()
    assert newest in head.savepoints
    assert {each.claimed for each in head.imports} <= {False}
    _audit(world, "e7")
    # A repeated request makes another savepoint, whole, whatever was still being deleted.
    if _known(world, "n1") is None:
        assert_whole(world, take(world, asked("n1")))


# Starting a job from a savepoint, while somebody throws that away.


def test_whoever_starts_from_one_that_is_thrown_away_has_a_copy_or_nothing() -> None:  # semantics R1, R6, P3
    origin = World()
    first = _three(origin)[0]

    def starts(_: World) -> Run:
        return lambda world, store: world.coordinator(store).start_from(folder(world, first))

    writes = writes_of(Operation("start from it", after(_three, starts)))
    assert len(writes) > 8
    for at, write in enumerate(writes):
        verb = write.partition(" ")[0]
        before = sum(each.startswith(f"{verb} ") for each in writes[:at])
        for force in (False, True):
            world = origin.fork()
            runtime = Runtime(world.clock, world.new_token)
            place = folder(world, first)
            refused = False

            def throw_away(world: World = world, force: bool = force, runtime: Runtime = runtime) -> None:
                nonlocal refused
                try:
                    disposal.dispose(world.store, folder(world, first), runtime, force=force)
                except RefusedError as error:
                    assert "is being started from it" in str(error)
                    refused = True

            started = True
            try:
                world.coordinator(InterleavingStore(world.store, verb, before, throw_away)).start_from(place)
            except NoSavepointError:
                started = False
            assert started or not refused, write
            assert bool(standing(world, first)) == refused, write
            head = world.coordinator().head()
            assert head.importing is None
            assert world.folded()["clean"] == (["e1"] if started else ["e1", EPOCH]), write
            _audit(world, "e7")
