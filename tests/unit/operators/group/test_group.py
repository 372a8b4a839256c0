"""The shape that a CheckpointedTaskGroup gives to a DAG, what it refuses at parse, and takes from `default_args`."""

from collections.abc import Mapping
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from airflow.sdk import DAG, TaskGroup, TriggerRule, timezone
from airflow.sdk.definitions._internal.contextmanager import TaskGroupContext
from airflow.sdk.exceptions import AirflowFailException

from airflow_cairn.checkpoint import CheckpointConfig, NoRestart, RegionalCheckpoints
from airflow_cairn.checkpoint.documents.attempt import StageSpec
from airflow_cairn.checkpoint.errors import InvalidConfigError
from airflow_cairn.operators import (
    CheckpointedTaskGroup,
    SparkEpochOperator,
    TriggerCheckpointOperator,
    restore_latest_checkpoint,
)
from airflow_cairn.operators.graph.topology import trigger_of, where_of
from airflow_cairn.operators.group.task_group import TRIGGER, WAIT
from airflow_cairn.tasks.connect_session import ConnectSession
from tests.support.airflow_fixtures import DagFile, Said
from tests.support.airflow_stage import Job, Ti, context
from tests.support.groups import STORAGE, epoch_group, stage
from tests.support.narrowing import expect


def stages_of(dag: DAG, task_id: str = "epoch.trigger_checkpoint") -> dict[str, tuple[str, ...]]:
    trigger = expect(TriggerCheckpointOperator, dag.get_task(task_id))
    return {stage.uid: stage.upstream for stage in trigger.declared_stages()}


def edges(dag: DAG) -> set[tuple[str, str]]:
    return {(task.task_id, down) for task in dag.tasks for down in task.downstream_task_ids}


def test_the_pipeline_of_the_design() -> None:
    with epoch_group() as dag:
        clean, routes, airports, report = (stage(name) for name in ("clean", "routes", "airports", "report"))
        clean >> [routes, airports] >> report
    assert edges(dag) == {
        ("epoch.trigger_checkpoint", "epoch.clean"),
        ("epoch.clean", "epoch.routes"),
        ("epoch.clean", "epoch.airports"),
        ("epoch.routes", "epoch.report"),
        ("epoch.airports", "epoch.report"),
        ("epoch.report", "epoch.wait_for_checkpoint"),
    }
    assert stages_of(dag) == {
        "clean": (),
        "routes": ("clean",),
        "airports": ("clean",),
        "report": ("airports", "routes"),
    }


def test_the_group_says_how_its_own_tasks_wait() -> None:
    options: dict[str, Any] = {"deferrable": False, "poll_interval": timedelta(seconds=7)}
    with DAG("flights", schedule=None) as dag:
        with CheckpointedTaskGroup("epoch", reads_window=False, storage=STORAGE, **options):
            stage("clean")
        with CheckpointedTaskGroup("other", reads_window=False, storage=STORAGE, job="other"):
            stage("clean")
    tasks: list[Any] = [dag.get_task(f"{group}.{task}") for group in ("epoch", "other") for task in (TRIGGER, WAIT)]
    assert [task.deferrable for task in tasks] == [False, False, True, True]
    assert [task.poll_interval for task in tasks if isinstance(task, TriggerCheckpointOperator)] == [7.0, 2.0]


@pytest.mark.parametrize("interval", ["0", "-1", "'2'", "None", "float('nan')", "float('inf')", "timedelta(0)"])
def test_an_interval_that_is_none_names_the_group(dag_file: DagFile, interval: str) -> None:  # semantics S3
    found = dag_file.error(
        f"from datetime import timedelta\nwith DAG('d'), CheckpointedTaskGroup('epoch', reads_window=False, "
        f"storage={STORAGE!r}, poll_interval={interval}):\n    SparkEpochOperator(task_id='a', application='a.py')\n"
    )
    assert "poll_interval must be above 0 seconds and at most 365 days: write poll_interval=5" in found


@pytest.mark.parametrize(
    "config", [CheckpointConfig(unaligned=True), CheckpointConfig(regional=RegionalCheckpoints())], ids=repr
)
def test_no_stage_holds_up_a_checkpoint_that_may_leave_it_out(config: CheckpointConfig) -> None:  # semantics B3, F6
    with DAG("flights", schedule=None) as dag:
        after = stage("after", storage=STORAGE)
        with CheckpointedTaskGroup("epoch", reads_window=False, storage=STORAGE, config=config) as group:
            stage("clean") >> stage("routes")
        group >> after
    assert edges(dag) == {
        ("epoch.trigger_checkpoint", "epoch.clean"),
        ("epoch.trigger_checkpoint", "epoch.wait_for_checkpoint"),
        ("epoch.clean", "epoch.routes"),
        ("epoch.wait_for_checkpoint", "after"),
    }


