"""Bad input is refused where the DAG is parsed: the import error names the parameter, the value and the way out."""

import pytest

from airflow_cairn.checkpoint.documents import layout
from airflow_cairn.storage.names import MAX_KEY_BYTES
from tests.support.airflow_fixtures import DagFile

_GROUP = """
with DAG({dag_id!r}, schedule=None), CheckpointedTaskGroup("epoch", reads_window=False, {group}):
    SparkEpochOperator(task_id="routes", application="routes.py", {stage})
"""


def error(dag_file: DagFile, *, dag_id: str = "flights", group: str = "storage='file:///lake'", stage: str = "") -> str:
    return dag_file.error(_GROUP.format(dag_id=dag_id, group=group, stage=stage))


@pytest.mark.parametrize(
    ("storage", "text"),
    [
        ("'hdfs://namenode/lake'", "there is no storage for the scheme hdfs: HDFS replaces a file under no condition"),
        ("'/lake'", "this is not a storage URI: it has no scheme. Use file:///absolute/folder, s3://bucket/prefix"),
        ("'file://lake/x'", "it names the host 'lake'"),
        ("'s3://key:secret@bucket/x'", "credentials belong into the connection, never into a URI"),
        ("None", "no storage is given: put the task into a CheckpointedTaskGroup, or give storage="),
        ("17", "this is not a storage URI: it is not a text"),
    ],
)
def test_storage(dag_file: DagFile, storage: str, text: str) -> None:
    found = error(dag_file, group=f"storage={storage}")
    assert text in found
    assert "key:secret" not in found.rpartition("Error: ")[2]


@pytest.mark.parametrize("job", ["a/b", "..", "a\nb", "x" * 300, "-x", ".", "ü"])  # semantics W1
def test_job_names(dag_file: DagFile, job: str) -> None:
    found = error(dag_file, group=f"storage='file:///lake', job={job!r}")
    assert "this job name cannot be used: a name has 1 to 250 characters out of A-Z a-z 0-9 . _ -" in found


def test_a_dag_id_that_is_no_job_name(dag_file: DagFile) -> None:
    assert "this job name cannot be used" in error(dag_file, dag_id="..")  # semantics W1: Airflow itself takes it
    assert "reserved" in error(dag_file, group="storage='file:///lake', job='_cairn'")


@pytest.mark.parametrize("uid", ["a/b", "..", "a\nb", "x" * 300, ""])  # semantics W1
def test_stage_uids(dag_file: DagFile, uid: str) -> None:
    assert "this stage name cannot be used: a name has 1 to 250 characters" in error(dag_file, stage=f"uid={uid!r}")


def test_names_that_are_too_long_together_for_s3(dag_file: DagFile) -> None:  # semantics W1
    """At the bound the longest key that Spark may write has as many bytes as S3 takes."""
    uid = "u" * 250
    room = MAX_KEY_BYTES - layout.longest_key("", uid) - len("team/")
    stage = f"uid={uid!r}"
    dag_file.dag(_GROUP.format(dag_id="d", group=f"storage='s3://lake/team', job={'j' * room!r}", stage=stage))
    found = error(dag_file, group=f"storage='s3://lake/team', job={'j' * (room + 1)!r}", stage=stage)
    assert "the storage's prefix, the job's name and the stage's uid are too long together: a bucket takes" in found
    assert "Make them shorter by 1 characters" in found
    dag_file.dag(_GROUP.format(dag_id="d", group=f"storage='file:///lake/team', job={'j' * 250!r}", stage=stage))


_ON_A_SCHEDULE = """
from datetime import timedelta
from dateutil.relativedelta import relativedelta
from airflow.sdk.definitions.timetables.trigger import DeltaTriggerTimetable
from airflow_cairn.checkpoint import CheckpointConfig
with (
    DAG("flights", schedule={schedule}),
    CheckpointedTaskGroup("epoch", reads_window=False,
    storage="file:///lake", config=CheckpointConfig(min_pause=timedelta(minutes=10))),
):
    SparkEpochOperator(task_id="routes", application="routes.py")
"""


@pytest.mark.parametrize("schedule", ["timedelta(seconds=599)", "DeltaTriggerTimetable(timedelta(minutes=9))"])
def test_a_pause_longer_than_the_schedule(dag_file: DagFile, schedule: str) -> None:  # semantics S3
    found = dag_file.error(_ON_A_SCHEDULE.format(schedule=schedule))
    assert "min_pause must not be longer than the DAG's schedule, 0:09:" in found
    assert "Make the pause shorter or the schedule longer" in found
    assert "min_pause=`datetime.timedelta(seconds=600)`" in found


