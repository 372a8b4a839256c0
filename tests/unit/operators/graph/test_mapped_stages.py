"""Mapped tasks as stages: each instance is one, with its own uid, claim and failover (semantics F1, R3)."""

import json
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.serialization.serialized_objects import DagSerialization

from airflow_cairn.checkpoint import CheckpointConfig
from airflow_cairn.checkpoint.documents.attempt import Handover, StageSpec
from airflow_cairn.checkpoint.rules.failures import members_of
from airflow_cairn.operators import (
    SparkEpochOperator,
    TriggerCheckpointOperator,
    restore_latest_checkpoint,
)
from airflow_cairn.operators.graph.stages import instances_of
from tests.support.airflow_fixtures import DagFile, Said
from tests.support.airflow_stage import Job, Ti, context
from tests.support.groups import STORAGE, epoch_group, stage
from tests.support.narrowing import expect
from tests.unit.operators.graph.test_exchanges import exchanges
from tests.unit.operators.group.test_group import edges

RUN = "manual__r1"
MAPPED = """
with DAG("flights", schedule=None) as dag, CheckpointedTaskGroup("epoch", reads_window=False, storage="{storage}"):
    a = SparkEpochOperator(task_id="a", application="a.py")
    b = SparkEpochOperator.partial(task_id="b", application="b.py").expand(application_args=[["x"], ["y"], ["z"]])
    c = SparkEpochOperator(task_id="c", application="c.py")
    a >> b >> c
"""


def partial(task_id: str = "b", **options: Any) -> Any:
    return SparkEpochOperator.partial(task_id=task_id, application="b.py", **options)


def specs(dag: DAG) -> tuple[StageSpec, ...]:
    trigger = expect(TriggerCheckpointOperator, dag.get_task("epoch.trigger_checkpoint"))
    return trigger.declared_stages()


def test_each_instance_is_a_stage(dag_file: DagFile) -> None:  # semantics F1
    dag = dag_file.dag(MAPPED.format(storage=STORAGE))
    assert specs(dag) == (
        StageSpec("a"),
        *(StageSpec(f"b-{index}", ("a",), member_of="b") for index in range(3)),
        StageSpec("c", ("b-0", "b-1", "b-2")),
    )
    assert ("epoch.b", "epoch.c") in edges(dag)
    assert ("epoch.trigger_checkpoint", "epoch.b") not in edges(dag)


def test_the_scheduler_sees_callbacks_and_instances(dag_file: DagFile) -> None:
    dag = dag_file.dag(MAPPED.format(storage=STORAGE))
    once = json.dumps(DagSerialization.to_dict(dag), sort_keys=True)
    mapped: Any = DagSerialization.from_dict(json.loads(once)).get_task("epoch.b")
    assert mapped.get_parse_time_mapped_ti_count() == 3
    assert mapped.has_on_retry_callback
    assert mapped.has_on_failure_callback
    assert json.dumps(DagSerialization.to_dict(dag), sort_keys=True) == once


def test_instances_are_in_airflows_order() -> None:
    with epoch_group():
        crossed = partial().expand(application_args=[["x"], ["y"]], env_vars=[{"N": "1"}, {"N": "2"}, {"N": "3"}])
        listed = partial("d").expand_kwargs([{"parallelism": 2}, {"parallelism": 4, "application_args": ["w"]}])
        by_name = partial("e").expand(application_args={"k": "1", "l": "2"})
    of_crossed: list[Any] = [each.operator for each in instances_of(crossed)]
    seen = [(each.application_args, each.env_vars["N"]) for each in of_crossed]
    assert seen == [([x], n) for x in "xy" for n in "123"]
    # Airflow itself, for the fourth instance.
    arguments, _ = crossed.expand_input.resolve({"ti": Ti(map_index=3)})
    assert (arguments["application_args"], arguments["env_vars"]["N"]) == seen[3]
    assert [(each.uid, each.operator.parallelism) for each in instances_of(listed)] == [("d-0", 2), ("d-1", 4)]
    of_named: list[Any] = [each.operator for each in instances_of(by_name)]
    assert [each.application_args for each in of_named] == [("k", "1"), ("l", "2")]


def test_an_authors_callback_stays(dag_file: DagFile) -> None:
    def mine(context: Any) -> None: ...

    with epoch_group():
        mapped = partial(on_retry_callback=mine, on_failure_callback=[mine]).expand(application_args=[["x"]])
    assert mapped.on_retry_callback == mapped.on_failure_callback == [restore_latest_checkpoint, mine]


def test_a_mapped_consumer_says_its_exchange() -> None:  # semantics F1
    with epoch_group() as dag:
        stage("a") >> partial(exchange="pipelined").expand(application_args=[["x"], ["y"]])
    assert exchanges(dag) == {"a": {}, "b-0": {"a": "pipelined"}, "b-1": {"a": "pipelined"}}