def test_a_stage_that_reads_what_is_there_has_no_edge() -> None:  # semantics B2
    config = CheckpointConfig(mode="at_least_once")
    with epoch_group(config=config) as dag:
        stage("report", reads=["clean", "slow"])
        stage("clean") >> stage("airports", reads=("slow", "clean"))
        stage("slowly", uid="slow")
    assert edges(dag) == {
        ("epoch.trigger_checkpoint", "epoch.clean"),
        ("epoch.trigger_checkpoint", "epoch.report"),
        ("epoch.trigger_checkpoint", "epoch.slowly"),
        ("epoch.clean", "epoch.airports"),
        ("epoch.airports", "epoch.wait_for_checkpoint"),
        ("epoch.report", "epoch.wait_for_checkpoint"),
        ("epoch.slowly", "epoch.wait_for_checkpoint"),
    }
    assert stages_of(dag) == {"report": ("clean", "slow"), "clean": (), "airports": ("clean", "slow"), "slow": ()}


def test_what_the_group_knows_reaches_every_task() -> None:
    with epoch_group(aws_conn_id="lake", conn_id="cluster") as dag:
        routes = stage("routes", parallelism=4)
        other = stage("other", conn_id="mine")
    for task_id in ("trigger_checkpoint", "routes", "wait_for_checkpoint"):
        task: Any = dag.get_task(f"epoch.{task_id}")
        assert (task.storage, task.job, task.aws_conn_id) == (STORAGE, "flights", "lake")
    assert (routes._conn_id, other._conn_id) == ("cluster", "mine")
    assert routes.name == "flights routes"
    trigger = expect(TriggerCheckpointOperator, dag.get_task("epoch.trigger_checkpoint"))
    assert trigger.declared_stages() == (StageSpec("routes", (), 4), StageSpec("other"))


def test_before_and_after_the_group() -> None:
    with DAG("flights", schedule=None) as dag:
        before, after = (SparkEpochOperator(task_id=n, application="a.py", storage=STORAGE) for n in ("b", "a"))
        with CheckpointedTaskGroup("epoch", reads_window=False, storage=STORAGE) as group:
            stage("routes")
        before >> group >> after
    assert before.downstream_task_ids == {"epoch.trigger_checkpoint"}
    assert after.upstream_task_ids == {"epoch.wait_for_checkpoint"}
    # Trigger and stages are skipped where the epoch is complete; what follows the group still runs.
    assert dag.get_task("epoch.wait_for_checkpoint").trigger_rule == TriggerRule.NONE_FAILED


def test_edges_drawn_after_the_block_count_too() -> None:
    with epoch_group() as dag:
        clean, routes = stage("clean"), stage("routes")
    clean >> routes
    assert stages_of(dag) == {"clean": (), "routes": ("clean",)}


def test_plain_groups_inside_are_looked_into(dag_file: DagFile) -> None:
    dag = dag_file.dag("""
with DAG("flights", schedule=None), CheckpointedTaskGroup("epoch", reads_window=False, storage="file:///lake"):
    with TaskGroup("inner"):
        a = SparkEpochOperator(task_id="a", application="a.py")
    b = SparkEpochOperator(task_id="b", application="b.py", task_display_name="Bee")
    a >> b
""")
    assert stages_of(dag) == {"a": (), "b": ("a",)}
    assert ("epoch.trigger_checkpoint", "epoch.inner.a") in edges(dag)
    assert dag.get_task("epoch.inner.a").on_retry_callback == [restore_latest_checkpoint]


