"""A misspelt option is refused where the DAG is parsed, with the one that it resembles."""

from collections.abc import Callable
from dataclasses import fields, replace
from datetime import timedelta
from inspect import signature
from typing import Any

import pytest
from airflow.sdk import DAG

from airflow_cairn.checkpoint import (
    AssetEvents,
    CheckpointConfig,
    DataInterval,
    ExponentialDelayRestart,
    FailureRateRestart,
    FileSource,
    FixedDelayRestart,
    InvalidConfigError,
    NoRestart,
    Offsets,
    RegionalCheckpoints,
)
from airflow_cairn.checkpoint.validation import did_you_mean
from airflow_cairn.operators import (
    CairnDoctorOperator,
    CheckpointedTaskGroup,
    ConnectSession,
    DisposeSavepointOperator,
    RestoreLatestCheckpointOperator,
    SavepointOperator,
    SparkEpochOperator,
    StopWithSavepointOperator,
    TriggerCheckpointOperator,
    savepoint_dag,
)
from airflow_cairn.sensors import CheckpointSensor
from airflow_cairn.spark import StateTtl


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"paralelism": 2}, "SparkEpochOperator has no option 'paralelism'; did you mean 'parallelism'"),
        ({"retrys": 2}, "has no option 'retrys'; did you mean 'retries'?"),
        ({"aplication": "x.py"}, "did you mean 'application'?"),
    ],
)
def test_of_an_operator(options: dict[str, Any], said: str) -> None:
    with DAG("d", schedule=None), pytest.raises(InvalidConfigError) as refused:
        SparkEpochOperator(task_id="t", storage="s3://lake/cairn", **options)
    assert said in str(refused.value)
    assert refused.value.fields == {"task": "t"}


@pytest.mark.parametrize(
    "kind",
    [
        CairnDoctorOperator,
        CheckpointSensor,
        DisposeSavepointOperator,
        RestoreLatestCheckpointOperator,
        SavepointOperator,
        SparkEpochOperator,
        StopWithSavepointOperator,
        TriggerCheckpointOperator,
    ],
)
@pytest.mark.parametrize(
    ("misspelt", "meant"),
    [("stroage", "storage"), ("aws_con_id", "aws_conn_id"), ("execution_timout", "execution_timeout")],
)
def test_of_each_task(kind: Any, misspelt: str, meant: str) -> None:
    """Options of the task and of Airflow, also where nothing else is given."""
    with DAG("d", schedule=None), pytest.raises(InvalidConfigError) as refused:
        kind(task_id="t", **{misspelt: None})
    assert str(refused.value) == f"{kind.__name__} has no option '{misspelt}'; did you mean '{meant}'? [task=`t`]"


@pytest.mark.parametrize(
    ("misspelt", "meant"), [("stroage", "storage"), ("max_ag", "max_age"), ("start_dat", "start_date"), ("tag", "tags")]
)
def test_of_a_dag_of_savepoints(misspelt: str, meant: str) -> None:
    """Options of `savepoint_dag` and of a DAG."""
    with pytest.raises(InvalidConfigError) as refused:
        savepoint_dag("flights", "@daily", "s3://lake/savepoints", **{misspelt: None})
    assert (
        str(refused.value)
        == f"savepoint_dag has no option '{misspelt}'; did you mean '{meant}'? [dag=`flights-savepoints`]"
    )


@pytest.mark.parametrize("make", [lambda: CairnDoctorOperator(task_id="t"), lambda: savepoint_dag("flights", "@daily")])
def test_a_storage_has_to_be_given(make: Callable[[], object]) -> None:
    with DAG("d", schedule=None), pytest.raises(InvalidConfigError, match=r"no storage is given: write storage='s3://"):
        make()


MADE_WITH: dict[type, dict[str, Any]] = {
    CheckpointConfig: {},
    RegionalCheckpoints: {},
    NoRestart: {},
    FixedDelayRestart: {},
    ExponentialDelayRestart: {},
    FailureRateRestart: {},
    FileSource: {"uri": "file:///in"},
    AssetEvents: {},
    Offsets: {"ask": lambda position, run: (position, position)},
    DataInterval: {},
    ConnectSession: {},
    StateTtl: {"after": timedelta(days=1), "column": "seen"},
}


@pytest.mark.parametrize("kind", MADE_WITH, ids=lambda kind: kind.__name__)
def test_of_options_that_are_an_object(kind: Any) -> None:
    """Each option is known, and of a wrong one the message names it, the nearest and all"""
    made = kind(**MADE_WITH[kind])
    assert replace(made) == made
    for option in [each.name for each in fields(kind)]:
        with pytest.raises(InvalidConfigError) as refused:
            kind(**MADE_WITH[kind], **{f"{option}x": 1})
        assert f"{kind.__name__} has no option '{option}x'; did you mean '{option}'?" in str(refused.value)
    with pytest.raises(InvalidConfigError) as refused:
        kind(**MADE_WITH[kind], zzzzzz=1)
    assert str(refused.value).startswith(f"{kind.__name__} has no option 'zzzzzz' [options=`")
    assert refused.value.fields == {"options": ", ".join(each.name for each in fields(kind)) or "none"}


def test_of_a_group_and_of_a_choice() -> None:
    with DAG("d"), pytest.raises(InvalidConfigError, match=r"no option 'stroage'; did you mean 'storage'\?"):
        CheckpointedTaskGroup("epoch", stroage="s3://lake/cairn")
    with pytest.raises(InvalidConfigError, match=r"exactly_once, at_least_once; did you mean 'at_least_once'\?"):
        CheckpointConfig(mode="at_least_onc")  # type: ignore[arg-type]
    assert signature(CheckpointConfig).parameters.keys() >= {"timeout", "retained"}, "an editor shows them"


def test_what_resembles_nothing_is_airflows_to_judge() -> None:
    with DAG("d", schedule=None), pytest.raises(TypeError, match="zzz"):
        SparkEpochOperator(task_id="t", storage="s3://lake/cairn", application="x.py", zzz=1)


def test_options_of_airflow_are_known() -> None:
    """Options of Airflow that resemble another are taken too."""
    with DAG("d", schedule=None):
        made = SparkEpochOperator(
            task_id="t", storage="s3://lake/cairn", application="x.py", retries=1, pool="p", queue="q", owner="o",
            doc="d", conf={"a": "b"}, files="f", trigger_rule="all_done", max_active_tis_per_dag=1,
        )  # fmt: skip
    assert made.pool == "p"


@pytest.mark.parametrize(("given", "hint"), [("regon", "; did you mean 'region'?"), ("zzz", ""), (5, "")])
def test_the_hint(given: object, hint: str) -> None:
    assert did_you_mean(given, ("region", "full")) == hint
