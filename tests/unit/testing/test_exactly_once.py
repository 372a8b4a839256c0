"""`assert_exactly_once`, of stages that keep values and so need no Spark: drivers die at each of their writes."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pytest
from airflow.sdk import DAG, CronDataIntervalTimetable, task

from airflow_cairn.checkpoint import CheckpointConfig, FileSource, InvalidConfigError, Slice, StageSpec
from airflow_cairn.operators import CheckpointedTaskGroup, Pipelined, SparkEpochOperator
from airflow_cairn.spark import Epoch
from airflow_cairn.testing import assert_exactly_once
from airflow_cairn.testing.exactly_once import Plan, Stage, run_with_kills

NO_SPARK: Any = cast("Any", object())

CLEAN = """
import sys
from airflow_cairn.spark import Epoch

with Epoch.current() as epoch:
    epoch.put("days", [*epoch.get("days", []), sys.argv[1]])
"""


def plan(*stages: tuple[StageSpec, Callable[[Epoch], object]], epochs: int = 2) -> Plan:
    made = tuple(Stage(spec, run) for spec, run in stages)
    return Plan(NO_SPARK, made, (Slice(),) * epochs, CheckpointConfig())


def count(made: Epoch) -> None:
    with made as epoch:
        epoch.put("epochs", epoch.get("epochs", 0) + 1)
        epoch.snapshot_list("offsets", [[epoch.get("epochs")]])
        epoch.put("long", "x" * 30_000)


def test_state_is_counted_once_wherever_a_driver_dies() -> None:
    """The value that is too large for the acknowledgement is a write of its own"""
    stages = (StageSpec("a"), count), (StageSpec("b", upstream=("a",)), count)
    assert run_with_kills(plan(*stages), ["a", "b"]) >= 6


def test_a_region_runs_again_whole() -> None:
    ran: list[str] = []

    def noting(uid: str) -> Callable[[Epoch], object]:
        def run(epoch: Epoch) -> None:
            ran.append(uid)
            count(epoch)

        return run

    stages = (StageSpec("a"), noting("a")), (StageSpec("b", upstream=("a",), pipelined=("a",)), noting("b"))
    assert run_with_kills(plan(*stages, epochs=1), ["b"]) >= 3
    assert ran.count("a") > 1, "the driver of b died, and a ran again with it"


def test_what_is_kept_outside_of_the_epoch_is_found() -> None:
    outside: list[int] = []

    def counts_outside(made: Epoch) -> None:
        with made as epoch:
            outside.append(1)
            epoch.put("runs", len(outside))

    with pytest.raises(AssertionError) as found:
        run_with_kills(plan((StageSpec("a"), counts_outside)), ["a"])
    text = str(found.value)
    assert text.startswith("the driver of a was killed after 0 of its ")
    assert "the value 'runs' of a is not what it is without that. Missing: 1 (2). Too many: 1 (" in text


def test_a_driver_that_dies_cleans_nothing_up() -> None:
    """Neither a block of the application nor one of Cairn catches its end"""
    caught: list[BaseException] = []

    def careful(made: Epoch) -> None:
        try:
            count(made)
        except Exception as error:
            caught.append(error)
            raise

    assert run_with_kills(plan((StageSpec("a"), careful)), ["a"]) >= 3
    assert caught == []


def dag_of(folder: Path, **options: Any) -> DAG:
    (folder / "clean.py").write_text(CLEAN)
    daily = CronDataIntervalTimetable("0 0 * * *", timezone="UTC")
    with DAG("days", schedule=daily, start_date=datetime(2026, 3, 1, tzinfo=UTC), max_active_runs=1) as dag:
        dag.fileloc = str(folder / "days.py")
        with CheckpointedTaskGroup("epoch", storage="s3://lake/cairn", airflow_api_conn_id=None, **options):

            @task.spark_epoch
            def totals(epoch: Any, by: int, day: str) -> None:
                epoch.put("sum", epoch.get("sum", 0) + by)
                epoch.put("day", day)

            clean = SparkEpochOperator(task_id="clean", application="clean.py", application_args=["{{ ds }}"])
            counted = totals(2, "{{ data_interval_end.date() }}")  # type: ignore[call-arg,arg-type]
            if "config" in options:
                clean >> counted
            else:
                clean >> Pipelined() >> counted
    return dag


def test_the_stages_of_a_dag(tmp_path: Path) -> None:
    """A file with arguments, and a function"""
    assert assert_exactly_once(dag_of(tmp_path), spark=NO_SPARK) >= 4
    one = [("2026-01-01T00:00:00+00:00", "2026-01-02T00:00:00+00:00")]
    assert assert_exactly_once(dag_of(tmp_path), kill=["totals"], windows=one, spark=NO_SPARK) >= 2


def test_what_cannot_be_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfigError, match=r"kill names an unknown stage.*kill=`cleen` stages=`clean, totals`"):
        assert_exactly_once(dag_of(tmp_path), kill=["cleen"], spark=NO_SPARK)
    with pytest.raises(InvalidConfigError, match=r"with one CheckpointedTaskGroup.*found=`0`"):
        assert_exactly_once(DAG("none", schedule=None), spark=NO_SPARK)
    with pytest.raises(InvalidConfigError, match="does not run a job with a source"):
        assert_exactly_once(dag_of(tmp_path, source=FileSource("file:///in")), spark=NO_SPARK)
    with pytest.raises(InvalidConfigError, match="does not run a job with mode='at_least_once'"):
        assert_exactly_once(dag_of(tmp_path, config=CheckpointConfig(mode="at_least_once")), spark=NO_SPARK)
