"""What the tasks of a group take from `default_args`, which a DAG has for its other tasks."""

from collections.abc import Mapping
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from airflow.sdk import DAG, TaskGroup, timezone
from airflow.sdk.exceptions import AirflowFailException

from airflow_cairn.checkpoint import CheckpointConfig, NoRestart, RegionalCheckpoints
from airflow_cairn.checkpoint.errors import InvalidConfigError
from airflow_cairn.operators import CheckpointedTaskGroup, SparkEpochOperator
from airflow_cairn.operators.group.task_group import TRIGGER, WAIT
from airflow_cairn.tasks.connect_session import ConnectSession
from tests.support.airflow_fixtures import Said
from tests.support.airflow_stage import Job, Ti, context

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
    why = r"has a session and names no Spark connection.*Give the group conn_id='pg'"
    with pytest.raises(InvalidConfigError, match=why):
        group_of({"conn_id": "pg"}, session=ConnectSession())
    assert own(group_of({"conn_id": "cluster"}), "routes")._conn_id == "cluster"
