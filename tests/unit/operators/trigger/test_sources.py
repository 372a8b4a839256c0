"""Sources in the DAG: given to the group, checked at parse, and asked with the run's facts (semantics T8, S3)."""

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowSkipException

from airflow_cairn.checkpoint import AssetEvents, CheckpointConfig, DataInterval, FileSource, Offsets
from airflow_cairn.checkpoint.documents.layout import epoch_name
from airflow_cairn.checkpoint.errors import InvalidConfigError
from airflow_cairn.checkpoint.reasons import Reason
from airflow_cairn.checkpoint.source import RunFacts, Source
from airflow_cairn.operators import StageSpec, TriggerCheckpointOperator
from airflow_cairn.operators.trigger.run_facts import run_facts
from tests.support.airflow_fixtures import Said
from tests.support.airflow_stage import Job, Ti, context
from tests.support.errors import raises_code


def operator(source: Any, **options: Any) -> TriggerCheckpointOperator:
    with DAG("sources", schedule=None):
        return TriggerCheckpointOperator(
            task_id="trigger", storage="file:///store", stages=[StageSpec("a")], source=source, **options
        )


def test_a_task_takes_one_source_or_several() -> None:
    assert operator(None, reads_window=False).sources == ()
    assert operator(DataInterval()).sources == (DataInterval(),)
    assert operator([DataInterval(), AssetEvents()]).sources == (DataInterval(), AssetEvents())


@pytest.mark.parametrize(
    ("source", "options"), [("files", {}), (DataInterval(), {"config": CheckpointConfig(max_concurrent_checkpoints=2)})]
)
def test_a_wrong_source_is_refused_at_parse_and_the_task_named(source: Any, options: Any) -> None:
    with pytest.raises(InvalidConfigError, match="trigger"):
        operator(source, **options)


