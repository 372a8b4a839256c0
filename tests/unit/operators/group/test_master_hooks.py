"""Master hooks through the operators: asked by the trigger, sent back by the restore, found in installed packages."""

from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowSkipException
from airflow.sdk.log import mask_secret

from airflow_cairn.checkpoint import CheckpointConfig, CheckpointNotice, MasterHook
from airflow_cairn.checkpoint.errors import CheckpointNotReadyError, InvalidConfigError
from airflow_cairn.checkpoint.store import attempt_documents
from airflow_cairn.operators import (
    CheckpointedTaskGroup,
    RestoreLatestCheckpointOperator,
    StageSpec,
    TriggerCheckpointOperator,
)
from airflow_cairn.sensors import CheckpointSensor
from airflow_cairn.tasks.extensions import MASTER_HOOKS
from tests.support.airflow_fixtures import DagFile, Install, Said
from tests.support.airflow_stage import Job, Ti, context
from tests.support.errors import raises_code
from tests.support.narrowing import known


class Feed(MasterHook):
    def __init__(self, name: str = "feed") -> None:
        self._name = name
        self.calls: list[Any] = []
        self.broken: bool | str = False

    @property
    def name(self) -> str:
        return self._name

    def trigger(self, checkpoint: int, timestamp_ms: int) -> Any:
        self.calls.append("trigger")
        if self.broken:
            raise ConnectionError(self.broken)
        return checkpoint

    def restore(self, checkpoint: int, state: Any) -> None:
        self.calls.append(("restore", checkpoint, state))

    def reset(self) -> None:
        self.calls.append("reset")

    def close(self) -> None:
        self.calls.append("close")


def trigger(job: Job, run_id: str, *hooks: MasterHook, **options: Any) -> dict[str, Any]:
    where: dict[str, Any] = {"storage": job.storage, "job": job.name, "stages": [StageSpec("routes")]}
    operator = TriggerCheckpointOperator(task_id="trigger", reads_window=False, master_hooks=hooks, **where, **options)
    return operator.execute(context(Ti(run_id=run_id)))


def complete(job: Job, run_id: str) -> None:
    job.acknowledge(job.begin(run_id))
    (pending,) = job.coordinator.head().pending
    job.coordinator.complete(pending.id)


def test_the_trigger_asks_and_closes(job: Job, said: Said) -> None:  # semantics T7, R2
    feed = Feed()
    trigger(job, "r1", feed)
    complete(job, "r1")
    trigger(job, "r2", feed)
    assert feed.calls == ["reset", "trigger", "close", ("restore", 1, 1), "trigger", "close"]
    assert "The master hooks have answered: feed" in said.text


def test_a_retry_that_finds_the_answers_calls_nothing_but_close(job: Job) -> None:  # semantics T9
    feed = Feed()
    trigger(job, "r1", feed)
    feed.calls.clear()
    trigger(job, "r1", feed)
    assert feed.calls == ["close"]
    complete(job, "r1")
    with pytest.raises(AirflowSkipException):
        trigger(job, "r1", feed)
    assert feed.calls == ["close"] * 2


def test_a_broken_hook_fails_the_task_and_the_retry_goes_on(job: Job) -> None:  # semantics T7
    feed = Feed()
    feed.broken = True
    with raises_code("master_hook", match=r"the master hook feed failed in trigger: ConnectionError.*hook=`feed`"):
        trigger(job, "r1", feed)
    assert feed.calls[-1] == "close"
    feed.broken = False
    assert trigger(job, "r1", feed)["checkpoint"] == 2


def test_what_airflow_masks_is_not_kept(job: Job) -> None:  # semantics T7
    mask_secret("the green parrot")
    feed = Feed()
    feed.broken = "no such user: the green parrot"
    with raises_code("master_hook", match=r"ConnectionError\('no such user: \*\*\*'\)"):
        trigger(job, "r1", feed)
    assert "parrot" not in (job.folder / job.name / "head.json").read_text()


class Table(Feed):
    """Is asked and told, as a table is that stages read."""

    reads = True
    away = 0

    def notify_checkpoint_complete(self, notice: CheckpointNotice) -> None:
        if self.away:
            self.away -= 1
            raise ConnectionError("the catalog is away")
        self.calls.append(("commit", notice.checkpoint))

    def notify_checkpoint_aborted(self, notice: CheckpointNotice) -> None:
        """Nothing is dropped."""


def test_what_stages_read_is_asked_when_the_former_epoch_is_committed(job: Job) -> None:  # semantics T7, C4
    table = Table()
    trigger(job, "r1", table, listeners=[table])
    complete(job, "r1")
    table.calls.clear()
    table.away = 2
    with raises_code("listener", match="the catalog is away"):
        trigger(job, "r2", table, listeners=[table])
    assert table.calls == ["close"], "not asked"
    trigger(job, "r2", table, listeners=[table])
    assert [table.calls[1], *table.calls[-2:]] == [("commit", 1), "trigger", "close"]


