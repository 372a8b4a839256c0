"""Figures of the benchmark of recovery, from recorded runs. Nothing is run here: that takes minutes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from airflow.dag_processing.dagbag import DagBag

from airflow_cairn.operators.group.checks import ordered
from bench.measuring.recovery_figures import Run, Try, figures
from bench.recovery import ARMS, DIES, HERE, KEYS, REGIONS, RETRY, problems, rows, run_of, told_to_dags
from scripts.setup.base import ROOT

LINE = [stage for region in REGIONS for stage in region]


def one_after_the_other(*tries: tuple[str, int, float], trigger: float = 2, wait: float = 3) -> Run:
    """Make a run of tries (task, number, seconds) with a second between two of them."""
    made, now = [], 0.0
    for task, number, seconds in [("trigger", 1, trigger), *tries, ("wait", 1, wait)]:
        made.append(Try(task, number, now, now + seconds, is_stage=task in LINE))
        now += seconds + 1
    return Run(made)


def ten(again: list[str], *, more: float = 0) -> Run:
    """Make a run whose stages take ten seconds each, and `more` when they run again."""
    done = LINE.index(DIES) + 1
    tries = [(stage, 1, 10.0) for stage in LINE[:done]] + [(stage, 2, 10.0 + more) for stage in again]
    return one_after_the_other(*tries, *[(stage, 1, 10.0) for stage in LINE[done:]])


def test_each_figure_is_what_its_definition_says() -> None:
    found: dict[str, Any] = figures(
        healthy=ten([]), region=ten(["s4", "s5", "s6"], more=2), full=ten(LINE[:6]), retry=ten(["s6"]), died=DIES,
        together=("s4", "s5", "s6"),
    )  # fmt: skip
    healthy, region, full, retry = 116, 116 + 3 * 13, 116 + 6 * 11, 116 + 11
    assert [found["arms"][arm]["wall_s"] for arm in ARMS] == [region, full, retry, healthy]
    assert found["rerun_share"] == 0.36, "twelve seconds for each of three, of a hundred"
    assert found["region_share"] == 0.3
    assert found["wall_ratio_full"] == round(region / full, 3)
    assert found["wall_ratio_retry"] == round(region / retry, 3)
    assert found["fixed_share"] == round(7 / healthy, 3), "the trigger, the wait, and the second beside each"
    assert found["recovery_share"] == round(39 / healthy, 3), "three seconds of waiting, three stages of twelve"
    assert found["wall_again_share"] == round(39 / healthy, 3)
    assert found["target"] == round(0.3 + 7 / healthy, 3)
    assert found["arms"]["region"]["again"] == ["s4", "s5", "s6"]
    assert found["arms"]["region"]["until_it_runs_again_s"] == 1
    assert found["arms"]["healthy"]["until_it_runs_again_s"] is None


def test_work_lost_with_the_driver_is_no_work_run_again() -> None:
    lost = one_after_the_other(("s1", 1, 10), ("s2", 1, 4), ("s2", 2, 10))
    healthy = one_after_the_other(("s1", 1, 10), ("s2", 1, 10))
    found: Any = figures(healthy, lost, lost, lost, together=("s2",), died="s2")
    assert found["rerun_share"] == 0.5
    assert found["arms"]["region"]["again_s"] == 10 and found["arms"]["region"]["task_s"] == 24
    assert found["wall_ratio_full"] == 1
    assert found["recovery_share"] == round(11 / 28, 3), "it begins when the driver has died"
    assert found["wall_again_share"] == round(33 / 28 - 1, 3)


def test_what_the_api_tells_is_read() -> None:
    def told(task: str, number: int, begin: int) -> dict[str, Any]:
        at = [f"2026-01-01T00:00:{second:02}.500000Z" for second in (begin, begin + 5)]
        return {"task_id": task, "try_number": number, "start_date": at[0], "end_date": at[1], "state": "success"}

    run = run_of([told("epoch.trigger_checkpoint", 1, 0), told("epoch.s6", 2, 6), told("s6", 1, 20)])
    assert [(each.task, each.number, each.seconds) for each in run.stages] == [("s6", 2, 5), ("s6", 1, 5)]
    assert run.wall == 25


def test_a_run_that_shows_something_else_is_no_measurement() -> None:
    runs = dict(zip(ARMS, (ten(["s4", "s5", "s6"]), ten(LINE[:6]), ten(["s6"]), ten([])), strict=True))
    rows_right = dict.fromkeys(ARMS, KEYS) | {RETRY: 2 * KEYS}
    assert problems(runs, rows_right) == []
    (text,) = problems(runs | {"region": ten(["s6"])}, rows_right)
    assert text.startswith("region: tries") and text.endswith("once more ran: ['s4', 's5', 's6']")
    assert problems(runs, rows_right | {"full": KEYS - 1}) == [f"full: {KEYS - 1} rows in the end; expected {KEYS}"]


def test_rows_of_a_plain_table_are_counted(tmp_path: Path) -> None:
    table = tmp_path / "plain" / f"totals-{DIES}"
    table.mkdir(parents=True)
    for name in "ab":
        pq.write_table(pa.table({"key": [1, 2, 3]}), table / f"{name}.parquet")
    assert rows(tmp_path, RETRY) == 6


@pytest.mark.large
def test_the_pipelines_have_the_regions_that_are_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """semantics F1"""
    monkeypatch.setenv("CAIRN_BENCH", json.dumps(told_to_dags(tmp_path)))
    monkeypatch.setenv("AIRFLOW_CONN_CAIRN_AIRFLOW_API", "http://127.0.0.1:1")
    bag = DagBag(dag_folder=str(HERE / "recovery.py"), bundle_name="test")
    assert bag.import_errors == {}
    assert sorted(bag.dags) == sorted(ARMS)
    for arm in ARMS:
        tasks = bag.dags[arm].task_dict
        assert [name.removeprefix("epoch.") for name in tasks if name.removeprefix("epoch.") in LINE] == LINE
        dying = [name for name, task in tasks.items() if f"died-in-{arm}" in str(getattr(task, "application_args", ""))]
        assert [name.removeprefix("epoch.") for name in dying] == ([] if arm == "healthy" else [DIES])
        if arm != RETRY:
            trigger: Any = tasks["epoch.trigger_checkpoint"]
            assert ordered(trigger.declared_stages()) == REGIONS
            assert trigger.config.failover == ("full" if arm == "full" else "region")


@pytest.mark.large
def test_the_command_says_what_it_takes() -> None:
    command = [sys.executable, "-m", "bench.recovery", "--help"]
    said = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    assert "--json" in said
