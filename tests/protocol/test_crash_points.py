"""Every write of the protocol, and each fault at it; the next process settles it (C1, D3, W2, W4).

The writes are taken from a recording store and not from a hand-written list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta

import pytest

from airflow_cairn.checkpoint.errors import CheckpointError, CheckpointNotReadyError
from airflow_cairn.checkpoint.reasons import Reason
from airflow_cairn.storage import UnavailableError
from tests.support.parsed_once import parsed_once
from tests.support.shut_down import shut_down
from tests.support.world.crash_case import CrashCase, assert_a_lost_answer_changes_no_answer, crash_cases, in_each_place
from tests.support.world.operation import EPOCH, Operation, forked, writes_of
from tests.support.world.operations_appending import APPENDING_OPERATIONS
from tests.support.world.operations_attempt import ATTEMPT_OPERATIONS
from tests.support.world.operations_hooks import HOOK_OPERATIONS
from tests.support.world.operations_left_out import LEFT_OUT_OPERATIONS
from tests.support.world.operations_region import REGION_OPERATIONS
from tests.support.world.operations_request import REQUEST_OPERATIONS
from tests.support.world.operations_restart import RESTART_OPERATIONS
from tests.support.world.operations_trigger_right import TRIGGER_RIGHT_OPERATIONS
from tests.support.world.world import TIMEOUT, World
from tests.support.wrapped_stores import Crashed, Fault

pytestmark = pytest.mark.large


@pytest.fixture(scope="module", autouse=True)
def _quick() -> Iterator[None]:
    with parsed_once():
        yield


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


def _finish(world: World) -> None:
    world.settle("e1", EPOCH)


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
    """What is pending is given up, and another epoch completes."""
    world.coordinator().restore_latest()
    world.settle("e1", "e3")


def _stop(world: World) -> None:
    shut_down(world.coordinator())


def _clean(world: World) -> None:
    world.coordinator().clean()


OTHERS: dict[str, Callable[[World], None]] = {
    "a finisher": _finish,
    "an aborter": _abort,
    "an expirer": _expire,
    "a newer try": _take_over,
    "another epoch": _overtake,
    "who stops the job": _stop,
    "a cleaner": _clean,
}


CASES = tuple(crash_cases(OPERATIONS, OTHERS))


@pytest.mark.parametrize(("place", "case"), in_each_place(CASES, str), ids=str, indirect=["place"])
def test_whoever_comes_next_settles_it(place: str, case: CrashCase) -> None:  # semantics C1, D3, T7, W2
    with case.operation.limited():
        _strike_and_settle(case)


def _strike_and_settle(case: CrashCase) -> None:
    world, run = forked(case.operation)
    store = case.faulty(world, OTHERS)
    try:
        run(world, store)
    except Crashed:
        assert case.fault in (Fault.CRASH_BEFORE, Fault.CRASH_AFTER)
    except UnavailableError:
        # A delete whose answer is lost is not settled, only repeated by the process that cleans next.
        assert case.fault is Fault.FAILS or case.write.startswith("delete")
    except CheckpointError:
        assert case.other is not None, "only somebody else can make it fail"
    assert store.struck
    refused = world.settle(*case.operation.epochs)
    assert not refused or case.other == "another epoch", "only who was overtaken has nothing left to read"
    done = [each.epoch for each in world.counting()]
    assert sorted((*done, *refused)) == sorted(case.operation.epochs), "each completed once"
    world.audit(*done)


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
def test_a_lost_answer_changes_no_answer(operation: Operation) -> None:  # semantics W2
    assert_a_lost_answer_changes_no_answer(operation)


def test_enough_is_tried() -> None:
    print(f"\n{len(CASES)} crash points over {sum(len(writes_of(o)) for o in OPERATIONS)} writes")
    assert len(CASES) >= 1000
    assert {case.operation.name for case in CASES} == {operation.name for operation in OPERATIONS}, "each writes"
