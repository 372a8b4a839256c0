"""Tasks of a group that are no stages: what reads over them, when they run again, which are warned of (B1, F1)."""

import warnings
from collections.abc import Callable
from typing import Any

import pytest
from airflow.providers.apache.spark.operators.spark_sql import SparkSqlOperator
from airflow.providers.standard.operators.bash import BashOperator
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, BaseOperator, TaskGroup, task

from airflow_cairn.checkpoint.errors import InvalidConfigError
from airflow_cairn.operators import CheckpointedTaskGroup, Pipelined, SparkEpochOperator, restore_latest_checkpoint
from airflow_cairn.operators.graph.stages import UncoveredSparkWarning
from airflow_cairn.operators.graph.topology import where_of
from tests.support.airflow_fixtures import Define
from tests.support.airflow_stage import Job, Ti, context
from tests.support.api_stand_in import Answer, Asked, airflow_api
from tests.support.groups import STORAGE, epoch_group, stage
from tests.unit.operators.graph.test_exchanges import exchanges, labels
from tests.unit.operators.group.test_group import edges


def plain(task_id: str) -> EmptyOperator:
    return EmptyOperator(task_id=task_id)


def test_an_edge_over_plain_tasks_is_one_between_stages() -> None:  # semantics B1
    with epoch_group() as dag:
        a, b, c = stage("a"), stage("b"), stage("c")

        @task
        def check(rows: str) -> None: ...

        @task.branch
        def choose() -> str:
            return "epoch.b"

        a >> check("x") >> choose() >> [b, c]
    assert exchanges(dag) == {"a": {}, "b": {"a": "blocking"}, "c": {"a": "blocking"}}


def test_plain_tasks_stand_between_the_trigger_and_the_wait() -> None:
    with epoch_group() as dag:
        first, a, last, alone = plain("first"), stage("a"), plain("last"), plain("alone")
        first >> a >> last
    assert edges(dag) == {
        ("epoch.trigger_checkpoint", "epoch.first"),
        ("epoch.trigger_checkpoint", "epoch.alone"),
        ("epoch.first", "epoch.a"),
        ("epoch.a", "epoch.last"),
        ("epoch.last", "epoch.wait_for_checkpoint"),
        ("epoch.alone", "epoch.wait_for_checkpoint"),
    }
    assert exchanges(dag) == {"a": {}}
    assert restore_latest_checkpoint not in (last.on_retry_callback or ())
    assert alone.downstream_task_ids == {"epoch.wait_for_checkpoint"}


def test_a_way_outside_the_group_counts_too() -> None:
    with DAG("flights", schedule=None) as dag:
        outside = plain("outside")
        with CheckpointedTaskGroup("epoch", reads_window=False, storage=STORAGE):
            a, b = stage("a"), stage("b")
        a >> outside >> b
    assert exchanges(dag)["b"] == {"a": "blocking"}


def test_a_way_is_pipelined_if_every_edge_of_it_is() -> None:  # semantics F1
    with epoch_group() as dag:
        a, gate, other, b, c = stage("a"), plain("gate"), plain("other"), stage("b"), stage("c")
        a >> Pipelined() >> gate >> Pipelined() >> b
        gate >> c
        a >> other >> b
    assert exchanges(dag) == {"a": {}, "b": {"a": "pipelined"}, "c": {"a": "blocking"}}
    assert labels(dag) == {("epoch.a", "epoch.gate"): "pipelined", ("epoch.gate", "epoch.b"): "pipelined"}


def test_a_consumer_says_it_of_whole_ways() -> None:  # semantics F1
    with epoch_group() as dag:
        a, one, two, b = stage("a"), plain("one"), plain("two"), stage("b", exchange="pipelined")
        a >> one >> two >> b
        plain("first") >> two
    assert exchanges(dag)["b"] == {"a": "pipelined"}
    assert labels(dag) == {
        ("epoch.a", "epoch.one"): "pipelined",
        ("epoch.one", "epoch.two"): "pipelined",
        ("epoch.two", "epoch.b"): "pipelined",
    }


@pytest.mark.parametrize(
    "draw",
    [
        lambda a, gate, b: a >> Pipelined() >> gate >> b,
        lambda a, gate, b: a >> gate >> Pipelined() >> b,
        lambda a, gate, b: (a >> b, a >> Pipelined() >> gate),
        lambda a, gate, b: (a >> b, gate >> Pipelined() >> a),
    ],
    ids=["first half", "second half", "to nowhere", "from nowhere"],
)
def test_half_a_pipelined_way_is_refused(draw: Callable[..., Any]) -> None:
    with (
        pytest.raises(InvalidConfigError, match=r"is not part of a pipelined path from one stage to another"),
        epoch_group(),
    ):
        draw(stage("a"), plain("gate"), stage("b"))


