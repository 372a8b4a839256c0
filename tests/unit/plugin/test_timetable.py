"""`CheckpointTimetable` as Airflow uses it (semantics S2, S3)."""

import itertools
import json
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pendulum
import pytest
from airflow.serialization.serialized_objects import DagSerialization
from airflow.timetables.base import DataInterval, TimeRestriction
from hypothesis import given
from hypothesis import strategies as st

from airflow_cairn.checkpoint import DataInterval as IntervalSource
from airflow_cairn.checkpoint.errors import InvalidConfigError
from airflow_cairn.checkpoint.source import Reading, RunFacts
from airflow_cairn.operators.trigger.checks import CheckpointSchedule
from airflow_cairn.plugin.timetable import LONGEST, CheckpointTimetable, said
from tests.support.airflow_fixtures import DagFile
from tests.support.narrowing import expect

HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)

_DAG = """
from airflow_cairn.plugin import CheckpointTimetable
with DAG("{dag_id}", schedule=CheckpointTimetable({arguments}), start_date=datetime(2026, 3, 28, tzinfo=UTC), {dag}):
    {task}
"""
_GROUP = """with CheckpointedTaskGroup("epoch", reads_window=False,
    storage="file:///lake", config=CheckpointConfig({config})):
        SparkEpochOperator(task_id="a", application="a.py")
"""
_TRIGGER = (
    'TriggerCheckpointOperator(task_id="t", reads_window=False, storage="file:///lake", stages=[StageSpec("a")], '
    "kind={kind})"
)
_IMPORTS = """
from datetime import UTC, datetime
from airflow_cairn.checkpoint.reasons import RequestKind
"""


def text(arguments: str, task: str = _GROUP, dag_id: str = "flights", dag: str = "", config: str = "") -> str:
    return _IMPORTS + _DAG.format(arguments=arguments, dag_id=dag_id, dag=dag, task=task.format(config=config))


def scheduled(dag: Any) -> Any:
    """Give the DAG as the scheduler has it: only what was written down."""
    return DagSerialization.from_dict(json.loads(json.dumps(DagSerialization.to_dict(dag))))


# --- the delay -----------------------------------------------------------------------------------------------------


@given(
    st.timedeltas(timedelta(seconds=1), LONGEST).flatmap(
        lambda interval: st.tuples(st.just(interval), st.timedeltas(timedelta(0), interval))
    ),
    st.text(min_size=1),
)
def test_the_delay_lies_between_the_pause_and_the_interval(spans: tuple[timedelta, timedelta], name: str) -> None:
    """semantics S2: the delay survives being written down."""
    interval, pause = spans
    timetable = CheckpointTimetable(interval, pause, name)
    assert max(pause, timedelta(microseconds=1)) <= timetable.delay <= interval
    back = CheckpointTimetable.deserialize(json.loads(json.dumps(timetable.serialize())))
    assert back == timetable
    assert (back.delay, back.description, hash(back)) == (timetable.delay, timetable.description, hash(timetable))


def test_jobs_that_start_together_spread_over_the_whole_time() -> None:  # semantics S2
    delays = [CheckpointTimetable(HOUR, 20 * MINUTE, f"job-{number}").delay for number in range(2_000)]
    assert min(delays) < 20 * MINUTE + timedelta(seconds=10)
    assert max(delays) > HOUR - timedelta(seconds=10)
    assert len(set(delays)) > 1_200
    assert abs(sum(delays, timedelta(0)) / len(delays) - 40 * MINUTE) < MINUTE


def test_the_delay_of_a_job_is_the_same_for_good() -> None:
    """semantics S2: another one would shift the schedule of every job on an upgrade."""
    assert CheckpointTimetable(HOUR, 20 * MINUTE, "flights").delay == timedelta(seconds=2_594)
    assert CheckpointTimetable(HOUR, 20 * MINUTE, False).delay == HOUR


# --- what Airflow does with it -----------------------------------------------------------------------------------


