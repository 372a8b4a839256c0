"""Compare and clear: the tasks whose work a failover has replaced run again, each once, whoever comes and how often.

Airflow gives a task instance another id for each try and with each clear, in the clear's own transaction. The id of
the try that had claimed a stage's execution stands in the store. So a task is cleared only where the API says that its
id is still that one: a second callback, a clear by a person, or a callback that comes hours late find another id, and
clear nothing (semantics F5).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from ..checkpoint.requests import Restarted
from ..hooks.airflow_api import AirflowApiHook
from ..hooks.clear_body import TaskRef

GIVEN_UP = frozenset({"failed", "upstream_failed"})
"""Airflow has given such a task up, or it never began; a clear would renew its retries for ever."""

ENDED = GIVEN_UP | {"success", "skipped", "removed"}
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

    def by_hand(self, stages: Iterable[str]) -> str:
        """Say what a person has to clear, in the words of Airflow's page.

        Args:
            stages: their uids.
        """
        names = [str(self.tasks[each]) if each in self.tasks else f"the task of stage {each}" for each in stages]
        return (
            f"clear by hand: on the page of the DAG {self.dag_id}, run {self.run_id}, choose Clear Task Instance at "
            f"{', '.join(sorted(set(names)))}, with Downstream switched on, and Past, Future, Upstream, 'Clear only "
            "failed tasks' and 'Prevent rerun if task is running' switched off. A stage that has acknowledged submits "
            "nothing"
        )


def compare_and_clear(api: AirflowApiHook, where: Where, restarted: Iterable[Restarted], note: str) -> list[str]:
    """Clear what is still as the failover found it, in one request.

    Between looking and clearing lie milliseconds in which somebody else may clear too; then a task that has just begun
    begins once more. Nothing is lost by that: its execution is claimed anew.

    Args:
        api: opened by the caller.
        where: the DAG run.
        restarted: the stages whose execution was replaced, each with the try that had claimed it.
        note: what the page shows at each task.

    Returns:
        The stages whose tasks were cleared; empty if somebody else was first.

    Raises:
        AirflowApiError: the API refuses us or did not answer.
        AirflowNotFoundException: the connection is not defined.
        InvalidConfigError: the connection cannot be used.
    """
    cleared = []
    for each in restarted:
        task = where.tasks.get(each.stage)
        facts = api.task_facts(where.dag_id, where.run_id, task) if task is not None else None
        if facts is not None and facts.id == each.claimant and facts.state not in GIVEN_UP:
            cleared.append(each.stage)
    if cleared:
        plain = [task for stage in cleared for task in where.plain.get(stage, ())]
        api.clear(where.dag_id, where.run_id, [*(where.tasks[stage] for stage in cleared), *plain], note)
    return cleared


def idle(api: AirflowApiHook, where: Where, stages: Iterable[str]) -> list[str]:
    """Give those of some stages that will not run again by themselves: their tasks have ended, or there are none.

    Args:
        api: opened by the caller.
        where: the DAG run.
        stages: uids.

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
