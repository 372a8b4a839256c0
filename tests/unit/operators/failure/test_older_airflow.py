"""Airflow 3.2 has no retry policies: no task is given one, and a restart strategy is refused by name."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from airflow_cairn.checkpoint.documents.attempt import StageSpec
from airflow_cairn.checkpoint.errors import InvalidConfigError
from airflow_cairn.operators import (
    CheckpointRetryPolicy,
    DisposeSavepointOperator,
    RestoreLatestCheckpointOperator,
    SavepointOperator,
    TriggerCheckpointOperator,
)
from airflow_cairn.operators.stage import airflow_features
from tests.support.airflow_fixtures import DagFile

WHERE: dict[str, Any] = {"storage": "file:///lake", "job": "flights"}
MADE = {
    "restore": lambda: RestoreLatestCheckpointOperator(task_id="t", **WHERE),
    "trigger": lambda: TriggerCheckpointOperator(
        task_id="t", stages=[StageSpec("routes")], reads_window=False, **WHERE
    ),
    "savepoint": lambda: SavepointOperator(task_id="t", target="file:///lake/kept", **WHERE),
    "dispose": lambda: DisposeSavepointOperator(task_id="t", storage="file:///lake", savepoint="file:///lake/kept/1"),
}
RESTARTING = """
with DAG("flights", schedule=None), CheckpointedTaskGroup(
    "epoch", storage="file:///lake", reads_window=False,
    config=CheckpointConfig(restart_strategy=FixedDelayRestart(attempts=3)),
):
    SparkEpochOperator(task_id="routes", application="routes.py")
"""


@pytest.fixture
def older(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(airflow_features, "HAS_RETRY_POLICIES", False)


@pytest.mark.parametrize("operator", MADE)
def test_a_task_has_a_policy(operator: str) -> None:
    assert MADE[operator]().retry_policy is not None


@pytest.mark.parametrize("operator", MADE)
@pytest.mark.usefixtures("older")
def test_no_task_is_given_a_policy(operator: str) -> None:
    assert MADE[operator]().retry_policy is None


@pytest.mark.usefixtures("older")
def test_a_policy_is_refused() -> None:
    with pytest.raises(InvalidConfigError, match=r"needs Airflow's retry policies, which Airflow has from 3\.3 on"):
        CheckpointRetryPolicy()


@pytest.mark.usefixtures("older")
def test_a_restart_strategy_is_refused_at_parse(dag_file: DagFile) -> None:
    text = "from airflow_cairn.checkpoint import CheckpointConfig, FixedDelayRestart\n" + RESTARTING
    assert "Upgrade Airflow, or leave `restart_strategy` and CheckpointRetryPolicy out" in dag_file.error(text)


def test_the_module_loads_without_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert airflow_features.__file__ is not None
    spec = importlib.util.spec_from_file_location("without_policies", Path(airflow_features.__file__))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert (module.HAS_RETRY_POLICIES, module.policy_option(None)) == (False, {})
    assert module.RetryPolicy is not airflow_features.RetryPolicy
