"""First stages of a group: their tasks do the work of the task that triggers."""

from typing import Any

import pytest
from airflow.models.taskinstance import TaskInstance
from airflow.serialization.serialized_objects import DagSerialization

from airflow_cairn.hooks.task_refs import TaskRef
from airflow_cairn.operators.graph.declaration import TriggerOperator
from airflow_cairn.operators.graph.stages import instances_of
from airflow_cairn.operators.graph.topology import (
    first_stages_of,
    trigger_before,
    trigger_task,
    triggers_alone,
    where_of,
)
from tests.support.airflow_fixtures import DagFile

TRIGGER = "epoch.trigger_checkpoint"

BODY = """
with DAG("flights", schedule=None):
    before = EmptyOperator(task_id="before")
    with CheckpointedTaskGroup(
        "epoch", storage="file:///lake/cairn", reads_window=False, config=CheckpointConfig({config})
    ) as epoch:
        a, b = (SparkEpochOperator(task_id=uid, application="x.py") for uid in "ab")
        {inside}
    {outside}
"""


def parsed(dag_file: DagFile, inside: str, outside: str = "pass", config: str = "") -> tuple[Any, TriggerOperator]:
    dag: Any = dag_file.dag(BODY.format(inside=inside, outside=outside, config=config))
    trigger = dag.get_task(TRIGGER)
    assert isinstance(trigger, TriggerOperator)
    return dag, trigger


@pytest.mark.parametrize("outside", ["pass", "before >> epoch"])
def test_the_one_stage_that_a_group_begins_with(dag_file: DagFile, outside: str) -> None:
    dag, trigger = parsed(dag_file, "a >> b", outside)
    a, b = (dag.get_task(f"epoch.{uid}") for uid in "ab")
    assert first_stages_of(trigger) == (TaskRef(a.task_id),)
    assert triggers_alone(trigger)
    assert (trigger_before(a), trigger_before(b)) == (trigger, None)
    assert trigger_task(trigger).task_id == "epoch.a"
    # Stages and the task that waits have it run again where the epoch was overtaken.
    assert where_of(b, "flights", "r1").trigger == trigger_task(trigger)
    assert dag.get_task("epoch.wait_for_checkpoint").runs_again.trigger() == trigger_task(trigger)
    # The scheduler decides by what is stored of the DAG.
    stored = DagSerialization.from_dict(DagSerialization.to_dict(dag))
    passed_over = {task.task_id for task in stored.tasks if task.inherits_from_empty_operator}
    assert passed_over == {"before", TRIGGER}


MAPPED = "SparkEpochOperator.partial(task_id='m').expand(application=['x.py', 'y.py'])"


SEVERAL = {
    "two stages": ("pass", [("a", -1), ("b", -1)]),
    "two before a mapped one": (f"b >> {MAPPED} << a", [("a", -1), ("b", -1)]),
    "a mapped one beside another": (f"a >> b << {MAPPED}", [("a", -1), ("m", 0)]),
    "a mapped one": (f"{MAPPED} >> [a, b]", [("m", 0)]),
}


@pytest.mark.parametrize(("inside", "first"), SEVERAL.values(), ids=SEVERAL)
def test_several_stages_that_a_group_begins_with(dag_file: DagFile, inside: str, first: list[tuple[str, int]]) -> None:
    """semantics T10"""
    dag, trigger = parsed(dag_file, inside)
    assert first_stages_of(trigger) == tuple(TaskRef(f"epoch.{task}", index) for task, index in first)
    assert not triggers_alone(trigger)
    assert trigger_task(trigger) == first_stages_of(trigger)[0]
    stored = DagSerialization.from_dict(DagSerialization.to_dict(dag))
    assert stored.get_task(TRIGGER).inherits_from_empty_operator
    plain = [dag.get_task(f"epoch.{uid}") for uid in "ab"]
    began = {task for task, _ in first}
    assert [trigger_before(task) for task in plain] == [trigger if uid in began else None for uid in "ab"]