def test_both_callbacks_run_ours_first() -> None:
    def mine(context: Any) -> None: ...

    with (
        DAG("flights", schedule=None, default_args={"on_failure_callback": mine}),
        CheckpointedTaskGroup("epoch", reads_window=False, storage=STORAGE),
    ):
        plain = stage("plain", on_retry_callback=[mine])
        already = stage("already", on_failure_callback=restore_latest_checkpoint)
    assert plain.on_retry_callback == [restore_latest_checkpoint, mine]
    assert plain.on_failure_callback == [restore_latest_checkpoint, mine]
    assert already.on_failure_callback == [restore_latest_checkpoint]


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (
            (
                "    from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator\n"
                "    SparkSubmitOperator(task_id='old', application='a.py')"
            ),
            (
                "epoch.old is of type SparkSubmitOperator, which cannot acknowledge a checkpoint: make it a "
                "SparkEpochOperator, or move the task before or after the group"
            ),
        ),
        (
            "    CheckpointSensor(task_id='wait', storage='file:///lake')",
            "epoch.wait is of type CheckpointSensor, and the group adds its own: take the task out",
        ),
        (
            (
                "    @task_group\n"
                "    def of_one(name):\n"
                "        SparkEpochOperator(task_id='m', application='a.py')\n"
                "    of_one.expand(name=['x', 'y'])"
            ),
            "epoch.of_one.m lies in a mapped task group, and only a task that is mapped by itself can be many stages",
        ),
        ("    EmptyOperator(task_id='notify')", "the CheckpointedTaskGroup has no stage; add a SparkEpochOperator"),
        (
            "    for name in 'ab':\n        SparkEpochOperator(task_id=name, application='a.py', uid='same')",
            "epoch.a and epoch.b have the same uid: give one of them another (uid='…')",
        ),
        (
            "    SparkEpochOperator(task_id='a', application='a.py', job='other')",
            "epoch.a names another storage or job than its group: remove them from the task",
        ),
        (
            "    with CheckpointedTaskGroup('inner', storage='file:///lake', job='inner'):\n        pass",
            "a CheckpointedTaskGroup lies in another one: an epoch has one checkpoint",
        ),
        (
            (
                "    SparkEpochOperator(task_id='a', application='a.py')\n"
                "with dag, CheckpointedTaskGroup('again', reads_window=False, storage='file:///lake'):\n    pass"
            ),
            "epoch and again are of one job: their epochs would complete each other. Give each group its own job",
        ),
        (
            "    SparkEpochOperator(task_id='a', application='a.py')\nwith group:\n    pass",
            "the CheckpointedTaskGroup is opened a second time; put all its stages into one block",
        ),
    ],
)
def test_what_a_group_refuses(dag_file: DagFile, body: str, text: str) -> None:
    head = (
        'with DAG("flights", schedule=None) as dag, CheckpointedTaskGroup("epoch", '
        'reads_window=False, storage="file:///lake") as group:\n'
    )
    assert text in dag_file.error(head + body)


SPELLINGS = [
    ("s3://lake/cairn", "s3a://lake/cairn"),
    ("s3://lake/cairn", "s3://lake/cairn/"),
    ("s3a://lake/cairn/", "S3://lake/cairn"),
    ("file:///lake/cairn", "file:///lake/cairn/"),
    ("file:///lake/cairn", "file:/lake/cairn"),
    ("{{ var.value.lake }}", "{{ var.value.lake }}"),
]


@pytest.mark.parametrize(("one", "other"), SPELLINGS)
def test_two_groups_of_one_job_however_its_storage_is_spelt(one: str, other: str) -> None:
    def own_trigger(storage: str) -> None:
        TriggerCheckpointOperator(task_id="own", storage=storage, reads_window=False, stages=[StageSpec("a")])

    with DAG("flights", schedule=None):
        with CheckpointedTaskGroup("epoch", reads_window=False, storage=one):
            stage("a")
        with pytest.raises(InvalidConfigError, match="epoch and again are of one job"):
            CheckpointedTaskGroup("again", reads_window=False, storage=other)
        with pytest.raises(InvalidConfigError, match="trigger_checkpoint and own trigger the checkpoints of one job"):
            own_trigger(other)
        with CheckpointedTaskGroup("elsewhere", reads_window=False, storage=f"{one.rstrip('/')}2"):
            stage("b")
    with DAG("flights", schedule=None):
        own_trigger(one)
        group = CheckpointedTaskGroup("epoch", reads_window=False, storage=other)
        with pytest.raises(InvalidConfigError, match=r"own and epoch\.trigger_checkpoint trigger.*of one job"), group:
            stage("a")