_WITHOUT_A_GROUP = """
from datetime import timedelta
from airflow_cairn.checkpoint import CheckpointConfig
from airflow_cairn.checkpoint.documents.attempt import StageSpec
from airflow_cairn.checkpoint.reasons import RequestKind
from airflow_cairn.operators import TriggerCheckpointOperator
with DAG("flights", schedule=timedelta(minutes=9)):
    TriggerCheckpointOperator(
        task_id="trigger", reads_window=False, storage="file:///lake", stages=(StageSpec("routes"),), kind={kind},
        config=CheckpointConfig(min_pause=timedelta(minutes=10)),
    )
"""


def test_a_pause_longer_than_the_schedule_without_a_group(dag_file: DagFile) -> None:  # semantics S3, T3
    assert "min_pause must not be longer" in dag_file.error(_WITHOUT_A_GROUP.format(kind="None"))
    dag_file.dag(_WITHOUT_A_GROUP.format(kind="RequestKind.MANUAL"))  # the pause is not for those


@pytest.mark.parametrize("schedule", ["timedelta(minutes=10)", "'* * * * *'", "relativedelta(months=1)", "None"])
def test_a_pause_within_the_schedule_or_one_that_is_not_regular(dag_file: DagFile, schedule: str) -> None:
    """semantics S3: at the bound, and where the distance of two runs is not a fixed time."""
    dag_file.dag(_ON_A_SCHEDULE.format(schedule=schedule))


PARALLELISM = "parallelism must be a whole number of at least 1"


@pytest.mark.parametrize(
    ("stage", "text"),
    [
        *((f"parallelism={each}", PARALLELISM) for each in ("0", "-1", "1.5", "True", "'2'")),
        ("parallelism=32769", "parallelism must be at most 32768"),
        ("parallelism=4, max_parallelism=0", "max_parallelism must be a whole number of at least 1"),
        ("parallelism=4, max_parallelism=32769", "max_parallelism must be at most 32768"),
        ("parallelism=9, max_parallelism=8", "parallelism must not be above max_parallelism"),
        ("max_parallelism=8", "max_parallelism bounds parallelism, and the stage names none"),
    ],
)
def test_the_maximum_parallelism(dag_file: DagFile, stage: str, text: str) -> None:  # semantics R4
    found = error(dag_file, stage=stage)
    assert text in found
    assert "parallelism=`" in found


AT_LEAST_ONCE = "storage='file:///lake', config=CheckpointConfig(mode='at_least_once')"


@pytest.mark.parametrize(
    ("reads", "text"),
    [
        ("'clean'", "reads must be a list of stages' uids: write reads=['clean']"),
        ("[1]", "reads must be a list of stages' uids"),
        ("['routes']", "the stage names itself in reads"),
        ("['clean']", "epoch.routes has reads= that are not stages of its group"),
    ],
)
def test_reads(dag_file: DagFile, reads: str, text: str) -> None:  # semantics B2
    assert text in error(dag_file, group=AT_LEAST_ONCE, stage=f"reads={reads}")


_TWO = """
with DAG("flights", schedule=None), CheckpointedTaskGroup("epoch", reads_window=False, {group}):
    clean = SparkEpochOperator(task_id="clean", application="a.py", {clean})
    routes = SparkEpochOperator(task_id="routes", application="a.py", reads=["clean"])
    {more}
"""


@pytest.mark.parametrize(
    ("group", "clean", "more", "text"),
    [
        ("storage='file:///lake'", "", "", "loses input unless the config has mode='at_least_once'"),
        (AT_LEAST_ONCE, "reads=['routes']", "", "read from each other in a circle"),
        (AT_LEAST_ONCE, "", "routes >> clean", "read from each other in a circle"),
    ],
)
def test_reads_of_two_stages(dag_file: DagFile, group: str, clean: str, more: str, text: str) -> None:  # semantics B2
    assert text in dag_file.error(_TWO.format(group=group, clean=clean, more=more))


AT = "storage='file:///l'"
OF_A = f"{AT}, stages=[StageSpec('a')]"
STAGE, TRIGGER = "SparkEpochOperator", "TriggerCheckpointOperator"