def test_it_survives_as_part_of_a_dag(dag_file: DagFile) -> None:  # semantics S2
    dag = dag_file.dag(text("timedelta(hours=1), min_pause=timedelta(minutes=20)"))
    assert isinstance(dag.timetable, CheckpointSchedule)
    back = scheduled(dag)
    assert back.timetable == CheckpointTimetable(HOUR, 20 * MINUTE, "flights")
    assert back.timetable.description == (
        f"A checkpoint every hour, the first one {said(back.timetable.delay)} after the start, and none within "
        "20 minutes after another"
    )
    assert back.timetable.summary == "every hour"
    assert back.timetable.type_name == "airflow_cairn.plugin.timetable.CheckpointTimetable"
    once, twice = (json.dumps(DagSerialization.to_dict(each), sort_keys=True) for each in (dag, dag))
    assert once == twice


def test_the_scheduler_gets_windows_that_meet_across_the_change_of_clocks(dag_file: DagFile) -> None:
    """semantics S2: Berlin turns its clocks on 29 March 2026 and on 25 October; a day is 24 hours all the same."""
    start = 'start_date=datetime(2026, 3, 27, tzinfo=ZoneInfo("Europe/Berlin")), catchup=True'
    body = text("timedelta(days=1)").replace("start_date=datetime(2026, 3, 28, tzinfo=UTC), ", start)
    back = scheduled(dag_file.dag("from zoneinfo import ZoneInfo\n" + body))
    begun = datetime(2026, 3, 27, tzinfo=ZoneInfo("Europe/Berlin"))
    infos = list(back.iter_dagrun_infos_between(begun, datetime(2026, 11, 1, tzinfo=UTC)))
    assert len(infos) == 220
    assert infos[0].data_interval.start == begun
    for before, after in itertools.pairwise(infos):
        assert after.data_interval.start == before.data_interval.end == after.logical_date
        assert (after.data_interval.end - after.data_interval.start).total_seconds() == 86_400
        assert after.run_after == after.data_interval.end


def test_after_a_restart_it_goes_on_where_it_was(dag_file: DagFile) -> None:  # semantics S2
    dag = dag_file.dag(text("timedelta(hours=1)", dag="catchup=False"))
    last = DataInterval(pendulum.datetime(2026, 3, 28), pendulum.datetime(2026, 3, 28, 0, 12))
    now = pendulum.now("UTC")
    for timetable in (scheduled(dag).timetable, scheduled(dag).timetable):
        info = timetable.next_dagrun_info(
            last_automated_data_interval=last, restriction=TimeRestriction(None, None, catchup=False)
        )
        assert info.data_interval.start == last.end
        assert now - HOUR <= info.data_interval.end <= pendulum.now("UTC")
        assert info.data_interval.end.minute == 12


def test_a_first_run_lies_ahead(dag_file: DagFile) -> None:  # semantics S2
    dag = scheduled(dag_file.dag(text("timedelta(days=2)", dag="catchup=False")))
    info = dag.next_dagrun_info(last_automated_run_info=None)
    assert pendulum.now("UTC").subtract(minutes=6) < info.run_after < pendulum.now("UTC").add(days=2)


def test_a_run_by_hand_reads_nothing_that_a_schedule_reads() -> None:  # semantics S2, T8
    """A run by hand with its source reads from the last checkpoint up to now; the next scheduled run reads the rest."""
    timetable, source = CheckpointTimetable(HOUR, jitter=False), IntervalSource()
    noon = pendulum.datetime(2026, 3, 28, 12)
    by_hand = timetable.infer_manual_data_interval(run_after=noon.add(minutes=20))
    assert by_hand.start == by_hand.end
    position: Any = None
    read = []
    for interval in (DataInterval(noon.subtract(hours=1), noon), by_hand, DataInterval(noon, noon.add(hours=1))):
        answer = expect(Reading, source.read(RunFacts("r", "scheduled", None, *interval), position))
        assert answer.window is not None
        read.append("-".join(str(moment)[11:16] for moment in answer.window))
        position = source.advance(position, answer.part)
    assert read == ["11:00-12:00", "12:00-12:20", "12:20-13:00"]