def test_a_contradiction_over_a_plain_task_is_refused() -> None:
    with (
        pytest.raises(InvalidConfigError, match=r"epoch.b says exchange='blocking', but its edge from epoch.a is"),
        epoch_group(),
    ):
        stage("a") >> Pipelined() >> plain("gate") >> Pipelined() >> stage("b", exchange="blocking")


def test_what_follows_a_stage_runs_again_with_it() -> None:  # semantics F1
    with DAG("flights", schedule=None):
        with CheckpointedTaskGroup("epoch", reads_window=False, storage=STORAGE) as group:
            a, gate, then, b, after_b = stage("a"), plain("gate"), plain("then"), stage("b"), plain("after_b")
            a >> gate >> then >> b >> after_b
            with TaskGroup("inner"):
                seen = plain("seen")
            a >> seen
            plain("beside") >> b
            stage("alone")
        group >> plain("end")
        a >> plain("outside") >> b
        no_group = stage("no_group", storage=STORAGE)
        no_group >> plain("not_ours")
    where = where_of(a, "flights", "r1")
    assert {uid: str(task) for uid, task in where.tasks.items()} == {uid: f"epoch.{uid}" for uid in ("a", "b", "alone")}
    assert {uid: [str(task) for task in tasks] for uid, tasks in where.plain.items()} == {
        "a": ["epoch.gate", "epoch.inner.seen", "epoch.then"],
        "b": ["epoch.after_b"],
    }
    assert where_of(no_group, "flights", "r1").plain == {}


def test_they_are_cleared_in_one_request(job: Job, connections: Define) -> None:  # semantics F1, F3
    """One instance of a mapped stage dies: its region is the stage before it, and the plain task between them."""
    with epoch_group(storage=job.storage) as dag:
        b = SparkEpochOperator.partial(task_id="b", application="b.py", exchange="pipelined").expand(
            application_args=[["x"], ["y"]]
        )
        stage("a") >> plain("gate") >> b >> plain("after")
    trigger: Any = dag.get_task("epoch.trigger_checkpoint")
    trigger.execute(context(Ti(run_id="r1")))
    tries = {uid: Ti(run_id="r1", map_index=index) for uid, index in (("a", -1), ("b-0", 0), ("b-1", 1))}
    for uid, ti in tries.items():
        handover = job.begin("r1", uid, str(ti.id))
        if uid == "a":
            job.acknowledge(handover)
    ids = {"/epoch.a": str(tries["a"].id), "/epoch.b/0": str(tries["b-0"].id)}

    def airflow(asked: Asked) -> Answer:
        if asked.method == "POST":
            return 200, {"task_instances": []}
        (found,) = (id_ for end, id_ in ids.items() if asked.path.endswith(end))
        return 200, {"id": found, "state": "running"}

    with airflow_api(airflow, connections) as api:
        restore_latest_checkpoint(context(tries["b-1"], task=dag.get_task("epoch.b")))
    (body,) = (asked.body for asked in api.asked if asked.method == "POST")
    assert body["task_ids"] == ["epoch.a", "epoch.after", ["epoch.b", 0], "epoch.gate"]


@task.pyspark(task_id="pyspark")
def pyspark(spark: Any) -> None: ...


@task(task_id="python")
def python() -> None: ...


class LivyOperator(BaseOperator):
    """Operator named as that provider's: the name does not say that it runs Spark."""


def in_a_group(make: Callable[[], object]) -> None:
    with epoch_group():
        stage("a")
        make()


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (pyspark, "pyspark"),
        (lambda: SparkSqlOperator(task_id="sql", sql="select 1"), "sql"),
        (lambda: LivyOperator(task_id="livy"), "livy"),
    ],
)
def test_spark_that_no_checkpoint_covers_is_named(make: Callable[[], object], name: str) -> None:
    with pytest.warns(UncoveredSparkWarning, match=rf"epoch\.{name}, in the group epoch, .* it runs Spark, and no"):
        in_a_group(make)


@pytest.mark.parametrize("make", [python, lambda: BashOperator(task_id="bash", bash_command="true"), lambda: None])
def test_other_tasks_and_stages_pass_without_a_word(make: Callable[[], object]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", UncoveredSparkWarning)
        in_a_group(make)
