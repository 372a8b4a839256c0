"""A job starts from a savepoint because its DAG says so, or one run's conf does (semantics R1, R3, R6)."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.api.datamodels._generated import DagRun as SdkDagRun
from airflow.sdk.exceptions import AirflowSkipException, TaskDeferred

from airflow_cairn.checkpoint.errors import InvalidConfigError, InvalidStateError, NoSavepointError
from airflow_cairn.checkpoint.savepoints.savepoint_request import ImportOptions
from airflow_cairn.operators import StageSpec, TriggerCheckpointOperator
from airflow_cairn.operators.trigger.run_facts import RunOptions, options_of
from airflow_cairn.storage import open_store
from airflow_cairn.storage.errors import UnavailableError
from airflow_cairn.storage.local.store import LocalStore
from tests.support.airflow_fixtures import DagFile, Said
from tests.support.airflow_stage import DagRun, Job, Ti, context
from tests.support.errors import raises_code
from tests.support.jobs import dump
from tests.support.world.saved import saved
from tests.support.world.world import STAGES, World

SPECS = [StageSpec(each.uid, each.upstream) for each in STAGES]


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two savepoints of another storage's job."""
    root = tmp_path_factory.mktemp("kept")
    world = World()
    for epoch, name in (("e1", "first"), ("e2", "second")):
        world.run_epoch(epoch)
        dump(saved(world), root / name)
    return root


def operator(job: Job, **options: Any) -> TriggerCheckpointOperator:
    return TriggerCheckpointOperator(
        **{"task_id": "trigger", "storage": job.storage, "job": job.name, "stages": SPECS, **options},
        reads_window=False,
    )


def told(conf: dict[str, Any] | None, run_id: str = "r1") -> Any:
    return context(Ti(run_id=run_id, states={"r2": "running"}), dag_run=DagRun(conf=conf))


def asked(kept: Path, name: str, **more: Any) -> dict[str, Any]:
    return {"theirs": 1, "cairn": {"restore_from": f"file://{kept / name}", **more}}


def test_a_new_job_starts_from_what_its_dag_names(job: Job, kept: Path, said: Said) -> None:  # semantics R1
    trigger = operator(job, restore_from=f"file://{kept / 'second'}/")
    assert trigger.execute(told(None))["restored_from"] == 1
    assert f"Starting flights from the savepoint file://{kept / 'second'}" in said.text
    assert "6 files, " in said.text
    assert "Copied as checkpoint 1: " in said.text
    before = job.coordinator.head()
    assert trigger.execute(told(None))["checkpoint"] == 2, "a retry finds what there is"
    assert job.coordinator.head() == before


@pytest.mark.parametrize("by", ["the DAG", "the run"])
def test_its_metadata_names_it_too(job: Job, kept: Path, by: str) -> None:  # semantics P1
    named = f"file://{kept / 'second'}/_metadata"
    trigger = operator(job, restore_from=named if by == "the DAG" else None)
    conf = {"cairn": {"restore_from": named}} if by == "the run" else None
    assert trigger.execute(told(conf))["restored_from"] == 1
    assert job.coordinator.head().imports[0].origin.uri == f"file://{kept / 'second'}"


def test_later_runs_do_not_look_at_it(job: Job) -> None:  # semantics R1
    job.complete("r1")
    result = operator(job, stages=[StageSpec("routes")], restore_from="file:///nowhere").execute(told(None, "r2"))
    assert result["restored_from"] == 1


def test_a_run_may_be_told_to_go_back(job: Job, kept: Path, said: Said) -> None:  # semantics R5
    stages = [StageSpec("routes")]
    job.complete("r1")
    conf = asked(kept, "second", allow_non_restored_state=True)
    assert operator(job, stages=stages).execute(told(conf, "r2"))["restored_from"] == 2
    assert "DAG run r1 is not part of the savepoint and must run again" in said.text
    head = job.coordinator.head()
    assert operator(job, stages=stages).execute(told(conf, "r2"))["checkpoint"] == 3
    assert job.coordinator.head() == head, "the task was retried"
    with pytest.raises(TaskDeferred):
        operator(job, stages=stages).execute(told(asked(kept, "first"), "r1"))
    assert job.coordinator.head().imports == head.imports, "a run that has been there before does not go back again"


