"""Sources in the DAG: given to the group, checked at parse, and asked with the run's facts (semantics T8, S3)."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DAG

from airflow_cairn.checkpoint import AssetEvents, CheckpointConfig, DataInterval, FileSource
from airflow_cairn.checkpoint.errors import InvalidConfigError
from airflow_cairn.operators import StageSpec, TriggerCheckpointOperator
from airflow_cairn.operators.run_facts import run_facts


def operator(source: Any, **options: Any) -> TriggerCheckpointOperator:
    with DAG("sources", schedule=None):
        return TriggerCheckpointOperator(
            task_id="trigger", storage="file:///store", stages=[StageSpec("a")], source=source, **options
        )


def test_a_task_takes_one_source_or_several() -> None:
    assert operator(None).sources == ()
    assert operator(DataInterval()).sources == (DataInterval(),)
    assert operator([DataInterval(), AssetEvents()]).sources == (DataInterval(), AssetEvents())


@pytest.mark.parametrize(
    ("source", "options"),
    [("files", {}), (DataInterval(), {"config": CheckpointConfig(max_concurrent_checkpoints=2)})],
)
def test_a_wrong_source_is_refused_at_parse_and_the_task_named(source: Any, options: Any) -> None:
    with pytest.raises(InvalidConfigError, match="trigger"):
        operator(source, **options)


def test_the_run_s_facts_reach_the_source_and_it_can_open_its_folder(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("1")
    event = SimpleNamespace(
        asset=SimpleNamespace(uri="s3://in/x", name="x"),
        timestamp=datetime(2026, 1, 1, tzinfo=UTC),
        extra={"rows": 1},
        source_dag_id="up",
        source_run_id="r",
        source_task_id="t",
        source_map_index=-1,
    )
    dag_run = SimpleNamespace(
        run_id="run",
        run_type="asset_triggered",
        logical_date=None,
        data_interval_start=None,
        data_interval_end=None,
        consumed_asset_events=[event],
    )
    context: Any = {"dag_run": dag_run}
    facts = run_facts(context)
    assert [(each.uri, each.extra, each.source_run_id) for each in facts.events] == [("s3://in/x", {"rows": 1}, "r")]
    answer: Any = FileSource(f"file://{tmp_path}", "*.csv").read(facts, None)
    assert [file["key"] for file in answer.part["files"]] == ["a.csv"]