@pytest.mark.parametrize(
    ("operator", "arguments", "text"),
    [
        (TRIGGER, "", "no storage is given"),
        ("CheckpointSensor", "", "no storage is given"),
        ("RestoreLatestCheckpointOperator", "", "no storage is given"),
        (STAGE, "application='a.py'", "no storage is given"),
        (STAGE, f"{AT}, application='a.py', reads=['clean']", "reads belongs to stages of a CheckpointedTaskGroup"),
        (STAGE, AT, "no application is given: name the Python file or"),
        (STAGE, f"{AT}, application='a.py', uid='a/b'", "this stage name"),
        ("CheckpointSensor", f"{AT}, poke_interval=0", "poke_interval must be above 0 seconds"),
        (TRIGGER, f"{OF_A}, poll_interval=0", "poll_interval must be above 0 seconds"),
        (TRIGGER, f"{OF_A}, poll_interval='2'", "poll_interval must be above 0 seconds"),
        (TRIGGER, f"{OF_A}, recheck_interval=17", "recheck_interval must be a timedelta of more than zero"),
        (TRIGGER, f"{AT}, stages=[StageSpec('a', ('b',))]", "the stage names an upstream that is not a stage"),
        (TRIGGER, f"{AT}, stages=[StageSpec('a/b')]", "this stage name cannot be used: a name has 1 to 250 characters"),
        (TRIGGER, f"{AT}, stages=['a']", "a stage must be a StageSpec: write StageSpec('routes')"),
        (TRIGGER, AT, "a job needs at least one stage"),
        (
            TRIGGER,
            f"{OF_A}, config={{}}",
            "config must be a CheckpointConfig: write config=CheckpointConfig(retained=3)",
        ),
        (
            TRIGGER,
            f"{OF_A}, slice_detail=[1]",
            "slice_detail must be a JSON object, a dict of texts, numbers, lists and dicts: found list",
        ),
    ],
)
def test_pieces_without_a_group(dag_file: DagFile, operator: str, arguments: str, text: str) -> None:  # semantics W1
    found = dag_file.error(f"with DAG('d', schedule=None):\n    {operator}(task_id='t', {arguments})")
    assert text in found
    assert "task=`t`" in found


@pytest.mark.parametrize(
    "operator",
    [
        "TriggerCheckpointOperator(task_id='t', {}, stages=[StageSpec('a')])",
        "CheckpointSensor(task_id='t', {})",
        "RestoreLatestCheckpointOperator(task_id='t', {})",
        "SparkEpochOperator(task_id='t', {}, application='a.py')",
        "CheckpointedTaskGroup('t', {})",
    ],
)
@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ("storage='hdfs://namenode/lake'", "there is no storage for the scheme hdfs"),
        ("storage='file:///lake', job='a/b'", "this job name cannot be used"),
        ("storage=None", "no storage is given"),
    ],
)
def test_a_bad_storage_or_job_says_where_it_stands(dag_file: DagFile, operator: str, settings: str, text: str) -> None:
    found = dag_file.error(f"with DAG('d', schedule=None):\n    {operator.format(settings)}")  # semantics W1
    assert text in found
    assert ("group=`t`" if "Group" in operator else "task=`t`") in found


@pytest.mark.parametrize(
    ("group", "text"),
    [
        ("config={'retained': 3}", "config must be a CheckpointConfig: write config=CheckpointConfig(retained=3)"),
        ("config='x'", "config must be a CheckpointConfig"),
        ("config={}", "config must be a CheckpointConfig"),
        ("slice_detail='a'", "found str"),
        (
            "slice_detail={'from': timedelta(1)}",
            "slice_detail cannot be kept as JSON at ['from']: a value of type timedelta is not JSON",
        ),
        (
            "slice_detail={'files': ['a', {'x'}]}",
            "slice_detail cannot be kept as JSON at ['files'][1]: a value of type set is not JSON",
        ),
        ("slice_detail={'a': float('nan')}", "slice_detail cannot be kept as JSON at ['a']: nan is not JSON"),
        ("slice_detail={'a': 'x' * 786_432}", "slice_detail has 786,441 bytes, and 786,432 fit"),
        ("slice_detail={1: 'a'}", "slice_detail cannot be kept as JSON: the key 1 is of type int"),
    ],
)
def test_what_a_group_is_given(dag_file: DagFile, group: str, text: str) -> None:  # semantics S3, T8
    found = error(dag_file, group=f"storage='file:///lake', {group}")
    assert text in found
    assert "group=`epoch`" in found


def test_a_detail_that_is_known_later(dag_file: DagFile) -> None:
    dag = dag_file.dag("""
@task
def found() -> dict:
    return {"offset": 7}

with DAG("d", schedule=None):
    offsets = found()
    for number, detail in enumerate([offsets, "{{ params.detail }}", {"a": [offsets["x"], "{{ ds }}", None, 1.5]}]):
        with CheckpointedTaskGroup(f"epoch{number}", reads_window=False,
    storage="file:///lake", job=f"j{number}", slice_detail=detail):
            SparkEpochOperator(task_id="routes", application="a.py")
""")
    assert len(dag.tasks) == 10


def test_templates_are_checked_when_they_are_rendered(dag_file: DagFile) -> None:
    dag = dag_file.dag(
        _GROUP.format(dag_id="d", group="storage='{{ var.value.lake }}', job='{{ params.job }}'", stage="")
    )
    assert {"storage", "job"} <= set(dag.get_task("epoch.routes").template_fields)