def test_a_retry_finds_what_its_first_try_has_copied_and_deleted(job: Job, kept: Path, tmp_path: Path) -> None:
    """semantics R6: the first try died between the start and its checkpoint."""
    folder = Path(shutil.copytree(kept / "first", tmp_path / "claimed"))
    job.coordinator.start_from(open_store(f"file://{folder}"), ImportOptions(claim=True))
    assert not [found for found in folder.rglob("*") if found.is_file()]
    assert operator(job).execute(told(asked(tmp_path, "claimed", claim=True)))["restored_from"] == 1


def test_what_a_run_says_comes_before_what_the_dag_says(job: Job, kept: Path) -> None:
    trigger = operator(job, restore_from="file:///nowhere")
    assert trigger.execute(told(asked(kept, "first")))["restored_from"] == 1
    assert job.coordinator.head().imports[0].origin.uri == f"file://{kept / 'first'}"


def test_state_of_other_stages_needs_a_word(job: Job, kept: Path) -> None:  # semantics R3
    only = {"stages": [StageSpec("routes")]}
    with raises_code("non_restored_state", match=r"unclaimed=`airports, clean, report`.*stages=`routes`"):
        operator(job, **only).execute(told(asked(kept, "first")))
    trigger = operator(job, **only, restore_from=f"file://{kept / 'first'}", allow_non_restored_state=True)
    assert trigger.execute(told(None))["restored_from"] == 1
    assert job.coordinator.head().imports[0].allow_non_restored_state


def test_the_next_run_may_say_that_word(job: Job, kept: Path, said: Said) -> None:  # semantics R3
    trigger = operator(job, stages=[StageSpec("routes"), StageSpec("hubs")])
    with raises_code("non_restored_state", match=r"unclaimed=`airports, clean, report`.*new=`hubs`"):
        trigger.execute(told(asked(kept, "first")))
    job.coordinator.start_from(open_store(f"file://{kept / 'first'}"))  # by the command, which knows no stages
    with raises_code("non_restored_state", match=r"For this restore alone: `cairn resume flights --from file://"):
        trigger.execute(told(None))
    assert trigger.execute(told(asked(kept, "first", allow_non_restored_state=True), "r2"))["restored_from"] == 1
    assert "this run now allows non-restored state" in said.text


def test_what_does_not_fit_gives_nothing_up(job: Job, kept: Path) -> None:  # semantics R3, R4
    job.complete("r1")
    before = job.coordinator.head()
    for stages, error, text in (
        (
            [StageSpec("routes")],
            InvalidStateError,
            r"the checkpoint holds state that no stage claims.*For this start alone.*savepoint=`",
        ),
        (SPECS, InvalidStateError, r"max_parallelism differs.*stage=`report` max_p.*=`16` restored_max_p.*=`128`"),
    ):
        specs = [replace(each, parallelism=4, max_parallelism=16) for each in stages]
        with pytest.raises(error, match=text):
            operator(job, stages=specs).execute(told(asked(kept, "first"), "r2"))
        after = job.coordinator.head()
        assert (after.imports, after.importing, after.completed) == ((), None, before.completed)


