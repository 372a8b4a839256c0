"""Compares and clears: tasks whose output a failover has replaced run again, each once, whichever task clears them.

The store says which executions a failover has replaced, and which new ones are not claimed. A task of such a stage is
cleared in two cases. First, its id is still that of the try that held the replaced execution: Airflow gives a task
instance another id for each try and with each clear, in the clear's own transaction. Second, another, later try has
succeeded: a try for the new attempt claims the new execution first, so a try that succeeded without a claim ran for
the old attempt, or a user has marked it. The store is asked once more after Airflow, so a successful task had its
chance to claim. A task that is about to begin, or runs as a later try, is not cleared: it finds the new execution
itself, and if it ends without it, the next look clears it (semantics F5).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import field

from airflow.sdk import TaskInstanceState

from ..checkpoint.answers import Restarted
from ..hooks.airflow_api import AirflowApiHook, TaskFacts
from ..hooks.task_refs import ENDED, GIVEN_UP, TaskRef
from ..storage.records import dataclass


@dataclass(frozen=True, slots=True)
class Where:
    """A DAG run, and the mapping of its tasks to stages."""

    dag_id: str
    run_id: str
    tasks: Mapping[str, TaskRef] = field(default_factory=dict)
    """The stages' tasks, by uid."""
    plain: Mapping[str, Collection[TaskRef]] = field(default_factory=dict)
    """Plain tasks that read a stage's output, by that stage's uid: they run again with it."""
    trigger: TaskRef | None = None
    """The task that triggers the checkpoint, if the DAG has exactly one."""

    def remedy(self, stages: Iterable[str]) -> str:
        """Return the tasks that a user has to clear, in the words of Airflow's page; only existing tasks are named."""
        wanted = set(stages)
        removed = self.removed(wanted)
        if removed:
            return self.ways_on_without(removed)
        return f"clear manually: {self._clearing(str(self.tasks[each]) for each in wanted)}"

    def removed(self, stages: Iterable[str]) -> list[str]:
        """Return those of the given stages that the DAG file no longer has."""
        return sorted({each for each in stages if each not in self.tasks})

    def ways_on_without(self, removed: Iterable[str]) -> str:
        """Return how a run goes on if its checkpoint expects stages that the DAG file no longer has."""
        named = ", ".join(removed)
        return (
            f"the DAG file no longer has {named}, which this run's checkpoint expects. To go on without it, clear the "
            f"task that triggers: {self._clearing([self.trigger_name])}; the next attempt expects the stages that the "
            f"file has now. Or put {named} back into the file, then clear its task and those that have failed, with "
            "Downstream"
        )

    def with_plain(self, stages: Collection[str]) -> list[TaskRef]:
        """Return the tasks of stages, and the plain ones that read from them."""
        plain = [task for stage in stages for task in self.plain.get(stage, ())]
        return [*(self.tasks[stage] for stage in stages), *plain]

    @property
    def trigger_name(self) -> str:
        """The name of the task that triggers, as far as known."""
        return str(self.trigger) if self.trigger is not None else "the task that triggers the checkpoint"

    def _clearing(self, names: Iterable[str]) -> str:
        return (
            f"on the page of the DAG {self.dag_id}, run {self.run_id}, choose Clear Task Instance at "
            f"{', '.join(sorted(names))}, with Downstream switched on, and Past, Future, Upstream, 'Clear only "
            "failed tasks' and 'Prevent rerun if task is running' switched off"
        )


@dataclass(frozen=True, slots=True)
class Cleared:
    """The result of clearing the tasks that must run again."""

    stages: tuple[str, ...] = ()
    """The stages whose tasks this call has cleared."""
    others: Mapping[str, str] = field(default_factory=dict)
    """The reasons why the tasks of the other stages were not cleared, by stage."""

    def __str__(self) -> str:
        said = [f"Cleared, to run again: {', '.join(self.stages)}"] if self.stages else []
        said += [f"Stage {stage} was not cleared: {why}" for stage, why in sorted(self.others.items())]
        return ". ".join(said) or "Nothing is left to clear"


def compare_and_clear(
    api: AirflowApiHook,
    where: Where,
    restarted: Iterable[Restarted],
    note: str,
    unclaimed_now: Callable[[], Collection[str]],
) -> Cleared:
    """Clear the tasks that must run again and do not do so by themselves, in one request.

    Another process may clear the same tasks in the milliseconds between looking and clearing. A task that has just
    begun then begins once more. Nothing is lost: its execution is claimed anew.

    Each restarted stage has the try that had claimed it. `unclaimed_now` asks the store which stages no try has claimed
    in the pending attempt.

    Returns:
        The stages whose tasks were cleared, and the reasons why others were not.
    """
    due, others = [], {}
    for each in restarted:
        task = where.tasks.get(each.stage)
        facts = api.task_facts(where.dag_id, where.run_id, task) if task is not None else None
        why = _why_not(facts, each.claimant)
        if why is None:
            due.append(each.stage)
        else:
            others[each.stage] = why
    if due:
        unclaimed = unclaimed_now()
        taking_part = [stage for stage in due if stage not in unclaimed]
        others |= dict.fromkeys(taking_part, "it runs in the new attempt already")
        due = [stage for stage in due if stage in unclaimed]
    if due:
        api.clear(where.dag_id, where.run_id, where.with_plain(due), note)
    return Cleared(tuple(due), others)


def _why_not(facts: TaskFacts | None, claimant: str) -> str | None:
    """Return why a task is not cleared; None if it is to be cleared."""
    if facts is None:
        return "the DAG file has no such stage"
    if facts.state in GIVEN_UP:
        return f"Airflow does not run its task again ({facts.state}); clear it"
    if facts.id == claimant or facts.state == TaskInstanceState.SUCCESS:
        return None
    if facts.state in ENDED:
        return f"its task is {facts.state}"
    return f"its task is on as a later try ({facts.state or 'not yet scheduled'}), which takes part in the new attempt"


def idle(api: AirflowApiHook, where: Where, stages: Iterable[str]) -> dict[str, str | None]:
    """Return those of the given stages that will not run again by themselves, with the states of their ended tasks."""
    found: dict[str, str | None] = {}
    for stage in stages:
        task = where.tasks.get(stage)
        facts = api.task_facts(where.dag_id, where.run_id, task) if task is not None else None
        if facts is None or facts.state in ENDED:
            found[stage] = facts.state if facts is not None else None
    return found


def note_of(checkpoint: int, attempt: int, why: str) -> str:
    """Return the note at a cleared task that says what happened to it.

    The checkpoint is the one that the task will take part in; `why` is the cause, such as "`routes` failed".
    """
    return f"Cairn: region failover of checkpoint {checkpoint}, {why}, attempt {attempt}"


def rerun_note(stage: str) -> str:
    """Return the note at a cleared task that says that it runs again because another task does."""
    return f"Cairn: `{stage}` runs again, and this stage with it"