BEGINS: dict[str, tuple[str, str, str, dict[str, str]]] = {
    "one": ("", "a >> b", "pass", {"a": "always", "b": "all_success"}),
    "two": ("", "pass", "pass", {"a": "always", "b": "always"}),
    "one beside a mapped one": (
        "",
        f"a >> b << {MAPPED}",
        "pass",
        {"a": "always", **dict.fromkeys("bm", "all_success")},
    ),
    "with a rule of its own": ("", "a.trigger_rule = 'all_done'; a >> b", "pass", {"a": "all_done"}),
    "a task before the group": ("", "a >> b", "before >> epoch", {"a": "all_success"}),
    "a task before it": ("", "a >> b", "before >> a", {"a": "all_success"}),
    "a task before another": ("", "pass", "before >> a", {"a": "all_success", "b": "all_success"}),
    "a plain task": ("", "EmptyOperator(task_id='plain')", "pass", {"a": "all_success", "b": "all_success"}),
    **{
        f"the trigger's task runs: {fact}": (f"{{'{fact}': {value}}}", "a >> b", "pass", {"a": "all_success"})
        for fact, value in (
            *(("on_success_callback", "print"), ("on_execute_callback", "print")),
            *(("inlets", "[Asset('x')]"), ("outlets", "[Asset('x')]")),
        )
    },
}


@pytest.mark.parametrize(("default_args", "inside", "outside", "rules"), BEGINS.values(), ids=BEGINS)
def test_a_first_stage_begins_in_the_round_that_passes_over_the_triggers_task(
    dag_file: DagFile, default_args: str, inside: str, outside: str, rules: dict[str, str]
) -> None:
    """The edge stays, for a clear of all that comes after the trigger's task."""
    dag: Any = dag_file.dag(
        "from airflow.sdk import Asset"
        + BODY.replace("schedule=None", f"schedule=None, default_args={default_args or {}}")
        .replace("{config}", "")
        .replace("{inside}", inside)
        .replace("{outside}", outside)
    )
    stored = DagSerialization.from_dict(DagSerialization.to_dict(dag))
    assert {uid: stored.get_task(f"epoch.{uid}").trigger_rule for uid in rules} == rules
    assert stored.get_task("epoch.a").upstream_task_ids >= ({TRIGGER} if "before >> a" not in outside else {"before"})
    is_run = TaskInstance.is_task_schedulable(stored.get_task(TRIGGER))
    assert not ("always" in rules.values() and is_run), "Airflow would run both at once"


def test_an_instance_of_a_mapped_stage_knows_what_it_may_do(dag_file: DagFile) -> None:
    dag, trigger = parsed(dag_file, f"{MAPPED} >> [a, b]")
    for instance in instances_of(dag.get_task("epoch.m")):
        assert trigger_before(instance.operator) is trigger
    assert where_of(dag.get_task("epoch.a"), "flights", "r1").trigger == TaskRef("epoch.m", 0)


OTHERS = {
    "a plain task": ("EmptyOperator(task_id='plain') >> a >> b", "pass", ""),
    "a plain task beside a stage": ("EmptyOperator(task_id='plain') >> a", "pass", ""),
    "one after another task": ("a >> b", "before >> a", ""),
    "one of two after another task": ("pass", "before >> a", ""),
    "unaligned": ("a >> b", "pass", "unaligned=True"),
    "two unaligned": ("pass", "pass", "unaligned=True"),
}


@pytest.mark.parametrize(("inside", "outside", "config"), OTHERS.values(), ids=OTHERS)
def test_in_other_shapes_the_task_that_triggers_runs(dag_file: DagFile, inside: str, outside: str, config: str) -> None:
    """Tasks drawn after the block count, too: `before` may be skipped, and the stage with it."""
    dag, trigger = parsed(dag_file, inside, outside, config)
    assert first_stages_of(trigger) == ()
    assert not trigger.inherits_from_empty_operator
    assert trigger_before(dag.get_task("epoch.a")) is None
    assert trigger_task(trigger).task_id == TRIGGER


def test_nor_is_it_passed_over_without_a_group(dag_file: DagFile) -> None:
    dag = dag_file.dag(
        """
with DAG("flights", schedule=None):
    a = SparkEpochOperator(task_id="a", application="x.py", storage="file:///lake/cairn")
    trigger = TriggerCheckpointOperator(
        task_id="trigger", stages=[StageSpec("a")], storage="file:///lake/cairn", reads_window=False
    )
    trigger >> a
"""
    )
    assert not dag.get_task("trigger").inherits_from_empty_operator
