"""Stages that Airflow skips: who acknowledges in their place, once, and what never ends green (semantics A2, B1)."""

from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowSkipException

from airflow_cairn.checkpoint import CheckpointConfig
from airflow_cairn.checkpoint.documents.acknowledgement import AckDocument
from airflow_cairn.checkpoint.documents.attempt import Execution
from airflow_cairn.checkpoint.documents.layout import epoch_name
from airflow_cairn.checkpoint.errors import CheckpointFailedError
from airflow_cairn.checkpoint.store import acks, attempt_documents
from airflow_cairn.operators import CheckpointedTaskGroup, SparkEpochOperator
from airflow_cairn.operators.graph.declaration import Exchange
from airflow_cairn.operators.graph.topology import runs_after_success
from airflow_cairn.operators.stage.outcome import StageFailedError, StageRun
from airflow_cairn.spark.acknowledging import acknowledge_skipped
from tests.support.airflow_fixtures import DagFile
from tests.support.airflow_stage import Job, Ti, context
from tests.support.groups import stage
from tests.support.narrowing import known

RUN = "manual__r1"
SKIPPED = "skipped"


class Run:
    """A run of a → b → c, and beside them the two instances of d; c runs whether or not b was skipped."""

    def __init__(self, job: Job, config: CheckpointConfig | None = None, exchange: Exchange | None = None) -> None:
        self.job = job
        with (
            DAG("flights", schedule=None) as self.dag,
            CheckpointedTaskGroup("epoch", reads_window=False, storage=job.storage, config=config, deferrable=False),
        ):
            c = stage("c", trigger_rule="none_failed", exchange=exchange)
            stage("a") >> stage("b") >> c
            SparkEpochOperator.partial(task_id="d", application="d.py").expand(application_args=[["x"], ["y"]])
            stage("d_1")
        self.run(RUN)

    def run(self, run_id: str) -> None:
        """Begin a run."""
        self.run_id = run_id
        self.execute("trigger_checkpoint")

    def execute(self, name: str, **skipped: str) -> Any:
        """Execute a task of the group."""
        self.ti = Ti(run_id=self.run_id, task_states={(f"epoch.{task}", -1): state for task, state in skipped.items()})
        task: Any = self.dag.get_task(f"epoch.{name}")
        return task.execute(context(self.ti, task=task))

    def look(self, states: dict[tuple[str, int], str] | None = None, *, try_number: int = 1) -> Any:
        """Let the task that waits look once."""
        self.ti = Ti(
            run_id=self.run_id,
            try_number=try_number,
            task_states={(f"epoch.{task}", at): state for (task, at), state in (states or {}).items()},
        )
        wait: Any = self.dag.get_task("epoch.wait_for_checkpoint")
        return wait.poke(context(self.ti)).xcom_value

    def finish(self, *stages: str) -> None:
        """Let stages acknowledge."""
        for uid in stages:
            self.job.acknowledge(self.job.begin(self.run_id, uid))

    def acknowledged(self, uid: str) -> AckDocument | None:
        """Read what a stage has acknowledged in the pending attempt."""
        execution = self.executions()[uid]
        files = self.job.coordinator.files
        return acks.read_ack(files, uid, execution) if acks.has_acknowledged(files, uid, execution) else None

    def executions(self) -> dict[str, Execution]:
        """Give the pending attempt's executions."""
        (entry,) = self.job.coordinator.head().pending
        return attempt_documents.read(self.job.coordinator.files, entry).executions


def test_a_stage_looks_for_declines_only_of_stages_that_may_have_failed(job: Job) -> None:  # semantics B4
    run = Run(job)
    tasks: list[Any] = [run.dag.get_task(f"epoch.{name}") for name in "bc"]
    assert [runs_after_success(task) for task in tasks] == [True, False]
    with DAG("alone", schedule=None):
        outside = SparkEpochOperator(task_id="s", application="s.py", storage=job.storage, job="flights")
    assert not runs_after_success(outside), "what is before it is not known"


@pytest.fixture
def run(job: Job) -> Run:
    return Run(job)


def test_who_waits_acknowledges_for_what_was_skipped(run: Run) -> None:  # semantics A4
    run.finish("a", "d-0", "d_1")
    assert run.look() is None, "nobody was skipped: b, c and d[1] are still expected"
    result = run.look({("b", -1): SKIPPED, ("c", -1): SKIPPED, ("d", 0): "success", ("d", 1): SKIPPED})
    assert result["checkpoint"] == 1
    assert result["acks"] == 6
    assert run.look()["checkpoint"] == 1


def test_nothing_is_asked_while_all_is_well(run: Run) -> None:
    run.finish("a", "b", "c", "d-0", "d-1", "d_1")
    assert run.look()["acks"] == 6
    assert run.ti.asked_states == []


def test_an_instance_is_not_taken_for_a_task_of_that_name(run: Run) -> None:
    """Airflow names d[1] as it names the task d_1."""
    run.finish("a", "b", "c", "d-0")
    assert run.look({("d", 0): "success", ("d", 1): SKIPPED}) is None
    assert ["epoch.d"] in run.ti.asked_states
    assert run.look({("d_1", -1): SKIPPED})["acks"] == 6


