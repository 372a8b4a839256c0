"""The edges between stages, and their exchanges: read from the DAG's edges (semantics B1, F1).

An edge between two stages may lead over plain tasks, which are not stages: an `EmptyOperator`, a branch, a check. It
is pipelined if every hop of one path is. The topology is computed on each call, because edges may be drawn after the
group's block.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any

from airflow.sdk import TriggerRule

from ...checkpoint.documents.attempt import StageSpec
from ...checkpoint.errors import InvalidConfigError
from ...checkpoint.source import folders_of
from ...hooks.task_refs import TaskRef
from ...tasks.clearing import Where
from ...tasks.job_settings import is_same_job, scope_of
from .declaration import PIPELINED, TriggerOperator, label_edge
from .stages import StageTask, instances_of, is_mapped, is_stage

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ...checkpoint.config import CheckpointConfig
    from ...storage.names import StorageUri
    from .declaration import StageOperator

Hop = tuple[str, str]
"""One edge of the DAG, by the ids of its tasks."""


def stages_of(tasks: Sequence[StageTask], pipelined: Set[Hop]) -> tuple[StageSpec, ...]:
    """Return the stages as the whole DAG file declares them."""
    paths = _Paths(tasks, pipelined)
    paths.check()
    return tuple(paths.spec(task) for task in tasks)


def show_exchanges(tasks: Sequence[StageTask], pipelined: Set[Hop]) -> None:
    """Label the pipelined edges for the graph view."""
    for up, down in sorted(_Paths(tasks, pipelined).pipelined):
        label_edge(tasks[0].operator.dag, up, down)


def plain_tasks_after(tasks: Sequence[StageTask]) -> dict[str, tuple[str, ...]]:
    """Return, by stage, the ids of the plain tasks that read its output, so that they run again when it does.

    These are the tasks behind it, up to the next stage or the end of their `CheckpointedTaskGroup`. A stage without
    such tasks has no entry.
    """
    paths = _Paths(tasks, frozenset())
    found = {task.uid: tuple(sorted(paths.plain_after(task.task_id))) for task in tasks}
    return {uid: plain for uid, plain in found.items() if plain}


def skippable_upstreams(tasks: Sequence[StageTask], task_id: str) -> tuple[StageTask, ...]:
    """Return the stages that a stage reads from, if it may run although one of them was skipped.

    By Airflow's default trigger rule, tasks after a skipped task are skipped too. So the result is empty unless a task
    on the path has another rule.
    """
    return _Paths(tasks, frozenset()).may_be_skipped(task_id)


class _Paths:
    """The paths between stages: edges of the DAG, with any number of plain tasks in between."""

    def __init__(self, tasks: Sequence[StageTask], pipelined: Set[Hop]) -> None:
        self._tasks: Mapping[str, Any] = tasks[0].operator.dag.task_dict
        self._stages: dict[str, list[StageTask]] = {}
        for task in tasks:
            self._stages.setdefault(task.task_id, []).append(task)
        self._marked = pipelined
        declared = (self._hops_to(task.task_id) for task in tasks if task.operator.exchange == PIPELINED)
        self.pipelined: Set[Hop] = frozenset(pipelined).union(*declared)
        self._members: dict[str, list[str]] = {}
        for task in tasks:
            if task.member_of is not None:
                self._members.setdefault(task.member_of, []).append(task.uid)

    def spec(self, task: StageTask) -> StageSpec:
        operator = task.operator
        read = {uid for name in operator.reads for uid in self._members.get(name, [name])}
        return StageSpec(
            task.uid,
            tuple(sorted({*self._uids(self._before(task.task_id)), *read})),
            operator.parallelism,
            operator.max_parallelism,
            tuple(sorted(self._uids(self._before(task.task_id, self.pipelined)))),
            task.member_of,
        )

    def check(self) -> None:
        for up, down in sorted(self._marked):
            begins = {up, *self._before(up, self.pipelined)} if up not in self._stages else {up}
            ends = {down, *self._after(down, self.pipelined)} if down not in self._stages else {down}
            if self._stages.keys().isdisjoint(begins) or self._stages.keys().isdisjoint(ends):
                raise InvalidConfigError(
                    f"{up} >> Pipelined() >> {down} is not part of a pipelined path from one stage to another. Draw "
                    "the edge without Pipelined(), or mark each edge of the path",
                    task=down,
                    stages=", ".join(sorted(self._stages)),
                )
            for task in (each for task_id in sorted(ends & self._stages.keys()) for each in self._stages[task_id]):
                exchange = task.operator.exchange
                if exchange not in (None, PIPELINED):
                    raise InvalidConfigError(
                        f"{task.task_id} says exchange={exchange!r}, but its edge from {up} is Pipelined(). Take one "
                        "of them out",
                        task=task.task_id,
                    )

    def may_be_skipped(self, task_id: str) -> tuple[StageTask, ...]:
        before = self._before(task_id)
        passed = {task_id, *(before - self._stages.keys())}
        if all(self._tasks[each].trigger_rule == TriggerRule.ALL_SUCCESS for each in passed):
            return ()
        return tuple(stage for each in sorted(before) for stage in self._stages.get(each, ()))

    def plain_after(self, task_id: str) -> set[str]:
        scope = scope_of(self._tasks[task_id].task_group)
        if scope is None:
            return set()
        plain = self._after(task_id) - self._stages.keys() - {scope.wait_task_id}
        return {each for each in plain if scope_of(self._tasks[each].task_group) is scope}

    def _uids(self, task_ids: Set[str]) -> Set[str]:
        return {stage.uid for each in task_ids for stage in self._stages.get(each, ())}

    def _hops_to(self, stage: str) -> Set[Hop]:
        """Return the edges that make up the paths from other stages to this one."""
        passed = {stage, *(self._before(stage) - self._stages.keys())}
        hops = {(up, at) for at in passed for up in self._tasks[at].upstream_task_ids}
        return {
            (up, at) for up, at in hops if up in self._stages or not self._stages.keys().isdisjoint(self._before(up))
        }

    def _before(self, task_id: str, only: Set[Hop] | None = None) -> Set[str]:
        """Return the nearest stages before a task, and the plain tasks in between; `only`: over these edges."""
        return self._walk(task_id, lambda at: {up: (up, at) for up in self._tasks[at].upstream_task_ids}, only)

    def _after(self, task_id: str, only: Set[Hop] | None = None) -> Set[str]:
        """Return the nearest stages after a task, and the plain tasks in between; `only`: over these edges."""
        return self._walk(task_id, lambda at: {down: (at, down) for down in self._tasks[at].downstream_task_ids}, only)

    def _walk(self, start: str, hops: Callable[[str], Mapping[str, Hop]], only: Set[Hop] | None) -> Set[str]:
        seen: set[str] = set()
        todo = [start]
        while todo:
            for task_id, hop in hops(todo.pop()).items():
                if task_id not in seen and (only is None or hop in only):
                    seen.add(task_id)
                    todo += [] if task_id in self._stages else [task_id]
        return seen


# A job's first stages trigger its checkpoint, so that an epoch needs no separate task to start it.
#
# Airflow passes over the trigger task, as over an `EmptyOperator`. A first stage's task does its work as soon as it
# finds that its epoch has no attempt (semantics T9); of several first stages, the earliest does it (T10).


def first_stages_of(trigger: TriggerOperator) -> tuple[TaskRef, ...]:
    """Return the tasks of which one does the trigger task's work; empty if the trigger task does it itself.

    The result is empty unless all tasks after the trigger are stages of the same `CheckpointedTaskGroup`, mapped or
    not, that follow no other task. A plain task might read the trigger's result, and `wait_for_checkpoint` needs a task
    to wait for.

    Args:
        trigger: a task of a DAG file that is parsed completely.

    Returns:
        The tasks in the order of their ids; for a mapped task its first instance.
    """
    if not _begins_with_stages(trigger):
        return ()
    found = [trigger.dag.get_task(task_id) for task_id in sorted(trigger.downstream_task_ids)]
    return tuple(TaskRef(task.task_id, 0 if is_mapped(task) else -1) for task in found)


def _begins_with_stages(trigger: TriggerOperator) -> bool:
    scope, alone = scope_of(trigger.task_group), {trigger.task_id}
    found = (trigger.dag.task_dict[task_id] for task_id in trigger.downstream_task_ids)
    return scope is not None and all(
        task.upstream_task_ids == alone and is_stage(task) and scope_of(task.task_group) is scope for task in found
    )


def trigger_before(stage: StageOperator) -> TriggerOperator | None:
    """Return the trigger whose work a stage's task may do; None if the trigger task does it itself.

    Args:
        stage: the stage's task, or an instance of a mapped task.
    """
    for task_id in stage.upstream_task_ids:
        trigger = stage.dag.get_task(task_id)
        if isinstance(trigger, TriggerOperator) and _begins_with_stages(trigger):
            return trigger
    return None


def stands_aside(trigger: TriggerOperator) -> bool:
    """Return whether the first stages may begin before Airflow has passed over the trigger task.

    False where a task before the group may skip it, and where Airflow runs the trigger task all the same, for the sake
    of a callback or an asset.

    Args:
        trigger: given by `trigger_before`.
    """
    is_run = trigger.on_execute_callback or trigger.on_success_callback or trigger.inlets or trigger.outlets
    return not (is_run or trigger.upstream_task_ids)


def triggers_alone(trigger: TriggerOperator) -> bool:
    """Return whether only one task can trigger."""
    first = first_stages_of(trigger)
    return len(first) == 1 and first[0].map_index < 0


def trigger_task(trigger: TriggerOperator) -> TaskRef:
    """Return a task that triggers the checkpoint if it runs."""
    first = first_stages_of(trigger)
    return first[0] if first else TaskRef(trigger.task_id)


# The task of each stage of a job, and the tasks that run again with a stage.


def where_of(task: StageOperator, dag_id: str, run_id: str) -> Where:
    """Return the tasks of all stages of a stage's job, and the plain tasks that follow each stage.

    Args:
        task: the task of one stage. The stages of its job are those of its group; outside a group, all stages in the
            DAG with the same storage and job. Each instance of a mapped task is a stage.
        dag_id: the DAG's id.
        run_id: the id of the DAG run in which the tasks are to run again.
    """
    stages = _stages_of_job(task)
    plain = plain_tasks_after(stages)
    return Where(
        dag_id,
        run_id,
        _refs(stages),
        {uid: tuple(TaskRef(task_id) for task_id in task_ids) for uid, task_ids in plain.items()},
        trigger_of(task),
    )


def trigger_of(task: StageOperator) -> TaskRef | None:
    """Return the task that triggers the checkpoints of a stage's job; None if the DAG does not have exactly one.

    Args:
        task: the stage's task. In a group the trigger is the group's; outside, that of the same storage and job.
    """
    found = _trigger_operator(task)
    return trigger_task(found) if found is not None else None


def config_of(task: StageOperator) -> CheckpointConfig | None:
    """Return the config of a stage's job, as the DAG file has it now; None unless the DAG has exactly one trigger."""
    found = _trigger_operator(task) if task.has_dag() else None
    return found.config if found is not None else None


