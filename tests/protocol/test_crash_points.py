"""Every write of the protocol, and each fault at it; the next process settles it (C1, D3, W2, W4).

Of taking a savepoint it leaves none or one (P1). The writes are taken from a recording store and not from a list.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta

import pytest

from airflow_cairn.checkpoint.errors import (
    CheckpointError,
    CheckpointFailedError,
    CheckpointNotReadyError,
    NoSavepointError,
)
from airflow_cairn.checkpoint.reasons import Reason, Status
from airflow_cairn.checkpoint.savepoints import savepoint_format
from airflow_cairn.checkpoint.savepoints.integrity import load
from airflow_cairn.checkpoint.savepoints.savepoint_format import METADATA
from airflow_cairn.storage import UnavailableError
from tests.support.shut_down import shut_down
from tests.support.world.crash_case import (
    CrashCase,
    Others,
    assert_a_lost_answer_changes_no_answer,
    crash_cases,
    in_each_place,
)
from tests.support.world.listeners import complete_staged
from tests.support.world.operation import (
    EPOCH,
    Operation,
    Run,
    after,
    completed,
    completes,
    forked,
    ran,
    under_way,
    writes_of,
)
from tests.support.world.operations_appending import APPENDING_OPERATIONS
from tests.support.world.operations_attempt import ATTEMPT_OPERATIONS
from tests.support.world.operations_hooks import HOOK_OPERATIONS
from tests.support.world.operations_left_out import LEFT_OUT_OPERATIONS
from tests.support.world.operations_region import REGION_OPERATIONS
from tests.support.world.operations_request import REQUEST_OPERATIONS
from tests.support.world.operations_restart import RESTART_OPERATIONS
from tests.support.world.operations_trigger_right import TRIGGER_RIGHT_OPERATIONS
from tests.support.world.savepoints import TARGET, Below, asked, assert_whole, folder, standing, take
from tests.support.world.world import TIMEOUT, World
from tests.support.wrapped_stores import Crashed, Fault, FaultyStore

pytestmark = [pytest.mark.large, pytest.mark.usefixtures("parsed_once_for_all")]


OPERATIONS = (
    *ATTEMPT_OPERATIONS,
    *REQUEST_OPERATIONS,
    *LEFT_OUT_OPERATIONS,
    *RESTART_OPERATIONS,
    *HOOK_OPERATIONS,
    *REGION_OPERATIONS,
    *APPENDING_OPERATIONS,
    *TRIGGER_RIGHT_OPERATIONS,
)


def _abort(world: World) -> None:
    for entry in world.coordinator().head().pending:
        world.coordinator().abort(entry.id, Reason.JOB_FAILURE, "somebody else aborts")


def _expire(world: World) -> None:
    world.clock.advance(TIMEOUT + timedelta(seconds=1))
    world.coordinator().progress(EPOCH)


def _take_over(world: World) -> None:
    """A newer try of the first stage comes up, wherever the job stands."""
    if world.coordinator().head().pending_of_epoch(EPOCH) is not None:
        with suppress(CheckpointNotReadyError):  # its hooks have not answered yet
            world.coordinator().begin(EPOCH, "clean", world.new_claimant())


def _overtake(world: World) -> None:
    """Pending attempts are given up, and another epoch completes."""
    world.coordinator().restore_latest()
    world.settle("e1", "e3")


OTHERS: dict[str, Callable[[World], object]] = {
    "a finisher": lambda world: world.settle("e1", EPOCH),
    "an aborter": _abort,
    "an expirer": _expire,
    "a newer try": _take_over,
    "another epoch": _overtake,
    "who stops the job": lambda world: shut_down(world.coordinator()),
    "a cleaner": lambda world: world.coordinator().clean(),
}


CASES = tuple(crash_cases(OPERATIONS, OTHERS))


@pytest.mark.parametrize(("place", "case"), in_each_place(CASES), ids=str, indirect=["place"])
def test_whoever_comes_next_settles_it(place: str, case: CrashCase) -> None:  # semantics C1, D3, T7, W2
    with case.operation.limited():
        world = _struck(case, OTHERS, CheckpointError)
        refused = world.settle(*case.operation.epochs)
        assert not refused or case.other == "another epoch", "only who was overtaken has nothing left to read"
        done = [each.epoch for each in world.counting()]
        assert sorted((*done, *refused)) == sorted(case.operation.epochs), "each completed once"
        world.audit(*done)


def _struck(case: CrashCase, others: Others, refusal: type[CheckpointError]) -> World:
    """Do the operation, and strike it; give what the strike leaves."""
    world, run = forked(case.operation)
    store = case.faulty(world, others)
    try:
        run(world, store)
    except Crashed:
        assert case.fault in (Fault.CRASH_BEFORE, Fault.CRASH_AFTER)
    except UnavailableError:
        # A delete whose answer is lost is not settled, only repeated by the process that cleans next.
        assert case.fault is Fault.FAILS or case.write.startswith("delete")
    except refusal:
        assert case.other is not None, "only somebody else can make it fail"
    assert store.struck
    return world


REQUEST = asked(renew=True)


def _takes(_: World) -> Run:
    return lambda world, store: take(world, REQUEST, store)


def _asked(world: World) -> None:
    assert take(world).status is Status.PENDING, "it waits for the epoch, or for a sink"


def _failed(world: World) -> None:
    """A savepoint has failed half-way; the epoch after it has completed since."""
    with suppress(UnavailableError):
        take(world, store=FaultyStore(world.store, 4, Fault.FAILS))
    world.clock.advance(timedelta(hours=1))
    world.run_epoch(EPOCH)
    entry = world.coordinator().look_for_savepoint("by hand")
    assert entry is not None
    assert entry.status is Status.FAILED
    assert len(standing(world, entry)) > 1, "what had been copied"


def _deliver(world: World) -> None:
    world.coordinator().deliver(world.ears)


# The sink has not committed yet what the newest checkpoint counts.
_owed = after(lambda world: world.listen("sink"), completed("e1"), lambda world: complete_staged(world, EPOCH))

SAVING = (
    Operation("take one of an idle job", after(completed("e1"), _takes)),
    Operation("ask for one while a sink has to commit", after(_owed, _takes)),
    Operation("take one that has waited for a sink", after(_owed, _asked, completed("e3"), _deliver, _takes)),
    Operation(
        "take one of an epoch that has completed", after(under_way(), _asked, completed(EPOCH, "e3", "e4"), _takes)
    ),
    Operation("ask for one of a running epoch", after(under_way(), _takes)),
    Operation("complete a checkpoint that one waits for", after(under_way(), _asked, ran, completes)),
    Operation("take one anew", after(completed("e1"), _failed, _takes)),
)


def _expire_savepoint(world: World) -> None:
    world.clock.advance(timedelta(hours=1))
    world.coordinator().look_for_savepoint("by hand")


def _go_on(world: World) -> None:
    """The epoch completes, and the next one, sinks commit, and what nobody needs is deleted."""
    world.settle(EPOCH, "e5")
    _deliver(world)


def _rewind(world: World) -> None:
    """The job goes back to its oldest checkpoint."""
    for entry in world.coordinator().head().completed[:1]:
        world.coordinator().rewind(entry.id, abort_pending=True)


AT_A_SAVEPOINT: dict[str, Callable[[World], object]] = {
    "the same request": lambda world: take(world, REQUEST),
    "another request": lambda world: take(world, asked("another")),
    "who rewinds": _rewind,
    "an expirer": _expire_savepoint,
    "the job goes on": _go_on,
    "an aborter": _abort,
}


SAVEPOINTS = tuple(crash_cases(SAVING, AT_A_SAVEPOINT))


@pytest.mark.parametrize(("place", "case"), in_each_place(SAVEPOINTS), ids=str, indirect=["place"])
def test_none_or_one(place: str, case: CrashCase) -> None:  # semantics P1, D3, W2, C3
    world = _struck(case, AT_A_SAVEPOINT, CheckpointFailedError)
    _assert_none_or_one(world)
    _go_on(world)
    # The next process gets one, and it is whole; asked again it is the same.
    entry = take(world, REQUEST)
    named = {file.key for file in assert_whole(world, entry).files}
    assert set(standing(world, entry)) == {*named, METADATA, savepoint_format.REQUEST}, "nothing of another lies there"
    assert take(world, REQUEST) == entry
    others = [each for each in world.coordinator().head().savepoints if each.id != entry.id]
    assert [each.request for each in others] == ["another"] * (case.other == "another request")
    for each in others:
        assert_whole(world, take(world, asked(each.request)))
    known = {each.folder for each in (entry, *others)}
    assert {found.key.partition("/")[0] for found in Below(world.store, TARGET).list("")} == known, (
        "what failed before has left nothing"
    )
    world.coordinator().clean()
    world.audit(*(each.epoch for each in world.counting()))
    assert world.standing() == world.referred(), "nothing is kept for it any more"


def _assert_none_or_one(world: World) -> None:
    entry = world.coordinator().head().savepoint_by_request("by hand")
    if entry is None:
        return
    if entry.status is Status.COMPLETED:
        assert_whole(world, entry)
    else:
        # A savepoint that stands before the head says so is whole all the same.
        with suppress(NoSavepointError):
            load(folder(world, entry))


@pytest.mark.parametrize("operation", [*OPERATIONS, *SAVING], ids=lambda operation: operation.name)
def test_a_lost_answer_changes_no_answer(operation: Operation) -> None:  # semantics W2
    assert_a_lost_answer_changes_no_answer(operation)


def test_enough_is_tried() -> None:
    print(f"\n{len(CASES)} crash points over {sum(len(writes_of(o)) for o in OPERATIONS)} writes")
    assert len(CASES) >= 1000
    assert len(SAVEPOINTS) >= 200
    assert {case.operation.name for case in CASES} == {operation.name for operation in OPERATIONS}, "each writes"