@pytest.mark.parametrize(("one", "other"), SPELLINGS)
def test_tasks_of_one_job_however_its_storage_is_spelt(one: str, other: str) -> None:
    with DAG("flights", schedule=None):
        with CheckpointedTaskGroup("epoch", reads_window=False, storage=one):
            inside = stage("a", storage=other)
        first, second = stage("first", storage=one, job="j"), stage("second", storage=other, job="j")
        specs = [StageSpec("first"), StageSpec("second", ("first",))]
        trigger = TriggerCheckpointOperator(task_id="trigger", storage=other, job="j", reads_window=False, stages=specs)
        trigger >> first >> second
    assert list(where_of(inside, "flights", "r").tasks) == ["a"]
    assert list(where_of(first, "flights", "r").tasks) == ["first", "second"]
    assert trigger_of(first) == trigger_of(second) is not None


def test_an_error_in_the_block_is_shown_and_leaves_no_group_open() -> None:
    """The dag processor parses the next file in the same process."""

    def group(name: str, **more: Any) -> CheckpointedTaskGroup:
        return CheckpointedTaskGroup(name, reads_window=False, storage=STORAGE, job=name, **more)

    with DAG("flights", schedule=None) as dag:
        with pytest.raises(ZeroDivisionError), group("one"):
            _ = 1 / 0
        with pytest.raises(InvalidConfigError, match="has no stage"), group("two"):
            pass
        with pytest.raises(InvalidConfigError, match="poll_interval"), group("three", poll_interval=0):
            raise AssertionError("the block is not entered")
        assert TaskGroupContext.get_current(dag) is dag.task_group


RUN = "manual__r1"
OWN = (TRIGGER, WAIT)


def group_of(defaults: Mapping[str, Any], **options: Any) -> DAG:
    with (
        DAG("flights", schedule=None, default_args=dict(defaults)) as dag,
        CheckpointedTaskGroup("epoch", **{"storage": "file:///lake", "reads_window": False, **options}),
    ):
        SparkEpochOperator(task_id="routes", application="a.py")
    return dag


def own(dag: DAG, task_id: str) -> Any:
    return dag.get_task(f"epoch.{task_id}")


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("soft_fail", True),
        ("never_fail", True),
        ("silent_fail", True),
        ("timeout", 60),
        ("mode", "reschedule"),
        ("poke_interval", 600),
        ("exponential_backoff", True),
        ("max_wait", 60),
        ("trigger_rule", "always"),
        ("depends_on_past", True),
        ("wait_for_downstream", True),
        ("ignore_first_depends_on_past", False),
        ("wait_for_past_depends_before_skipping", True),
        ("execution_timeout", timedelta(seconds=1)),
        ("max_active_tis_per_dag", 1),
        ("pre_execute", print),
        ("post_execute", print),
        ("retry_policy", object()),
        ("deferrable", False),
        ("kind", "MANUAL"),
        ("recheck_interval", timedelta(days=1)),
        ("listeners", []),
    ],
)
def test_what_decides_how_an_epoch_ends_is_the_groups(argument: str, value: Any) -> None:
    # A stage takes its own from them: here only the group's tasks are looked at.
    told, plain = group_of({argument: value}, job="flights"), group_of({}, job="flights")
    for task_id in OWN:
        name = f"_{argument}_hook" if argument.endswith("_execute") else argument
        assert getattr(own(told, task_id), name, None) == getattr(own(plain, task_id), name, None)


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("owner", "lake"),
        ("do_xcom_push", False),
        ("queue", "small"),
        ("pool", "spark"),
        ("priority_weight", 7),
        ("executor_config", {"a": 1}),
        ("run_as_user", "airflow"),
        ("retry_delay", timedelta(minutes=5)),
        ("retries", 7),
        ("outlets", []),
    ],
)
def test_where_they_run_and_who_is_told_is_the_dags(argument: str, value: Any) -> None:
    assert [getattr(own(group_of({argument: value}), task_id), argument) for task_id in OWN] == [value, value]


@pytest.mark.parametrize("retries", [0, None, 1])
def test_they_are_tried_again_at_least_twice(retries: int | None) -> None:
    dag = group_of({"retries": retries})
    assert [own(dag, task_id).retries for task_id in OWN] == [2, 2]
    assert dag.get_task("epoch.routes").retries == (retries or 0)