def test_a_reader_acknowledges_for_its_upstream_before_it_begins(run: Run) -> None:  # semantics B1
    """Stage c has acknowledged and starts no driver: the work before that is looked at."""
    run.finish("a", "c")
    assert run.acknowledged("b") is None
    run.execute("c", b=SKIPPED)
    found = known(run.acknowledged("b"))
    assert found.skipped
    assert found.outputs == ()
    assert run.ti.asked_states == [["epoch.b"]]


def test_so_it_does_where_its_own_beginning_has_opened_another_attempt(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:  # semantics B1, F1, F5
    """The worker was killed, and the next try comes before any callback: b is of c's region, and expected anew."""
    submitted: list[StageRun] = []
    monkeypatch.setattr(SparkEpochOperator, "_submit", lambda *args: submitted.append(args[-1]))
    run = Run(job, exchange="pipelined")
    run.finish("a")
    acknowledge_skipped(job.coordinator, epoch_name(run.run_id), "b", "reader")
    job.begin(run.run_id, "c", "killed")
    with pytest.raises(StageFailedError, match="ended without opening an epoch"):
        run.execute("c", b=SKIPPED)
    assert [each.handover.attempt for each in submitted] == [2]
    (pending,) = job.coordinator.head().pending
    assert pending.attempt == 2
    found = known(run.acknowledged("b"))
    assert found.skipped


def test_a_stage_that_cannot_follow_a_skipped_one_asks_nothing(run: Run) -> None:
    run.finish("a", "b")
    run.execute("b")
    assert run.ti.asked_states == []


def test_the_first_acknowledgement_stays(run: Run) -> None:  # semantics A2
    """Somebody marks a stage as skipped while its driver runs."""
    run.finish("a")
    driver = run.job.begin(run.run_id, "b", "its driver")
    epoch = epoch_name(run.run_id)
    assert acknowledge_skipped(run.job.coordinator, epoch, "b", "reader")
    assert not acknowledge_skipped(run.job.coordinator, epoch, "b", "sensor")
    assert run.execute("b") is None, "a later try submits nothing"
    run.job.acknowledge(driver)
    found = known(run.acknowledged("b"))
    assert found.skipped
    (pending,) = run.job.coordinator.head().pending
    assert pending.attempt == 1, "no failover comes of it"


def test_a_stage_that_has_to_read_older_epochs_cannot_be_skipped(job: Job) -> None:  # semantics R1
    run = Run(job, CheckpointConfig(retained=2))
    for name in (RUN, "r2"):
        run.run(name)
        run.finish("a", "b", "c", "d-0", "d-1", "d_1")
        run.look()
    newest = max((job.folder / "flights").glob("chk-*/_metadata*"))
    newest.write_bytes(b"")
    run.run("r3")
    run.finish("a", "c", "d-0", "d-1", "d_1")
    with pytest.raises(CheckpointFailedError, match=r"stage b was skipped, but .* older epochs.*epochs=`r2`"):
        run.look({("b", -1): SKIPPED})


def test_where_stages_may_be_left_out_a_skipped_one_is(job: Job) -> None:  # semantics B3
    run = Run(job, CheckpointConfig(unaligned=True))
    run.finish("a", "d-0", "d-1", "d_1")
    assert not acknowledge_skipped(job.coordinator, epoch_name(RUN), "b", "sensor")
    assert run.look({("b", -1): SKIPPED})["left_out"] == ["b", "c"]


def test_a_group_that_was_skipped_has_no_checkpoint(job: Job) -> None:
    run = Run(job)
    run.run_id = "manual__never_triggered"
    with pytest.raises(
        AirflowSkipException, match="the task that triggers the checkpoint was skipped, so there is none"
    ):
        run.execute("wait_for_checkpoint", trigger_checkpoint=SKIPPED, a=SKIPPED)


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (
            (
                "    @task.short_circuit\n    def due():\n        return False\n"
                "    due() >> SparkEpochOperator(task_id='a', application='a.py')"
            ),
            "epoch.due would skip the task that waits for the checkpoint too",
        ),
        (
            (
                "    @task.branch\n    def choose():\n        return None\n"
                "    SparkEpochOperator(task_id='a', application='a.py') >> choose()"
            ),
            "epoch.choose may skip what follows it, and that is the task that waits for the checkpoint",
        ),
    ],
)
def test_what_could_end_green_is_refused(dag_file: DagFile, body: str, text: str) -> None:
    head = 'with DAG("flights", schedule=None), CheckpointedTaskGroup("epoch", reads_window=False, storage="file:///lake"):\n'
    assert text in dag_file.error(head + body)


def test_a_short_circuit_that_minds_trigger_rules_is_fine(dag_file: DagFile) -> None:
    dag = dag_file.dag("""
with DAG("flights", schedule=None), CheckpointedTaskGroup("epoch", reads_window=False, storage="file:///lake"):
    @task.short_circuit(ignore_downstream_trigger_rules=False)
    def due():
        return False

    due() >> SparkEpochOperator(task_id="a", application="a.py")
""")
    assert dag.get_task("epoch.due").downstream_task_ids == {"epoch.a"}
