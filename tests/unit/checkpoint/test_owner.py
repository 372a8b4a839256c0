"""One DAG of one deployment owns a job; another one changes nothing until it adopts the job (semantics W8)."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from airflow_cairn.checkpoint import RequestKind
from airflow_cairn.checkpoint.answers import Declined, TriggerAnswer, Triggered
from airflow_cairn.checkpoint.documents.attempt import Owner
from airflow_cairn.checkpoint.documents.entries import JobOwner
from airflow_cairn.checkpoint.errors import InvalidConfigError
from airflow_cairn.checkpoint.reasons import Reason, Status
from airflow_cairn.checkpoint.rules.admission import MAX_DEPLOYMENT, Adopted, RunState, check_deployment, describe_owner
from tests.support.errors import raises_code
from tests.support.narrowing import expect, known
from tests.support.world.world import World
from tests.support.wrapped_stores import InterleavingStore

HERE = JobOwner("flights", "https://airflow.example.com")
OTHERS = [
    JobOwner("flights", "https://staging.example.com"),
    JobOwner("flights"),
    JobOwner("copy_of_flights", HERE.deployment),
]


def run_of(owner: JobOwner, epoch: str) -> Owner:
    return Owner(owner.dag_id, epoch, owner.deployment)


def ask(
    world: World, epoch: str, owner: JobOwner = HERE, state_of: Callable[[Owner], RunState] | None = None
) -> TriggerAnswer:
    request = world.request(epoch, run_of(owner, epoch))
    return world.coordinator().trigger(request, *([state_of] if state_of else []))


def stranger(state: RunState) -> Callable[[Owner], RunState]:
    return lambda owner: state


def test_the_first_trigger_records_the_owner(world: World) -> None:
    """Also in a job of version 0.1, which has run without one."""
    world.run_epoch("e0")
    assert world.coordinator().head().owner is None
    ask(world, "e1")
    assert world.coordinator().head().owner == HERE
    world.finish("e1")
    ask(world, "e2")
    assert world.coordinator().head().owner == HERE


@pytest.mark.parametrize("other", OTHERS, ids=describe_owner)
@pytest.mark.parametrize("epoch", ["e1", "e2"], ids=["the same run id", "another run"])
def test_another_owner_changes_nothing(world: World, other: JobOwner, epoch: str) -> None:
    ask(world, "e1")
    before, keys = world.coordinator().head(), world.memory.all_keys()
    # The stranger knows no such run, or has an ended one of the same id: neither says anything of the owner's.
    for state in RunState:
        with raises_code("job_owned") as caught:
            ask(world, epoch, other, stranger(state))
        with raises_code("job_owned"):
            world.coordinator().ownership.check(run_of(other, epoch))
    assert (world.coordinator().head(), world.memory.all_keys()) == (before, keys)
    text = str(caught.value)
    assert describe_owner(HERE) in text and describe_owner(other) in text
    assert f"cairn adopt flights --dag {other.dag_id}" in text
    assert (f"--deployment '{other.deployment}'" in text) == bool(other.deployment)


def test_of_two_first_triggers_one_is_refused() -> None:
    """The swap decides: the one that loses it looks again."""
    world = World()
    world.coordinator().head()
    # The other one triggers just before this one's swap of the head, which was decided on a job without an owner.
    between = InterleavingStore(world.store, "replace", 0, lambda: ask(world, "e1", OTHERS[0]), "head.json")
    with raises_code("job_owned"):
        world.coordinator(between).trigger(world.request("e1", run_of(HERE, "e1")))
    assert world.coordinator().head().owner == OTHERS[0]


@pytest.mark.parametrize(
    ("owner", "state", "ends"),
    [
        (HERE, RunState.ENDED, True),
        (HERE, RunState.UNKNOWN, True),
        (HERE, RunState.RUNNING, False),
        # Without a name nothing tells a run that was deleted here from one of another deployment.
        (JobOwner("flights"), RunState.ENDED, True),
        (JobOwner("flights"), RunState.UNKNOWN, False),
    ],
)
def test_whose_run_is_over(world: World, owner: JobOwner, state: RunState, ends: bool) -> None:
    ask(world, "e1", owner)
    answer = ask(world, "e2", owner, stranger(state))
    assert isinstance(answer, Triggered if ends else Declined)
    assert (world.coordinator().head().pending_of_epoch("e1") is None) == ends


def test_an_unknown_run_that_waits_loses_its_place_only(world: World) -> None:
    nameless = JobOwner("flights")
    ask(world, "e1", nameless)
    assert isinstance(ask(world, "e2", nameless), Declined)
    world.finish("e1")
    assert isinstance(ask(world, "e3", nameless, stranger(RunState.UNKNOWN)), Triggered)
    answer = expect(Declined, ask(world, "e2", nameless))
    assert answer.position == 1


@pytest.mark.parametrize("other", OTHERS, ids=describe_owner)
def test_adopting_lets_the_new_owner_in_and_the_old_one_out(world: World, other: JobOwner) -> None:
    ask(world, "e1")
    world.finish("e1")
    found = world.coordinator().ownership.adopt(other.dag_id, other.deployment)
    assert found == Adopted(HERE, other)
    revision = world.coordinator().head().revision
    assert world.coordinator().ownership.adopt(other.dag_id, other.deployment).before == other
    assert world.coordinator().head().revision == revision, "twice is once"
    answer = expect(Triggered, ask(world, "e2", other))
    assert answer.pending.restore is not None and answer.pending.restore.checkpoint == 1
    with raises_code("job_owned"):
        ask(world, "e2")


def test_adopting_waits_for_what_is_pending_or_ends_it(world: World) -> None:
    ask(world, "e1")
    ask(world, "e2")
    with raises_code("adoption_refused") as caught:
        world.coordinator().ownership.adopt("renamed")
    assert "--abort-pending" in str(caught.value) and "pending=`1`" in str(caught.value)
    assert world.coordinator().head().owner == HERE
    found = world.coordinator().ownership.adopt("renamed", abort_pending=True)
    assert found == Adopted(HERE, JobOwner("renamed"), (1,))
    head = world.coordinator().head()
    assert (head.pending, head.waiting) == ((), ())
    ended = known(head.ended_by_id(1))
    assert (ended.status, ended.reason) == (Status.FAILED, Reason.CHECKPOINT_COORDINATOR_SUSPEND)
    assert "DAG renamed" in ended.detail


def test_the_owner_may_end_what_a_deleted_run_left(world: World) -> None:
    """Without a name of the deployment, adoption is the way out that the refused wait names."""
    nameless = JobOwner("flights")
    ask(world, "e1", nameless)
    assert isinstance(ask(world, "e2", nameless, stranger(RunState.UNKNOWN)), Declined)
    world.coordinator().ownership.adopt("flights", abort_pending=True)
    assert isinstance(ask(world, "e2", nameless, stranger(RunState.UNKNOWN)), Triggered)


def test_a_job_that_never_ran_cannot_be_adopted(world: World) -> None:
    with raises_code("adoption_refused", match="no such job"):
        world.coordinator().ownership.adopt("flights")


@pytest.mark.parametrize("name", ["x" * (MAX_DEPLOYMENT + 1), "a\nb", "a\x1b[31mb"])
def test_names_that_cannot_be_stored_or_printed(world: World, name: str) -> None:
    for refused in (lambda: check_deployment(name), lambda: world.coordinator().ownership.adopt(name)):
        with pytest.raises(InvalidConfigError):
            refused()


def test_a_request_of_no_dag_is_asked_for_nothing(world: World) -> None:
    ask(world, "e1")
    request = replace(world.request("e1"), kind=RequestKind.MANUAL)
    answer: Any = world.coordinator().trigger(request)
    assert answer.created is False