@pytest.mark.parametrize("option", ["soft_fail", "never_fail"])
@pytest.mark.parametrize("mode", [{}, {"unaligned": True}, {"regional": RegionalCheckpoints()}])
@pytest.mark.parametrize("found", ["at once", "after the wait", "by a poke"])
def test_no_incomplete_epoch_ends_green(job: Job, option: str, mode: dict[str, Any], found: str) -> None:
    """semantics D5"""
    config = CheckpointConfig(restart_strategy=NoRestart(), **mode)
    job.trigger(RUN, "routes", config=config)
    job.begin(RUN)
    job.coordinator.fail(RUN, "routes", "somebody", "boom", final=True)
    wait = own(group_of({option: True}, storage=job.storage, config=config, deferrable=found != "by a poke"), WAIT)
    here = context(Ti(run_id=RUN, task_id=wait.task_id))
    deadline = (timezone.utcnow() + timedelta(minutes=1)).isoformat()
    kwargs = {"event": {"status": "failed"}, "deadline": deadline}
    after = found == "after the wait"
    look = partial(wait.resume_execution, "execute_complete", kwargs) if after else wait.execute
    with pytest.raises(AirflowFailException, match="boom"):
        look(here)


@pytest.mark.parametrize(
    ("defaults", "options", "identity"),
    [
        ({"aws_conn_id": "lake"}, {}, "lake"),
        ({"aws_conn_id": "other"}, {"aws_conn_id": "lake"}, "lake"),
        ({"aws_conn_id": "other"}, {"default_args": {"aws_conn_id": "lake"}}, "lake"),
        ({"aws_conn_id": "other"}, {"default_args": {"aws_conn_id": None}}, None),
        ({}, {"aws_conn_id": "lake"}, "lake"),
    ],
)
def test_an_epoch_has_one_identity(defaults: dict[str, Any], options: dict[str, Any], identity: str | None) -> None:
    dag = group_of(defaults, **options)
    assert {own(dag, task_id).aws_conn_id for task_id in (*OWN, "routes")} == {identity}


@pytest.mark.parametrize(("of_stage", "of_inner_group"), [({"aws_conn_id": "mine"}, {}), ({}, {"aws_conn_id": "mine"})])
def test_a_stage_of_another_identity_is_refused(of_stage: dict[str, Any], of_inner_group: Any) -> None:
    with (
        pytest.raises(InvalidConfigError, match=r"routes names another aws_conn_id than its group.*expected=.?lake"),
        DAG("flights", schedule=None),
        CheckpointedTaskGroup("epoch", storage="s3://lake/cairn", aws_conn_id="lake", reads_window=False),
        TaskGroup("inner", default_args=of_inner_group),
    ):
        SparkEpochOperator(task_id="routes", application="a.py", **of_stage)


@pytest.mark.parametrize(
    ("defaults", "conn_id", "of_stage", "goes_to", "shares"),
    [
        ({}, None, {}, "spark_default", True),
        ({"conn_id": "spark_default"}, None, {}, "spark_default", True),
        ({"conn_id": "pg"}, "spark_prod", {}, "spark_prod", True),
        ({"conn_id": "spark_prod"}, "spark_prod", {}, "spark_prod", True),
        ({}, None, {"conn_id": "spark_default"}, "spark_default", True),
        ({}, "spark_prod", {"conn_id": "spark_prod"}, "spark_prod", True),
        ({}, "spark_prod", {"conn_id": "mine"}, "mine", False),
        ({}, None, {"default_args": {"conn_id": "mine"}}, "mine", False),
    ],
)
def test_the_groups_own_connection_named_again_shares_its_session(
    defaults: dict[str, Any], conn_id: str | None, of_stage: dict[str, Any], goes_to: str, shares: bool, said: Said
) -> None:
    with (
        DAG("flights", schedule=None, default_args=defaults),
        CheckpointedTaskGroup(
            "epoch", storage="file:///lake", reads_window=False, session=ConnectSession(), conn_id=conn_id
        ),
    ):
        stage = SparkEpochOperator(task_id="routes", application="a.py", **of_stage)
    assert (stage._conn_id, stage.session is not None) == (goes_to, shares)
    text = "epoch.routes names the Spark connection mine: it goes there, and does not share the session of epoch"
    assert (text in said.text) is not shares


def test_default_args_do_not_choose_where_a_session_runs() -> None:
    why = r"has a session but names no Spark connection.*Give the group conn_id='pg'"
    with pytest.raises(InvalidConfigError, match=why):
        group_of({"conn_id": "pg"}, session=ConnectSession())
    assert own(group_of({"conn_id": "cluster"}), "routes")._conn_id == "cluster"