# --- what is refused, and where -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("0", "interval must be a timedelta of one second to 3,660 days [interval=`0`]"),
        ("timedelta(milliseconds=999)", "interval must be a timedelta of one second to 3,660 days"),
        ("timedelta(days=3661)", "interval=`datetime.timedelta(days=3661)`"),
        ("timedelta(1), min_pause=timedelta(2)", "min_pause must be a timedelta of zero to the interval"),
        ("timedelta(1), min_pause=timedelta(-1)", "min_pause=`datetime.timedelta(days=-1)`"),
        ("timedelta(1), min_pause=60", "min_pause=`60` interval=`datetime.timedelta(days=1)`"),
        ("timedelta(1), jitter=''", "jitter must be True, False, or a text to derive the delay from [jitter=`''`]"),
        ("timedelta(1), jitter=0.1", "jitter=`0.1`"),
        ("timedelta(1), jitter=None", "jitter=`None`"),
    ],
)
def test_bad_arguments(dag_file: DagFile, arguments: str, message: str) -> None:  # semantics S3
    assert message in dag_file.error(text(arguments))


def test_at_its_bounds() -> None:  # semantics S3
    CheckpointTimetable(timedelta(seconds=1), timedelta(seconds=1))
    CheckpointTimetable(LONGEST, LONGEST, "x")
    with pytest.raises(InvalidConfigError):
        CheckpointTimetable(timedelta(0))


def test_a_dag_that_gives_it_no_name_is_refused(dag_file: DagFile) -> None:  # semantics S2, S3
    found = dag_file.error(text("timedelta(hours=1)", "EmptyOperator(task_id='a')"))
    assert "jitter=True needs a CheckpointedTaskGroup or a TriggerCheckpointOperator in the DAG" in found
    for jitter in ("'flights'", "False"):
        dag = dag_file.dag(text(f"timedelta(hours=1), jitter={jitter}", "EmptyOperator(task_id='a')"))
        assert scheduled(dag).timetable.jitter == eval(jitter)


def test_one_timetable_may_serve_several_dags(dag_file: DagFile) -> None:  # semantics S2
    shared = "shared = CheckpointTimetable(timedelta(hours=1))\n"
    body = text("timedelta(hours=1)").replace("schedule=CheckpointTimetable(timedelta(hours=1))", "schedule=shared")
    bag = dag_file._parse(
        body.replace("with DAG(", shared + 'for name in ("a", "b"):\n  with DAG(', 1)
        .replace('"flights"', "name")
        .replace("    with Chec", "      with Chec")
    )
    assert not bag.import_errors, bag.import_errors
    assert {name: dag.timetable.jitter for name, dag in bag.dags.items()} == {"a": "a", "b": "b"}  # type: ignore[union-attr]


# --- the pause ----------------------------------------------------------------------------------------------------


def test_the_group_takes_the_pause_over(dag_file: DagFile) -> None:  # semantics S3, T3
    for config in ("", "min_pause=timedelta(minutes=20)"):
        dag = dag_file.dag(text("timedelta(hours=1), timedelta(minutes=20)", config=config))
        trigger: Any = dag.get_task("epoch.trigger_checkpoint")
        assert trigger.config.min_pause == 20 * MINUTE


def test_another_pause_than_the_timetables_is_refused(dag_file: DagFile) -> None:  # semantics S3
    found = dag_file.error(text("timedelta(hours=1), timedelta(minutes=5)", config="min_pause=timedelta(minutes=6)"))
    assert "min_pause must be that of the DAG's CheckpointTimetable" in found
    assert "group=`epoch` min_pause=`datetime.timedelta(seconds=360)` timetable=`datetime.timedelta(seconds=300)`" in (
        found
    )


@pytest.mark.parametrize(("kind", "pause"), [("None", 5), ("RequestKind.PERIODIC", 5), ("RequestKind.MANUAL", 0)])
def test_a_trigger_task_alone(dag_file: DagFile, kind: str, pause: int) -> None:  # semantics S2, S3, T3
    dag = dag_file.dag(text("timedelta(hours=1), timedelta(minutes=5)", _TRIGGER.replace("{kind}", kind)))
    trigger: Any = dag.get_task("t")
    assert trigger.config.min_pause == pause * MINUTE
    assert scheduled(dag).timetable.jitter == "flights"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (1, "1 second"),
        (90, "1 minute 30 seconds"),
        (3_600, "1 hour"),
        (86_400 * 2 + 60, "2 days 1 minute"),
        (0.5, "0.5 seconds"),
        (7_325, "2 hours 2 minutes 5 seconds"),
    ],
)
def test_spans_in_words(seconds: float, words: str) -> None:
    assert said(timedelta(seconds=seconds)) == words
