"""Which task triggers an epoch's checkpoint, where several could: one at a time has the right to (semantics T10).

Triggering twice makes one attempt (T9), but sources and master hooks would be asked by several processes at once: a
hook that is taken back to the restored checkpoint while the stages of the epoch use what it fixed would fix it twice.
And each of them would count the same failure.

The right is an entry of the head, so one swap gives it, and it comes back with another. Nothing renews it. Whether its
holder still has it is asked of Airflow, which knows what became of a task: a dead holder needs no clock to be passed
over. A waiting task holds a slot. It waits only for a task that runs, so there is no deadlock.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum, auto

from ..documents.attempt import Owner
from ..documents.entries import JobOwner, TriggeringTask
from ..documents.head import MAX_TRIGGERING, Head
from ..open_job import UseCase
from ..store.head_store import Decision, changed


class HolderState(Enum):
    """What Airflow says of the task that has the right."""

    RUNS = auto()
    COMES_BACK = auto()
    """It is put off, or will be tried again."""
    FAILED = auto()
    """Airflow does not run it again by itself."""
    OTHER = auto()
    """It is about to run, waits in the triggerer, has ended otherwise, or is not known."""


@dataclass(frozen=True, slots=True)
class HeldBy:
    """Another task triggers, or has failed to."""

    task: TriggeringTask
    state: HolderState


class TriggerRight(UseCase):
    """Gives the right to trigger the epochs of one job."""

    def take(
        self, mine: TriggeringTask, owner: Owner, state_of: Callable[[TriggeringTask], HolderState], *, asked_for: bool
    ) -> HeldBy | None:
        """Take the right to trigger an epoch, if no other task has it.

        A task that had it takes it anew: one that asked Airflow about the task's try before loses the swap.

        Args:
            mine: the task that asks, and the epoch.
            owner: the DAG run. Where the job is another's nothing is written: its trigger says so (semantics W8).
            state_of: tells what became of another task that took it; asked for each version of the head.
            asked_for: a person wants this try, or the epoch was overtaken since: it triggers also where another task
                has finally failed to.

        Returns:
            None: the right is taken. Otherwise who is waited for, or has failed.
        """

        def decide(head: Head, _now_ms: int) -> Decision[HeldBy | None]:
            if head.owner not in (None, JobOwner(owner.dag_id, owner.deployment)):
                return Decision(None)
            held = next((each for each in head.triggering if each.epoch == mine.epoch), None)
            if held is not None and _names(held) != _names(mine):
                state = state_of(held)
                if _stands(held, state, asked_for=asked_for):
                    return Decision(HeldBy(held, state))
            others = [each for each in head.triggering if each.epoch != mine.epoch]
            return Decision(None, replace(head, triggering=(*others, mine)[-MAX_TRIGGERING:]))

        self._heads.ensure()
        return self._heads.update(decide)[1]

    def give_back(self, mine: TriggeringTask, *, failed: bool = False) -> None:
        """Let another task take the right; nothing where another has it by now, or another try of the same task.

        Args:
            mine: as it was taken.
            failed: the trigger has failed, and those that wait for this task are to end as it does.
        """

        def decide(head: Head, _now_ms: int) -> Decision[None]:
            held = next((each for each in head.triggering if _names(each) == _names(mine)), None)
            # Airflow may have begun the task's next try while this one lives on as a zombie, and that one triggers now.
            if held is None or held.claimant != mine.claimant:
                return Decision(None)
            others = tuple(each for each in head.triggering if each != held)
            left = (*others, replace(mine, failed=True)) if failed else others
            return Decision(None, changed(head, replace(head, triggering=left)))

        self._heads.update(decide)


def _names(task: TriggeringTask) -> tuple[str, str, int]:
    return task.epoch, task.task_id, task.map_index


def _stands(held: TriggeringTask, state: HolderState, *, asked_for: bool) -> bool:
    """Tell whether the right stays where it is."""
    if state is HolderState.RUNS:
        return True
    if not held.failed:
        return False
    return state is HolderState.COMES_BACK or (state is HolderState.FAILED and not asked_for)
