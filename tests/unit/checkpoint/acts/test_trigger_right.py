"""The right to trigger: one task at a time, and no clock says how long (T10)."""

from dataclasses import replace

import pytest

from airflow_cairn.checkpoint.acts.trigger import HeldBy, HolderState
from airflow_cairn.checkpoint.documents.entries import JobOwner, TriggeringTask
from airflow_cairn.checkpoint.documents.head import MAX_TRIGGERING
from airflow_cairn.storage import UnavailableError
from tests.support.world.operations_trigger_right import FIRST, OWNER, SECOND, give_back, take
from tests.support.world.world import World
from tests.support.wrapped_stores import Crashed, Fault, FaultyStore, RecordingStore

RUNS, COMES_BACK, FAILED, OTHER = HolderState


def triggering(world: World) -> tuple[TriggeringTask, ...]:
    return world.coordinator().head().triggering


@pytest.mark.parametrize(
    ("state", "failed", "asked_for", "stands"),
    [
        (RUNS, False, False, True),
        (RUNS, True, True, True),
        (COMES_BACK, False, False, False),
        (COMES_BACK, True, False, True),
        (COMES_BACK, True, True, True),
        (FAILED, False, False, False),
        (FAILED, True, False, True),
        (FAILED, True, True, False),
        (OTHER, False, False, False),
        (OTHER, True, False, False),
    ],
)
def test_who_has_it(state: HolderState, *, failed: bool, asked_for: bool, stands: bool) -> None:  # semantics T10
    world = World()
    assert take(world, FIRST) is None
    if failed:
        give_back(world, FIRST, failed=True)
    answer = take(world, SECOND, other=state, asked_for=asked_for)
    assert answer == (HeldBy(replace(FIRST, failed=failed), state) if stands else None)
    assert triggering(world) == ((replace(FIRST, failed=failed),) if stands else (SECOND,))


def test_its_holder_takes_it_anew(world: World) -> None:  # semantics T10
    take(world, FIRST)
    give_back(world, FIRST, failed=True)
    assert take(world, FIRST, other=RUNS) is None
    assert triggering(world) == (FIRST,), "that it has failed before is forgotten"


def test_who_looked_at_the_try_before_loses_the_swap(world: World) -> None:  # semantics T10
    """The loser saw a task that did not run, and that task has begun to run since."""
    take(world, FIRST)
    looks: list[HolderState] = [OTHER, RUNS]

    def state_of(task: TriggeringTask) -> HolderState:
        if len(looks) == 2:
            take(world, FIRST)
        return looks.pop(0)

    answer = world.coordinator().trigger_right.take(SECOND, OWNER, state_of, asked_for=False)
    assert answer == HeldBy(FIRST, RUNS)
    assert triggering(world) == (FIRST,)


def test_what_another_has_by_now_is_not_given_back(world: World) -> None:
    take(world, FIRST)
    take(world, SECOND)
    recording = RecordingStore(world.store)
    give_back(world, FIRST, recording)
    assert not recording.writes
    assert triggering(world) == (SECOND,)


@pytest.mark.parametrize("failed", [False, True])
def test_a_zombie_gives_back_nothing_of_its_next_try(world: World, *, failed: bool) -> None:  # semantics T10
    """Airflow took its worker for dead, and began the next try; then the worker's process went on."""
    zombie, again = (replace(FIRST, claimant=f"try {number}") for number in (1, 2))
    assert take(world, zombie) is None
    assert take(world, again) is None, "the task has the right, and asks nobody"
    recording = RecordingStore(world.store)
    give_back(world, zombie, recording, failed=failed)
    assert not recording.writes
    assert triggering(world) == (again,)
    assert take(world, SECOND, other=RUNS) == HeldBy(again, RUNS), "no second one triggers beside it"
    give_back(world, again, failed=failed)
    assert triggering(world) == ((replace(again, failed=True),) if failed else ())


def test_each_epoch_has_its_own_and_the_oldest_goes_first(world: World) -> None:
    for number in range(MAX_TRIGGERING + 1):
        take(world, TriggeringTask(f"e{number}", "epoch.first"))
    epochs = [task.epoch for task in triggering(world)]
    assert epochs == [f"e{number}" for number in range(1, MAX_TRIGGERING + 1)]


def test_in_the_job_of_another_dag_nothing_is_written(world: World) -> None:  # semantics W8
    world.coordinator().trigger(world.request("e1", replace(OWNER, dag_id="another_dag")))
    assert world.coordinator().head().owner == JobOwner("another_dag", "")
    recording = RecordingStore(world.store)
    assert take(world, FIRST, recording) is None
    assert not recording.writes


@pytest.mark.parametrize("fault", Fault)
@pytest.mark.parametrize("step", ["take", "give back", "fail"])
def test_whatever_a_write_leaves_one_task_gets_it(world: World, step: str, fault: Fault) -> None:  # semantics T10, W2
    world.run_epoch("e1")
    if step != "take":
        take(world, FIRST)
    faulty = FaultyStore(world.store, 0, fault, None)
    try:
        if step == "take":
            take(world, FIRST, faulty)
        else:
            give_back(world, FIRST, faulty, failed=step == "fail")
    except (Crashed, UnavailableError):
        assert fault is not Fault.ANSWER_LOST, "a lost answer is settled by what is there"
    assert faulty.struck
    # The process is dead by now, and Airflow runs it again, or another one.
    assert take(world, SECOND) is None
    assert take(world, FIRST, other=RUNS) == HeldBy(SECOND, RUNS)
