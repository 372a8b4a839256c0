"""Spark work in a group that no checkpoint covers is warned of where the DAG is parsed; other plain tasks pass."""

import warnings
from collections.abc import Callable
from typing import Any

import pytest
from airflow.providers.apache.spark.operators.spark_sql import SparkSqlOperator
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG, BaseOperator, task

from airflow_cairn.checkpoint.errors import InvalidConfigError
from airflow_cairn.operators import CheckpointedTaskGroup
from airflow_cairn.operators.graph.stages import UncoveredSparkWarning
from tests.unit.operators.graph.test_exchanges import STORAGE, stage


@task.pyspark(task_id="pyspark")
def pyspark(spark: Any) -> None: ...


@task(task_id="python")
def python() -> None: ...


class LivyOperator(BaseOperator):
    """As that provider's: its name does not say that it runs Spark."""


def in_a_group(make: Callable[[], object]) -> None:
    with DAG("flights", schedule=None), CheckpointedTaskGroup("epoch", storage=STORAGE, reads_window=False):
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


def test_a_submitted_application_without_acknowledgement_is_refused() -> None:
    with pytest.raises(InvalidConfigError, match="is of type SparkSubmitOperator, which cannot acknowledge"):
        in_a_group(lambda: SparkSubmitOperator(task_id="submit", application="x.py"))
