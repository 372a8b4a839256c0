"""Schedules that give a run something to read, and runs whose interval was read already (semantics T8)."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowSkipException

from airflow_cairn.checkpoint.documents.attempt import Slice, StageSpec
from airflow_cairn.checkpoint.errors import InvalidConfigError, RefusedError
from airflow_cairn.operators import TriggerCheckpointOperator
from airflow_cairn.operators.trigger.run_facts import options_of, slice_of
from tests.support.airflow_fixtures import DagFile
from tests.support.airflow_stage import DagRun, Job, Ti, context
from tests.support.errors import raises_code

DAY = datetime(2001, 1, 1, tzinfo=UTC)
ONE = timedelta(days=1)

_FILE = """
from datetime import timedelta
import pendulum
from airflow.sdk import *
from airflow.sdk.definitions.timetables.events import EventsTimetable
from airflow.sdk.definitions.timetables.interval import DeltaDataIntervalTimetable
from airflow.sdk.definitions.timetables.trigger import DeltaTriggerTimetable, MultipleCronTriggerTimetable
from airflow_cairn.checkpoint import CheckpointConfig
from airflow_cairn.checkpoint.sources.values import DataInterval
from airflow_cairn.plugin.timetable import CheckpointTimetable
with (
    DAG("flights", schedule={schedule}, max_active_runs=1),
    CheckpointedTaskGroup("epoch", storage="file:///lake", {group}),
):
    SparkEpochOperator(task_id="routes", application="routes.py")