def source_folders(task: StageOperator) -> dict[str, StorageUri]:
    """Return the folders of the sources of a stage's job, as the DAG file has them now, by the sources' names."""
    triggers = _trigger_operators(task) if task.has_dag() else []
    return folders_of(source for trigger in triggers for source in trigger.sources)


def _trigger_operator(task: StageOperator) -> TriggerOperator | None:
    found = _trigger_operators(task)
    return found[0] if len(found) == 1 else None


def _trigger_operators(task: StageOperator) -> list[TriggerOperator]:
    scope = scope_of(task.task_group)
    own = _stages_of_job(task)[0].operator
    return [
        each
        for each in task.dag.tasks
        if isinstance(each, TriggerOperator)
        and scope_of(each.task_group) is scope
        and (scope is not None or is_same_job(each, own))
    ]


def upstreams_to_look_at(task: StageOperator) -> dict[str, TaskRef]:
    """Return the tasks of those upstreams of a stage that may be skipped although the stage runs, by uid.

    Args:
        task: the stage's task; outside a group its upstreams are not known.
    """
    if scope_of(task.task_group) is None:
        return {}
    return _refs(skippable_upstreams(_stages_of_job(task), task.task_id))


def runs_after_success(task: StageOperator) -> bool:
    """Return whether Airflow starts a stage's task only once the tasks of all stages before it have succeeded."""
    return scope_of(task.task_group) is not None and not upstreams_to_look_at(task)


def _refs(stages: Iterable[StageTask]) -> dict[str, TaskRef]:
    return {stage.uid: TaskRef(stage.task_id, stage.map_index) for stage in stages}


def _stages_of_job(task: StageOperator) -> list[StageTask]:
    # The running task is a rendered copy. The DAG holds the parsed task, like all others.
    scope = scope_of(task.task_group)
    found = [
        stage
        for each in task.dag.tasks
        if is_stage(each) and scope_of(each.task_group) is scope
        for stage in instances_of(each)
    ]
    (own, *_) = (stage.operator for stage in found if stage.task_id == task.task_id)
    return [each for each in found if is_same_job(each.operator, own)]