def test_a_dag_may_claim_it(job: Job, kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = shutil.copytree(kept / "first", tmp_path / "mine")  # semantics R6
    trigger = operator(job, restore_from=f"file://{mine}", claim=True)
    with monkeypatch.context() as patched:
        patched.setattr(LocalStore, "delete", _fails)
        with pytest.raises(UnavailableError):
            trigger.execute(told(None))
    assert (mine / "_metadata").exists(), "the task died before it could delete it"
    assert trigger.execute(told(None))["restored_from"] == 1
    assert not [found for found in mine.rglob("*") if found.is_file()]
    head = job.coordinator.head()
    assert (len(head.imports), head.imports[0].claimed) == (1, False)


def _fails(*_: object) -> None:
    raise UnavailableError("the disk is gone")


def test_an_epoch_that_has_completed_does_not_go_back(job: Job, kept: Path) -> None:  # semantics T9
    job.complete("r1")
    with pytest.raises(AirflowSkipException, match="epoch r1 is completed"):
        operator(job, stages=[StageSpec("routes")]).execute(told(asked(kept, "first")))
    assert job.coordinator.head().imports == ()


def test_there_is_no_savepoint(job: Job, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(NoSavepointError, match=r"triggered: there is no savepoint.* .TRIGGER_CHECKPOINT_FAILURE"):
        operator(job, restore_from=f"file://{tmp_path / 'empty'}").execute(told(None))
    with pytest.raises(InvalidConfigError, match="restore_from lies in the job's own prefix"):
        operator(job).execute(told({"cairn": {"restore_from": f"{job.storage}/flights/x"}}))


@pytest.mark.parametrize("conf", [None, {}, {"theirs": {"restore_from": 1}}, {"cairn": {}}])
def test_a_run_need_not_say_anything(conf: dict[str, Any] | None) -> None:
    assert options_of(conf) == RunOptions()
    assert "conf" in SdkDagRun.model_fields, "of a real task"


@pytest.mark.parametrize(
    ("said", "text"),
    [
        ("s3://b/x", r"must be an object that has no other fields than restore_from, allow_non_restored_state, claim"),
        ({"restore": "s3://b/x"}, "has no other fields than"),
        ({"restore_from": 7}, r"\['restore_from'\] must be a str"),
        ({"restore_from": "s3://b/x", "claim": "yes"}, r"\['claim'\] must be a bool"),
        ({"claim": True}, "not from what: give 'restore_from' too"),
    ],
)
def test_what_a_run_says_is_checked(said: object, text: str) -> None:
    with pytest.raises(InvalidConfigError, match=text):
        options_of({"cairn": said})


_GROUP = """
with DAG("flights", schedule=None), CheckpointedTaskGroup("epoch", reads_window=False,
    storage="file:///lake", restore_from={}):
    SparkEpochOperator(task_id="routes", application="routes.py")
"""


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("'hdfs://namenode/x'", "there is no storage for the scheme hdfs"),
        ("'/kept/x'", "this is not a storage URI: it has no scheme"),
        ("17", "this is not a storage URI: it is not a text"),
        ("'s3://kept/x', claim='yes'", "claim must be True or False"),
        ("None, claim=True", "claim is about a savepoint to start from: give restore_from too"),
        ("None, allow_non_restored_state=True", "allow_non_restored_state is about a savepoint to start from"),
        (
            "None, config=CheckpointConfig(savepoint_target='file:///lake/flights/kept')",
            "the target lies in the job's own folder, whose files are the job's to delete; name a folder outside of it",
        ),
        ("'file:///lake/flights/x'", "restore_from lies in the job's own prefix, which the job cleans"),
    ],
)
def test_the_dag_is_checked_when_it_is_parsed(dag_file: DagFile, value: str, text: str) -> None:
    found = dag_file.error(_GROUP.format(value))
    assert text in found
    assert "group=`epoch`" in found


def test_the_group_hands_it_to_its_trigger(dag_file: DagFile) -> None:
    for value in ("s3://kept/x", "{{ var.value.savepoint }}"):
        words = f"{value!r}, claim=True, allow_non_restored_state=True"
        trigger: Any = dag_file.dag(_GROUP.format(words)).task_dict["epoch.trigger_checkpoint"]
        assert (trigger.restore_from, trigger.claim, trigger.allow_non_restored_state) == (value, True, True)
        assert "restore_from" in trigger.template_fields