def test_the_run_s_facts_reach_the_source_and_it_can_open_its_folder(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("1")
    source = {"source_dag_id": "up", "source_run_id": "r", "source_task_id": "t", "source_map_index": -1}
    asset, when = SimpleNamespace(uri="s3://in/x", name="x"), datetime(2026, 1, 1, tzinfo=UTC)
    event = SimpleNamespace(asset=asset, timestamp=when, extra={"rows": 1}, **source)
    context: Any = {"dag_run": Run("run", "asset_triggered", consumed_asset_events=(event,))}
    facts = run_facts(context)
    assert [(each.uri, each.extra, each.source_run_id) for each in facts.events] == [("s3://in/x", {"rows": 1}, "r")]
    answer: Any = FileSource(f"file://{tmp_path}", "*.csv").read(facts, None)
    assert [file["key"] for file in answer.part["files"]] == ["a.csv"]


@dataclass
class Run:
    """The facts of a DAG run as the task SDK gives them."""

    run_id: str
    run_type: str = "scheduled"
    data_interval_start: datetime | None = None
    data_interval_end: datetime | None = None
    logical_date: datetime | None = None
    consumed_asset_events: tuple[Any, ...] = ()
    conf: dict[str, Any] | None = None


def trigger(job: Job, source: Source, run: Run) -> Any:
    with DAG("sources", schedule=None):
        task = TriggerCheckpointOperator(
            task_id="trigger", storage=job.storage, job=job.name, stages=[StageSpec("routes")], source=source
        )
    return task.execute(context(Ti(run_id=run.run_id), dag_run=run))


def finish(job: Job, run_id: str) -> Any:
    """Run the stage; gives what it was to read."""
    handover = job.begin(run_id)
    job.acknowledge(handover)
    job.coordinator.complete(job.coordinator.head().pending[0].id)
    return (handover.slice.sources or {}).values()


def test_a_retry_and_a_clear_read_the_first_trys_input(job: Job, tmp_path: Path, said: Said) -> None:
    folder = tmp_path / "in"  # semantics T8, T9
    folder.mkdir()
    (folder / "a.csv").write_text("1")
    source = FileSource(f"file://{folder}")
    first = trigger(job, source, Run("r1"))
    assert f"files: 1 files to read from file://{folder}" in said.text
    (folder / "b.csv").write_text("1")
    assert trigger(job, source, Run("r1")) == first, "a retried trigger gives what it made"
    job.coordinator.abort(first["checkpoint"], Reason.JOB_FAILURE, "by hand")
    assert trigger(job, source, Run("r1"))["attempt"] == 2
    (part,) = finish(job, "r1")
    assert [file["key"] for file in part["files"]] == ["a.csv"]
    with pytest.raises(AirflowSkipException, match="is completed"):
        trigger(job, source, Run("r1"))
    trigger(job, source, Run("r2"))
    (part,) = finish(job, "r2")
    assert [file["key"] for file in part["files"]] == ["b.csv"]


def test_a_source_is_asked_once_an_epoch(job: Job) -> None:  # semantics T8
    asked: list[Any] = []

    def ask(position: Any, run: RunFacts) -> Any:
        asked.append((run.run_id, position))
        return len(asked), len(asked)

    source = Offsets(ask)
    trigger(job, source, Run("r1"))
    trigger(job, source, Run("r1"))  # a retry of the trigger
    job.coordinator.fail(epoch_name("r1"), "routes", job.begin("r1").claimant, "a failed try")  # a failover
    head = job.coordinator.head()
    assert [entry.attempt for entry in head.pending] == [2]
    job.coordinator.abort(head.pending[0].id, Reason.JOB_FAILURE, "by hand")
    trigger(job, source, Run("r1"))  # a cleared run
    (part,) = finish(job, "r1")
    assert part == {"from": None, "read": 1, "to": 1}
    trigger(job, source, Run("r2"))
    (part,) = finish(job, "r2")
    assert part == {"from": 1, "read": 2, "to": 2}
    assert asked == [("r1", None), ("r2", 1)]


def day(number: int) -> datetime:
    return datetime(2026, 1, number, tzinfo=UTC)


def interval(run_id: str, start: int, end: int, run_type: str = "scheduled") -> Run:
    return Run(run_id, run_type, day(start), day(end))


@pytest.mark.parametrize(
    ("source", "run", "text"),
    [
        (DataInterval(), Run("m", "manual"), r"run m \(manual\) has no data interval: trigger it with a logical date"),
        (DataInterval(), Run("a", "asset_triggered"), r"\(asset_triggered\) has no data interval.*another source"),
        (DataInterval("refuse"), interval("gap", 8, 9), r"nothing has read .*-06.* to .*-08.*run a backfill for it"),
        (DataInterval(overlap="refuse"), interval("o", 5, 7), r"left are .*-06.* to .*-07.*overlap='trim'"),
        (DataInterval("keep"), interval("hole", 4, 7), r"not one window: run a backfill for each of .*-04.*-06"),
        (DataInterval("keep"), interval("point", 7, 7), r"has no length.*CronDataIntervalTimetable"),
        (AssetEvents(), Run("m", "manual"), r"no asset event triggered the run m.*let an asset trigger"),
    ],
    ids=lambda value: value.run_id if isinstance(value, Run) else "",
)
def test_a_run_that_may_read_nothing_is_refused_with_what_to_do(job: Job, source: Source, run: Run, text: str) -> None:
    if source.name == "interval":  # semantics T8
        trigger(job, DataInterval(), interval("first", 5, 6))
        finish(job, "first")
    with raises_code("source_refused", match=text) as refused:
        trigger(job, source, run)
    assert refused.value.fields["source"] == source.name
    assert refused.value.fields["epoch"] == run.run_id
    assert job.coordinator.head().pending == ()


@pytest.mark.parametrize("run", [interval("same", 5, 6), interval("old", 5, 6, "backfill")], ids=lambda run: run.run_id)
def test_a_run_that_has_nothing_left_to_read_is_skipped(job: Job, run: Run) -> None:  # semantics T8
    trigger(job, DataInterval(), interval("first", 5, 6))
    finish(job, "first")
    with pytest.raises(
        AirflowSkipException, match=r"skipped, because its source 'interval' .* all of .*-05.* to .*-06"
    ):
        trigger(job, DataInterval(), run)
    assert job.coordinator.head().pending == ()


@pytest.mark.parametrize(
    ("run", "window"),
    [
        (interval("next", 6, 7), (6, 7)),
        (interval("catch-up", 9, 10), (6, 10)),
        (interval("overlap", 5, 7), (6, 7)),
        (interval("backfill", 3, 4, "backfill"), (3, 4)),
        (interval("by hand, with a logical date", 6, 7, "manual"), (6, 7)),
        (interval("without a length", 8, 8, "manual"), (6, 8)),
    ],
    ids=lambda value: value.run_id if isinstance(value, Run) else "",
)
def test_what_each_kind_of_run_reads(job: Job, run: Run, window: tuple[int, int], said: Said) -> None:  # semantics T8
    trigger(job, DataInterval(), interval("first", 5, 6))
    finish(job, "first")
    trigger(job, DataInterval(), run)
    fixed = job.begin(run.run_id).slice
    assert (fixed.start, fixed.end) == tuple(day(number).isoformat() for number in window)
    assert "has no length" not in said.text, "the source says what to read"
