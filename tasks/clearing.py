"""Compare and clear: the tasks whose work a failover has replaced run again, each once, whichever task clears them.

The store says which executions a failover has replaced, and which new ones are not claimed. A task of such a
stage is cleared in two cases. Its id is still that of the try which had held the replaced execution: Airflow gives
a task instance another id for each try and with each clear, in the clear's own transaction. Or it is another, later
try that has ended as a success: a try that begins for the new attempt claims the new execution first, so one that
has ended without that ran for the old one, or a user has marked it. The store is asked once more after Airflow,
so what ended as a success had its chance to claim. A task that is to begin, or runs as a later try, is left alone:
it finds the new execution by itself, and where it ends without it, the next look clears it (semantics F5).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

from ..checkpoint.answers import Restarted
from ..hooks.airflow_api import AirflowApiHook, TaskFacts
from ..hooks.clear_body import TaskRef

SUCCESS = "success"
"""Airflow's state of a task that has ended well."""

GIVEN_UP = frozenset({"failed", "upstream_failed"})
"""Airflow has given such a task up, or it never began; a clear would renew its retries for ever."""

ENDED = GIVEN_UP | {SUCCESS, "skipped", "removed"}
"""States of a task instance that does not run again by itself."""


@dataclass(frozen=True, slots=True)
class Where:
    """A DAG run, and which of its tasks is which stage."""

    dag_id: str
    run_id: str
    tasks: Mapping[str, TaskRef] = field(default_factory=dict)
    """By the stages' uids."""
    plain: Mapping[str, Collection[TaskRef]] = field(default_factory=dict)
    """Tasks that are no stages and look at what a stage wrote, by that stage's uid: they run again with it."""
    trigger: TaskRef | None = None
    """The task that triggers the checkpoint, if the DAG has exactly one."""

    def remedy(self, stages: Iterable[str]) -> str:
        """Say what the user has to clear, in the words of Airflow's page; only tasks that the DAG has are named."""
        wanted = set(stages)
        removed = self.removed(wanted)
        if removed:
            return self.ways_on_without(removed)
        return f"clear manually: {self._clearing(str(self.tasks[each]) for each in wanted)}"

    def removed(self, stages: Iterable[str]) -> list[str]:
        """Give those of some stages that the DAG file has no more."""
        return sorted({each for each in stages if each not in self.tasks})

    def ways_on_without(self, removed: Iterable[str]) -> str:
        """Say how a run goes on whose checkpoint expects stages that the DAG file has no more."""
        named = ", ".join(removed)
        return (
            f"the DAG file no longer has {named}, which this run's checkpoint expects. To go on without it, clear the "
            f"task that triggers: {self._clearing([self.trigger_name])}; the next attempt expects the stages that the "
            f"file has now. Or put {named} back into the file, then clear its task and those that have failed, with "
            "Downstream"
        )

    @property
    def trigger_name(self) -> str:
        """The name of the task that triggers, as far as it is known."""
        return str(self.trigger) if self.trigger is not None else "the task that triggers the checkpoint"

    def _clearing(self, names: Iterable[str]) -> str:
        return (
            f"on the page of the DAG {self.dag_id}, run {self.run_id}, choose Clear Task Instance at "
            f"{', '.join(sorted(names))}, with Downstream switched on, and Past, Future, Upstream, 'Clear only "
            "failed tasks' and 'Prevent rerun if task is running' switched off"
        )


@dataclass(frozen=True, slots=True)
class Cleared:
    """What was cleared of the tasks that have to run again."""

    stages: tuple[str, ...] = ()
    """Those whose tasks this call has cleared."""
    others: Mapping[str, str] = field(default_factory=dict)
    """Why the tasks of the others were left as they are, by stage."""

    def __str__(self) -> str:
        """Say it for a log."""
        said = [f"cleared, to run again: {', '.join(self.stages)}"] if self.stages else []
        said += [f"{stage} was not cleared: {why}" for stage, why in sorted(self.others.items())]
        return "; ".join(said) or "nothing is left to clear"


def compare_and_clear(
    api: AirflowApiHook,
    where: Where,
    restarted: Iterable[Restarted],
    note: str,
    to_run_again: Callable[[], Iterable[Restarted]],
) -> Cleared:
    """Clear what has to run again and does not do so by itself, in one request.

    Between looking and clearing lie milliseconds in which another process may clear too; then a task that has just
    begun begins once more. Nothing is lost by that: its execution is claimed anew.

    Args:
        api: opened by the caller.
        where: the DAG run.
        restarted: the stages whose execution was replaced, each with the try that had claimed it.
        note: what the page shows at each task.
        to_run_again: asks the store which of them are not claimed by now.

    Returns:
        The stages whose tasks were cleared, and why the others were not.

    Raises:
        AirflowApiError: the API refuses us or did not answer.
        AirflowNotFoundException: the connection is not defined.
        InvalidConfigError: the connection cannot be used.
        UnavailableError: the store did not answer; nothing was cleared.
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
        unclaimed = {each.stage for each in to_run_again()}
        taking_part = [stage for stage in due if stage not in unclaimed]
        others |= dict.fromkeys(taking_part, "it runs in the new attempt already")
        due = [stage for stage in due if stage in unclaimed]
    if due:
        plain = [task for stage in due for task in where.plain.get(stage, ())]
        api.clear(where.dag_id, where.run_id, [*(where.tasks[stage] for stage in due), *plain], note)
    return Cleared(tuple(due), others)


def _why_not(facts: TaskFacts | None, claimant: str) -> str | None:
    """Say why a task is left as it is; None if it is to be cleared."""
    if facts is None:
        return "the DAG file has no such stage"
    if facts.state in GIVEN_UP:
        return f"Airflow does not run its task again ({facts.state}); clear it"
    if facts.id == claimant or facts.state == SUCCESS:
        return None
    if facts.state in ENDED:
        return f"its task is {facts.state}"
    return f"its task is on as a later try ({facts.state or 'not yet scheduled'}), which takes part in the new attempt"


def idle(api: AirflowApiHook, where: Where, stages: Iterable[str]) -> list[str]:
    """Give those of some stages that will not run again by themselves: their tasks have ended, or there are none.

    Raises:
        AirflowApiError: the API refuses us or did not answer.
    """
    found = []
    for stage in stages:
        task = where.tasks.get(stage)
        facts = api.task_facts(where.dag_id, where.run_id, task) if task is not None else None
        if facts is None or facts.state in ENDED:
            found.append(stage)
    return found


def note_of(checkpoint: int, attempt: int, why: str) -> str:
    """Say at a cleared task, in the page, what happened to it.

    Args:
        checkpoint: the id of the attempt that the task is to take part in.
        attempt: its number.
        why: what failed: "`routes` failed".
    """
    return f"Cairn: region failover of checkpoint {checkpoint}, {why}, attempt {attempt}"


def rerun_note(stage: str) -> str:
    """Say at a cleared task, in the page, that it runs again because another one does."""
    return f"Cairn: `{stage}` runs again, and this stage with it"