def test_the_sensor_says_whom_it_waits_for(job: Job, said: Said) -> None:  # semantics C1
    """The task that triggers was killed before the answers were kept."""
    feed = Feed()
    trigger(job, "r1", feed)
    ref = job.coordinator.head().pending[0]
    document = known(job.coordinator.pending_document(ref))
    assert attempt_documents.hooks_missing(job.coordinator.files, document.hooks) == ()
    (answers,) = (job.folder / job.name).glob("chk-*/hooks-*")
    answers.unlink()
    sensor = CheckpointSensor(task_id="wait", storage=job.storage, job=job.name, deferrable=False)
    assert not sensor.poke(context(Ti(run_id="r1")))
    assert "waiting for routes; the master hooks feed have not answered" in said.text
    with pytest.raises(CheckpointNotReadyError, match="run \\(or clear\\) the task that triggers"):
        job.begin("r1")


def restore(job: Job, *hooks: MasterHook, **options: Any) -> dict[str, Any]:
    operator = RestoreLatestCheckpointOperator(
        task_id="restore", storage=job.storage, job=job.name, master_hooks=hooks, **options
    )
    return operator.execute(context(Ti(run_id="repair")))


def test_restoring_by_hand_sends_the_hooks_back(job: Job) -> None:  # semantics R2, R5
    feed = Feed()
    restore(job, feed)
    assert feed.calls == ["reset", "close"]
    trigger(job, "r1", feed)
    complete(job, "r1")
    feed.calls.clear()
    restore(job, feed)
    assert feed.calls == [("restore", 1, 1), "close"]


def test_restoring_without_a_hook_that_has_state(job: Job) -> None:  # semantics T7, R3
    trigger(job, "r1", Feed())
    complete(job, "r1")
    with raises_code("non_restored_state", match="unclaimed=`feed`"):
        restore(job)
    assert restore(job, allow_non_restored_state=True)["checkpoint"] == 1


SOON = CheckpointConfig(timeout=Feed().timeout / 2)


@pytest.mark.parametrize(
    ("hooks", "config", "text"),
    [
        ([Feed(), Feed()], None, "two hooks have one name"),
        ([Feed], None, "derive from MasterHook"),
        (Feed(), None, "must be a list"),
        ([Feed()], CheckpointConfig(max_concurrent_checkpoints=2), "max_concurrent_checkpoints must be 1"),
        ([Feed()], SOON, "the timeout of a hook must be at most that of the checkpoint"),
    ],
)
def test_what_is_refused_at_parse(hooks: Any, config: Any, text: str) -> None:  # semantics T7, D2, S3
    with DAG("flights", schedule=None):
        with (
            pytest.raises(InvalidConfigError, match=rf"{text}.*group=`e`"),
            CheckpointedTaskGroup("e", reads_window=False, storage="file:///x", master_hooks=hooks, config=config),
        ):
            raise AssertionError("the block is not entered")
        with pytest.raises(InvalidConfigError, match=rf"{text}.*task=`t`"):
            TriggerCheckpointOperator(
                task_id="t", storage="file:///x", stages=[StageSpec("a")], master_hooks=hooks, config=config
            )


PLUGGED = """
from airflow_cairn.checkpoint import MasterHook

class Plugged(MasterHook):
    name = "feed"
    def trigger(self, checkpoint, timestamp_ms):
        return "plugged"
    def restore(self, checkpoint, state):
        assert state == "plugged"

def of(job):
    return Plugged() if job == "flights" else None
"""


def test_a_hook_of_an_installed_package(job: Job, install: Install, said: Said) -> None:  # semantics T7
    install(MASTER_HOOKS, PLUGGED)
    own = Feed("own")
    trigger(job, "r1", own)
    complete(job, "r1")
    trigger(job, "r2", own)
    assert "The master hooks have answered: own, feed" in said.text
    job.name = "other"
    assert own.calls == ["reset", "trigger", "close", ("restore", 1, 1), "trigger", "close"]
    trigger(job, "r1")
    assert job.coordinator.pending_document(job.coordinator.head().pending[0]).hooks is None  # type: ignore[union-attr]


def test_a_name_that_is_taken_already(job: Job, install: Install) -> None:  # semantics T7
    install(MASTER_HOOKS, PLUGGED)
    with pytest.raises(InvalidConfigError, match="two hooks have one name"):
        trigger(job, "r1", Feed())
    assert job.coordinator.head().revision == 0


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("", "AttributeError"),
        ("import nowhere", "ModuleNotFoundError"),
        ("def of(): pass", "TypeError"),
        ("def of(job): return 7", "derive from MasterHook"),
    ],
)
def test_an_entry_point_that_cannot_be_used(job: Job, install: Install, code: str, text: str) -> None:
    install(MASTER_HOOKS, code)
    with pytest.raises(InvalidConfigError, match=text) as caught:
        trigger(job, "r1")
    if text != "derive from MasterHook":
        assert "the entry point plugged of plugged-package cannot be used" in str(caught.value)


def test_parsing_a_dag_imports_no_installed_hook(dag_file: DagFile, install: Install) -> None:  # semantics T7
    install(MASTER_HOOKS, "raise SystemExit('imported where a DAG is parsed')")
    dag_file.dag("""
with DAG("flights", schedule=None), CheckpointedTaskGroup("epoch", reads_window=False, storage="file:///x"):
    SparkEpochOperator(task_id="a", application="a.py")
""")
