"""Bad input is refused where the DAG is parsed: the import error names the parameter, the value and the way out."""

from __future__ import annotations

import pytest

from tests.airflow.conftest import DagFile

_GROUP = """
with DAG({dag_id!r}, schedule=None), CheckpointedTaskGroup("epoch", {group}):
    SparkEpochOperator(task_id="routes", application="routes.py", {stage})
"""


def error(dag_file: DagFile, *, dag_id: str = "flights", group: str = "storage='file:///lake'", stage: str = "") -> str:
    return dag_file.error(_GROUP.format(dag_id=dag_id, group=group, stage=stage))


@pytest.mark.parametrize(
    ("storage", "text"),
    [
        ("'hdfs://namenode/lake'", "there is no storage for the scheme hdfs. Use file:///absolute/folder or s3://"),
        ("'/lake'", "this is no storage URI: it has no scheme. Use file:///absolute/folder or s3://bucket/prefix"),
        ("'file://lake/x'", "it names the host 'lake'"),
        ("'s3://key:secret@bucket/x'", "credentials belong into the connection, never into a URI"),
        ("None", "no storage is given: put the task into a CheckpointedTaskGroup, or give storage="),
        ("17", "this is no storage URI: it is no text"),
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


@pytest.mark.parametrize("parallelism", ["0", "-1", "1.5", "True", "'2'"])
def test_parallelism(dag_file: DagFile, parallelism: str) -> None:
    found = error(dag_file, stage=f"parallelism={parallelism}")
    assert "parallelism must be a whole number of at least 1" in found
    assert "parallelism=`" in found


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ("timeout=timedelta(0)", "timeout must be a timedelta of more than zero"),
        ("timeout=60", "timeout must be a timedelta"),
        ("retained=0", "retained must be a whole number of at least 1"),
        ("max_concurrent_checkpoints=0", "max_concurrent_checkpoints must be a whole number of at least 1"),
    ],
)
def test_config_bounds(dag_file: DagFile, config: str, text: str) -> None:  # semantics S3
    assert text in error(dag_file, group=f"storage='file:///lake', config=CheckpointConfig({config})")


@pytest.mark.parametrize(
    ("operator", "text"),
    [
        ("TriggerCheckpointOperator(task_id='t')", "no storage is given"),
        ("CheckpointSensor(task_id='t')", "no storage is given"),
        ("RestoreLatestCheckpointOperator(task_id='t')", "no storage is given"),
        ("SparkEpochOperator(task_id='t', application='a.py')", "no storage is given"),
        (
            "CheckpointSensor(task_id='t', storage='file:///l', poke_interval=0)",
            "poke_interval must be above 0 seconds",
        ),
        (
            "TriggerCheckpointOperator(task_id='t', storage='file:///l', recheck_interval=timedelta(0))",
            "recheck_interval must be a timedelta of more than zero",
        ),
        (
            "TriggerCheckpointOperator(task_id='t', storage='file:///l', stages=[StageSpec('a', ('b',))])",
            "the stage names an upstream that is no stage",
        ),
    ],
)
def test_pieces_without_a_group(dag_file: DagFile, operator: str, text: str) -> None:
    assert text in dag_file.error(f"with DAG('d', schedule=None):\n    {operator}")


def test_templates_are_checked_when_they_are_rendered(dag_file: DagFile) -> None:
    dag = dag_file.dag(
        _GROUP.format(dag_id="d", group="storage='{{ var.value.lake }}', job='{{ params.job }}'", stage="")
    )
    assert {"storage", "job"} <= set(dag.get_task("epoch.routes").template_fields)


def test_secrets_in_a_dag_file(dag_file: DagFile) -> None:
    found = error(dag_file, stage="conf={'spark.hadoop.fs.s3a.secret.key': 'canary-1'}").rpartition("Error: ")[2]
    assert "conf spark.hadoop.fs.s3a.secret.key holds a secret" in found
    assert "aws_conn_id" in found
    assert "canary-1" not in found
