"""A misspelt option is refused where the DAG is parsed, with the one that it resembles."""

from __future__ import annotations

from typing import Any

import pytest
from airflow.sdk import DAG

from airflow_cairn.checkpoint import CheckpointConfig, InvalidConfigError
from airflow_cairn.checkpoint.validation import did_you_mean
from airflow_cairn.operators import CheckpointedTaskGroup, SparkEpochOperator


@pytest.mark.parametrize(
    ("kind", "options", "said"),
    [
        (
            SparkEpochOperator,
            {"paralelism": 2},
            "SparkEpochOperator has no option 'paralelism'; did you mean 'parallelism'",
        ),
        (SparkEpochOperator, {"retrys": 2}, "has no option 'retrys'; did you mean 'retries'?"),
        (SparkEpochOperator, {"aplication": "x.py"}, "did you mean 'application'?"),
    ],
)
def test_of_an_operator(kind: Any, options: dict[str, Any], said: str) -> None:
    with DAG("d", schedule=None), pytest.raises(InvalidConfigError) as refused:
        kind(task_id="t", storage="s3://lake/cairn", **options)
    assert said in str(refused.value)
    assert refused.value.fields == {"task": "t"}


def test_of_a_group() -> None:
    with (
        DAG("d", schedule=None),
        pytest.raises(InvalidConfigError, match=r"no option 'stroage'; did you mean 'storage'\?"),
    ):
        CheckpointedTaskGroup("epoch", stroage="s3://lake/cairn")


def test_of_a_choice() -> None:
    with pytest.raises(InvalidConfigError, match=r"exactly_once, at_least_once; did you mean 'at_least_once'\?"):
        CheckpointConfig(mode="at_least_onc")  # type: ignore[arg-type]


def test_what_resembles_nothing_is_airflows_to_judge() -> None:
    with DAG("d", schedule=None), pytest.raises(TypeError, match="zzz"):
        SparkEpochOperator(task_id="t", storage="s3://lake/cairn", application="x.py", zzz=1)


def test_options_of_airflow_are_known() -> None:
    """Those that another resembles too"""
    with DAG("d", schedule=None):
        made = SparkEpochOperator(
            task_id="t", storage="s3://lake/cairn", application="x.py", retries=1, pool="p", queue="q", owner="o",
            doc="d", conf={"a": "b"}, files="f", trigger_rule="all_done", max_active_tis_per_dag=1,
        )  # fmt: skip
    assert made.pool == "p"


@pytest.mark.parametrize(("given", "hint"), [("regon", "; did you mean 'region'?"), ("zzz", ""), (5, "")])
def test_the_hint(given: object, hint: str) -> None:
    assert did_you_mean(given, ("region", "full")) == hint
