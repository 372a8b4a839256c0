"""Features that Airflow 3.2 lacks are off: no task is given a policy, and a restart strategy is refused by name."""

import importlib.util
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from airflow.sdk import observability
from airflow.sdk.observability.metrics import stats_utils

from airflow_cairn.checkpoint.documents.attempt import StageSpec
from airflow_cairn.checkpoint.errors import InvalidConfigError
from airflow_cairn.hooks import versions
from airflow_cairn.hooks.task_refs import TaskRef, clear_body
from airflow_cairn.operators import (
    CheckpointRetryPolicy,
    DisposeSavepointOperator,
    RestoreLatestCheckpointOperator,
    SavepointOperator,
    TriggerCheckpointOperator,
)
from airflow_cairn.tasks import metrics
from tests.support.airflow_fixtures import DagFile
from tests.unit.storage.test_older_pythons import loaded

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
    monkeypatch.setattr(versions, "HAS_RETRY_POLICIES", False)
    monkeypatch.setattr(versions, "TAKES_NOTES", False)


@pytest.mark.parametrize("operator", MADE)
def test_no_task_is_given_a_policy(operator: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert MADE[operator]().retry_policy is not None
    monkeypatch.setattr(versions, "HAS_RETRY_POLICIES", False)
    assert MADE[operator]().retry_policy is None


@pytest.mark.usefixtures("older")
def test_a_policy_is_refused() -> None:
    with pytest.raises(InvalidConfigError, match=r"needs Airflow's retry policies, which Airflow has from 3\.3 on"):
        CheckpointRetryPolicy()


@pytest.mark.usefixtures("older")
def test_a_restart_strategy_is_refused_at_parse(dag_file: DagFile) -> None:
    text = "from airflow_cairn.checkpoint import CheckpointConfig, FixedDelayRestart\n" + RESTARTING
    assert "Upgrade Airflow, or leave `restart_strategy` and CheckpointRetryPolicy out" in dag_file.error(text)


@pytest.mark.usefixtures("older")
def test_a_clear_says_no_reason() -> None:
    """Airflow 3.2 refuses a field that it does not know."""
    assert "note" not in clear_body("r", [TaskRef("a")], "why")


def test_the_features_follow_from_what_airflow_has(monkeypatch: pytest.MonkeyPatch) -> None:
    assert loaded(versions).HAS_RETRY_POLICIES
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    again = loaded(versions)
    assert (again.HAS_RETRY_POLICIES, again.TAKES_NOTES) == (False, False)
    assert again.policy_option(None) == {}
    assert again.RetryPolicy is not versions.RetryPolicy


class OlderStats:
    """Airflow 3.2's: one class with methods, and no functions beside it."""

    sent: ClassVar[list[tuple[Any, ...]]] = []

    @classmethod
    def initialize(cls, *, factory: Any) -> None:
        cls.sent.append(("initialize", factory))

    @classmethod
    def incr(cls, name: str, count: int, *, tags: dict[str, str]) -> None:
        cls.sent.append((name, count, tags))


def test_metrics_are_sent_by_the_class_that_an_older_airflow_has(monkeypatch: pytest.MonkeyPatch) -> None:
    older = SimpleNamespace(Stats=OlderStats)
    monkeypatch.setattr(observability, "stats", older, raising=False)  # a submodule, perhaps not imported yet
    monkeypatch.setattr(stats_utils, "get_stats_factory", lambda stats: ("factory of", stats))
    versions.configure_metrics()
    metrics.TRIGGERED.send("flights", 1)
    assert OlderStats.sent == [
        ("initialize", ("factory of", OlderStats)),
        ("cairn.checkpoint.triggered", 1, {"job_name": "flights"}),
    ]
