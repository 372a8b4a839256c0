"""The benchmark runs, and what it prints is what is documented; it is run small, and no timing is asserted."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench import epoch
from bench.measuring import epoch_in_airflow
from bench.measuring.epoch_arms import Spent
from bench.measuring.epoch_work import Work, union_s, work
from scripts.setup.base import ROOT
from tests.support.figures import undocumented

SQL = "org.apache.spark.sql.execution.ui.SparkListenerSQLExecution"


def test_what_queries_cover_together_counts_once() -> None:
    assert union_s([(5, 6), (0, 2), (1, 3)]) == 4
    assert union_s([]) == 0


def test_the_event_log_tells_what_ran_between_two_moments(tmp_path: Path) -> None:
    events = [
        {"Event": f"{SQL}Start", "executionId": 1, "time": 1_000},
        {"Event": f"{SQL}Start", "executionId": 2, "time": 4_000},
        {"Event": f"{SQL}End", "executionId": 1, "time": 2_000},
        *(
            {
                "Event": "SparkListenerTaskEnd",
                "Task Info": {"Finish Time": at},
                "Task Metrics": {"Executor CPU Time": 500_000_000},
            }
            for at in (4_500, 20_000)
        ),
        {"Event": f"{SQL}End", "executionId": 2, "time": 4_500},
        {"Event": f"{SQL}Start", "executionId": 3, "time": 5_000},
        {"Event": "SparkListenerJobStart", "Job ID": 1, "Submission Time": 4_400},
        {"Event": "SparkListenerJobEnd", "Job ID": 1, "Completion Time": 4_750},
        {"Event": "SparkListenerJobStart", "Job ID": 2, "Submission Time": 6_000},
        {"Event": "SparkListenerJobEnd", "Job ID": 2, "Completion Time": 6_500},
        {"Event": "SparkListenerJobStart", "Job ID": 3, "Submission Time": 1_000},
        {"Event": "SparkListenerJobEnd", "Job ID": 3, "Completion Time": 3_500},
    ]
    (tmp_path / "app").write_text("\n".join(map(json.dumps, events)) + '\n{"Event": "Spark')
    assert work(tmp_path, 3.0, 10.0) == Work(busy_s=1.25, query_s=0.5, queries=1, task_cpu_s=0.5)


def test_the_figures_are_medians_of_the_pairs_ratios() -> None:
    cairn = epoch.Epochs([Spent(2.0, 1.0), Spent(3.0, 1.0), Spent(9.0, 1.0)], [Work(2.0, 1.0, 4, 1.0)] * 3)
    plain = epoch.Epochs([Spent(1.0, 1.0), Spent(2.0, 1.0), Spent(3.0, 1.0)], [Work(1.0, 1.0, 4, 0.5)] * 3)
    found = epoch.figures("warm", cairn, plain)
    assert (found["warm_ratio"], found["warm_ratio_spread"]) == (2.0, [1.5, 3.0])
    assert (found["warm_ratio_work"], found["warm_ratio_query"], found["warm_ratio_task_cpu"]) == (2.0, 1.0, 2.0)
    assert found["share_spark_warm"] == 0.667


def test_an_epoch_in_airflow_is_airflows_where_no_stage_runs(tmp_path: Path) -> None:
    def moment(second: int) -> str:
        return f"2026-01-01T00:00:{second:02}Z"

    spans = {"clean": (2, 4), "routes": (5, 8), "airports": (6, 9), "report": (9, 10)}
    tasks = {stage: {"start_date": moment(begin), "end_date": moment(end)} for stage, (begin, end) in spans.items()}
    at_ms = 1000 * epoch_in_airflow.seconds(moment(5))
    (tmp_path / "app").write_text(
        "\n".join(
            json.dumps({"Event": f"{SQL}{what}", "executionId": 1, "time": at_ms + later})
            for what, later in (("Start", 0), ("End", 2000))
        )
    )
    run = {"start_date": moment(0), "end_date": moment(10)}
    found = epoch_in_airflow.shares(run, tasks, tmp_path)
    assert found == pytest.approx({"s": 10, "spark": 0.2, "stages": 0.5, "airflow": 0.3})


def test_what_the_page_recommends_is_measured() -> None:
    assert "from airflow_cairn import CheckpointedTaskGroup" in epoch_in_airflow.recommended()


@pytest.mark.spark
@pytest.mark.parametrize(
    "transport",
    [pytest.param("warm", marks=pytest.mark.soak), pytest.param("kubernetes", marks=pytest.mark.kubernetes)],
)
def test_a_small_run_prints_what_is_documented(transport: str) -> None:
    options = ["--json", "--pairs", "1", "--before", "0", "--transport", transport]
    command = [sys.executable, "-m", "bench.epoch", *options]
    found = json.loads(subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout)
    assert found[f"{transport}_ratio"] > 0
    assert found[f"plain_queries_{transport}"] == 4
    assert found[f"queries_{transport}"] == 4, "the states are small: one query a stage"
    told = (epoch.__doc__ or "").replace("…", transport).replace("warm", transport)
    assert undocumented(found, told) == []