"""

WITHOUT = {
    "cron": '"0 6 * * *"',
    "preset": '"@daily"',
    "delta": "timedelta(days=1)",
    "none": "None",
    "once": '"@once"',
    "asset": '[Asset("orders")]',
    "cron trigger": 'CronTriggerTimetable("0 6 * * *", timezone="UTC")',
    "crons": 'MultipleCronTriggerTimetable("0 6 * * *", "0 7 * * *", timezone="UTC")',
    "delta trigger": "DeltaTriggerTimetable(timedelta(days=1))",
    "events": "EventsTimetable([pendulum.datetime(2001, 1, 1)])",
    "asset or time": 'AssetOrTimeSchedule(timetable=CronDataIntervalTimetable("@daily", "UTC"), assets=[Asset("o")])',
}
WITH = {
    "cron": 'CronDataIntervalTimetable("0 6 * * *", timezone="UTC")',
    "delta": "DeltaDataIntervalTimetable(timedelta(days=1))",
    "cron trigger": 'CronTriggerTimetable("0 6 * * *", timezone="UTC", interval=timedelta(days=1))',
    "crons": 'MultipleCronTriggerTimetable("0 6 * * *", timezone="UTC", interval=timedelta(days=1))',
    "delta trigger": "DeltaTriggerTimetable(timedelta(days=1), interval=timedelta(days=1))",
    "continuous": '"@continuous"',
    "checkpoints": "CheckpointTimetable(timedelta(hours=1))",
}


@pytest.mark.parametrize("schedule", WITHOUT.values(), ids=WITHOUT)
def test_a_schedule_without_intervals_is_refused_with_one_that_has(dag_file: DagFile, schedule: str) -> None:
    found = dag_file.error(_FILE.format(schedule=schedule, group=""))  # semantics T8
    for text in ("gives a run no data interval", "CronDataIntervalTimetable(", "reads_window=False", "group=`epoch`"):
        assert text in found
    if "0 6" in schedule and "Multiple" not in schedule:
        assert "CronDataIntervalTimetable('0 6 * * *'" in found, "with the author's own expression"


@pytest.mark.parametrize("group", ["reads_window=False", "reads_window=True", "source=DataInterval()"])
def test_an_author_may_say_what_is_read(dag_file: DagFile, group: str) -> None:  # semantics T8
    assert dag_file.dag(_FILE.format(schedule="None", group=group)).dag_id == "flights"


@pytest.mark.parametrize(
    ("group", "why"),
    [
        ("", None),
        ("reads_window=True", None),
        ("reads_window=False", "reads_window=False says that they do not"),
        ("source=DataInterval()", "a source says what each epoch reads"),
    ],
)
def test_gaps_are_refused_by_runs_that_read_their_intervals(dag_file: DagFile, group: str, why: str | None) -> None:
    file = _FILE.format(schedule=WITH["cron"], group=f'config=CheckpointConfig(on_gap="refuse"), {group}')
    if why is None:  # semantics T12
        assert dag_file.dag(file).dag_id == "flights"
    else:
        found = dag_file.error(file)
        assert "on_gap='refuse' is for a job whose runs read their data intervals, and" in found
        assert f"{why}. Leave it out" in found


@pytest.mark.parametrize("schedule", WITH.values(), ids=WITH)
def test_a_schedule_with_intervals_says_it_by_itself(dag_file: DagFile, schedule: str) -> None:
    assert dag_file.dag(_FILE.format(schedule=schedule, group="")).dag_id == "flights"


def test_a_trigger_of_its_own_is_checked_too() -> None:  # semantics T8
    with DAG("flights", schedule="@daily"), pytest.raises(InvalidConfigError, match="gives a run no data interval"):
        TriggerCheckpointOperator(task_id="t", storage="file:///lake", stages=[StageSpec("a")])


@pytest.mark.parametrize(
    ("group", "text"),
    [
        ('reads_window="no"', "reads_window must be True, False or None"),
        ("reads_window=False, source=DataInterval()", "reads_window is for a job without a source"),
    ],
)
def test_what_makes_no_sense_is_refused(dag_file: DagFile, group: str, text: str) -> None:
    assert text in dag_file.error(_FILE.format(schedule="None", group=group))


START, END = "2001-01-01T00:00:00+00:00", "2001-01-02T00:00:00+00:00"


@pytest.mark.parametrize(
    ("run", "options", "expected"),
    [
        (DagRun(DAY, DAY + ONE), {}, Slice(START, END)),
        (DagRun(DAY, DAY + ONE), {"again": True}, Slice(START, END, again=True)),
        (DagRun(DAY, DAY + ONE), {"reads_window": False}, Slice()),
        (DagRun(), {"reads_window": False}, Slice()),
        (DagRun(), {"has_source": True}, Slice()),
        (DagRun(DAY, DAY), {"has_source": True}, Slice(None, START)),
        (DagRun(), {}, "no checkpoint was triggered: the run has no data interval"),
        (DagRun(), {"reads_window": False, "again": True}, Slice(again=True)),
        (DagRun(), {"has_source": True, "again": True}, "read_again.* is for a job without a source"),
    ],
)
def test_slices(run: DagRun, options: dict[str, Any], expected: Slice | str) -> None:  # semantics T8
    found = context(Ti(), dag_run=run)
    if isinstance(expected, str):
        with pytest.raises((RefusedError, InvalidConfigError), match=expected):
            slice_of(found, None, **options)
    else:
        assert slice_of(found, None, **options) == expected


def trigger(job: Job, run_id: str, run: DagRun) -> Any:
    task = TriggerCheckpointOperator(task_id="trigger", storage=job.storage, job=job.name, stages=[StageSpec("routes")])
    return task.execute(context(Ti(run_id=run_id), dag_run=run))


def finish(job: Job, run_id: str) -> None:
    job.acknowledge(job.begin(run_id))
    job.coordinator.complete(job.coordinator.head().pending[0].id)


def test_a_run_by_hand_inside_a_day_that_was_read_is_skipped(job: Job, caplog: pytest.LogCaptureFixture) -> None:
    """semantics T8: "Trigger" in the UI gives a run for 2001-01-02T12:00 the interval of the run before it."""
    for number in range(2):
        trigger(job, f"day {number}", DagRun(DAY + number * ONE, DAY + (number + 1) * ONE, "scheduled"))
        finish(job, f"day {number}")
    before = job.coordinator.head()
    caplog.set_level("INFO")
    with pytest.raises(AirflowSkipException) as skipped:
        trigger(job, "by hand", DagRun(DAY + ONE, DAY + 2 * ONE))
    text = str(skipped.value)
    assert f"Skipped: {text}" in caplog.messages
    for part in (
        "the run by hand is skipped",
        "checkpoint 2 has read 2001-01-02T00:00:00+00:00 to 2001-01-03T00:00:00+00:00",
        f"`cairn rewind flights --to 1 --storage {job.storage}`",
        "`cairn checkpoint flights --window 2001-01-02T00:00:00+00:00 2001-01-03T00:00:00+00:00 --read-again`",
    ):
        assert part in text
    assert job.coordinator.head() == before
    assert trigger(job, "again", DagRun(DAY + ONE, DAY + 2 * ONE, conf={"cairn": {"read_again": True}}))


def test_a_part_and_an_interval_without_length_are_refused(job: Job) -> None:  # semantics T8
    trigger(job, "day", DagRun(DAY, DAY + ONE, "scheduled"))
    finish(job, "day")
    with raises_code("source_refused", match=r"some of .* has been read: checkpoint 1 has read") as refused:
        trigger(job, "part", DagRun(DAY + ONE / 2, DAY + 2 * ONE))
    left = "--window 2001-01-02T00:00:00+00:00 2001-01-03T00:00:00+00:00"
    assert f"Trigger a run for what is left: `cairn checkpoint flights {left}`" in str(refused.value)
    with raises_code("source_refused", match="or one without length"):
        trigger(job, "moment", DagRun(DAY + 5 * ONE, DAY + 5 * ONE))


@pytest.mark.parametrize("conf", [{"read_again": "yes"}, {"read_agian": True}])
def test_a_wrong_wish_is_refused(conf: dict[str, Any]) -> None:
    with pytest.raises(InvalidConfigError, match="cairn"):
        options_of({"cairn": conf})