def test_all_instances_are_read_by_their_task_s_uid() -> None:  # semantics B2
    with epoch_group(config=CheckpointConfig(mode="at_least_once")) as dag:
        partial(uid="parts").expand(application_args=[["x"], ["y"]])
        stage("c", reads=["parts"])
        stage("d", reads=["parts-1"])
    found = {spec.uid: spec.upstream for spec in specs(dag)}
    assert found == {"parts-0": (), "parts-1": (), "c": ("parts-0", "parts-1"), "d": ("parts-1",)}
    assert members_of(specs(dag), found["c"]) == {"parts": ("parts-0", "parts-1")}
    assert members_of(specs(dag), found["d"]) == {}, "what is not all of them has no name together"


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (
            ("    @task\n    def names():\n        return [['x']]\n    partial().expand(application_args=names())"),
            "epoch.b is mapped over what another task returns, so the number of its stages is not known",
        ),
        (
            "    @task\n    def all_of():\n        return [{}]\n    partial().expand_kwargs(all_of())",
            "epoch.b is mapped over what another task returns",
        ),
        ("    partial().expand(application_args=[])", "epoch.b is mapped over nothing, so it is not a stage"),
        ("    partial().expand(uid=['eu', 'us'])", "epoch.b is mapped over uid, but its instances are stages <uid>-0"),
        ("    partial().expand(parallelism=[2, 0])", "parallelism must be"),
        (
            "    partial().expand(application_args=[['x']])\n    SparkEpochOperator(task_id='b-0', application='a.py')",
            "epoch.b and epoch.b-0 have the same uid",
        ),
        (
            (
                "    partial().expand(application_args=[['x']])\n"
                "    SparkEpochOperator(task_id='other', uid='b', application='a.py')"
            ),
            "epoch.b and epoch.other have the same uid",
        ),
        ("    partial(job='other').expand(application_args=[['x']])", "epoch.b names another storage or job"),
        ("    partial(uid='u' * 249).expand(application_args=[['x']])", "this stage name cannot be used"),
    ],
)
def test_what_is_refused_at_parse_time(dag_file: DagFile, body: str, text: str) -> None:
    head = (
        "def partial(**options):\n"
        "    return SparkEpochOperator.partial(**{'task_id': 'b', 'application': 'b.py', **options})\n"
        'with DAG("flights", schedule=None), CheckpointedTaskGroup("epoch", reads_window=False, storage="file:///lake"):\n'
    )
    assert text in dag_file.error(head + body)


def triggered(dag: DAG, job: Job) -> None:
    """Let the group's first task run."""
    trigger: Any = dag.get_task("epoch.trigger_checkpoint")
    trigger.execute(context(Ti(run_id=RUN)))


def test_one_instance_fails_over_alone(dag_file: DagFile, job: Job, said: Said) -> None:  # semantics F1, F5
    """The instance's process was killed: the dag processor calls back, with the task as it was parsed."""
    dag = dag_file.dag(MAPPED.format(storage=job.storage))
    triggered(dag, job)
    tries = {uid: Ti(run_id=RUN) for uid in ("a", "b-0", "b-1", "b-2")}
    begun: dict[str, Handover] = {}
    for uid, ti in tries.items():
        begun[uid] = job.begin(RUN, uid, claimant=str(ti.id))
        if uid in ("a", "b-0"):
            job.acknowledge(begun[uid])
    dead = Ti(run_id=RUN, map_index=1, id=tries["b-1"].id)
    for _ in range(2):
        restore_latest_checkpoint(context(dead, task=dag.get_task("epoch.b")))
    (pending,) = job.coordinator.head().pending
    assert (pending.id, pending.attempt) == (2, 2)
    assert "stage b-1 failed; checkpoint 2" in said.text
    job.acknowledge(begun["b-2"])
    job.acknowledge(job.begin(RUN, "b-1", claimant="next"))
    job.acknowledge(job.begin(RUN, "c"))
    job.coordinator.complete(2)


def test_the_dag_file_has_changed(dag_file: DagFile, job: Job, said: Said) -> None:
    dag = dag_file.dag(MAPPED.format(storage=job.storage))
    restore_latest_checkpoint(context(Ti(run_id=RUN, map_index=3), task=dag.get_task("epoch.b")))
    assert "the task has no such instance any more: the DAG file has changed" in said.text


def test_a_reader_is_told_the_members(dag_file: DagFile, job: Job) -> None:
    triggered(dag_file.dag(MAPPED.format(storage=job.storage)), job)
    for uid in ("a", "b-0", "b-1", "b-2"):
        job.acknowledge(job.begin(RUN, uid))
    assert job.begin(RUN, "c").members == {"b": ("b-0", "b-1", "b-2")}
