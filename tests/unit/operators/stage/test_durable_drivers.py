"""Drivers on a cluster over the tries of a task: submissions = attempts, in each of the provider's modes (F2, F3, F5).

Clusters are stand-ins of their status endpoints (tests/support/cluster_stand_in.py); the provider, the store and the
domain are real. Real clusters are in tests/real/airflow/test_yarn.py and tests/real/kubernetes.
"""

import json
import os
import re
from collections.abc import Iterator
from contextlib import nullcontext
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.apache.spark.hooks import spark_submit as hooks_of_provider
from airflow.providers.apache.spark.operators import spark_submit as operators_of_provider
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowException

from airflow_cairn.checkpoint.documents.attempt import Handover
from airflow_cairn.checkpoint.documents.layout import epoch_name
from airflow_cairn.checkpoint.reasons import Status
from airflow_cairn.hooks import kubernetes_pods
from airflow_cairn.operators import Output, SparkEpochOperator, restore_latest_checkpoint
from airflow_cairn.operators.stage.drivers import LAST_DRIVER, SubmittedDrivers
from airflow_cairn.operators.stage.outcome import StageFailedError
from airflow_cairn.operators.stage.trial import ask_by_stage
from airflow_cairn.spark import cluster_probe
from airflow_cairn.spark.programs.run import output_folder
from airflow_cairn.storage import open_store
from airflow_cairn.tasks.health.facts import ClusterFacts, NoAnswer, Silence
from tests.support.airflow_fixtures import Define, Said
from tests.support.airflow_stage import Job, Ti, context
from tests.support.cluster_stand_in import NAMESPACE, ApiException, ClusterStandIn, install_spark_submit
from tests.support.covering import one_of
from tests.support.errors import raises_code
from tests.support.narrowing import expect, known
from tests.support.plain_program import write_to
from tests.support.world.cluster import Cluster

RUN = "manual__2001-01-01T00:00:00+00:00"
RUN_NAME = epoch_name(RUN)
MODES = ("standalone", "yarn", "kubernetes")

# The provider leaves the pipe open by which it asks a standalone master.
pytestmark = [pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning"), pytest.mark.large]


class Killed(BaseException):
    """SIGKILL, seen from inside: nothing of the worker runs any more."""


class DiesWatching(SparkEpochOperator):
    """Operator whose worker is killed while the driver runs on."""

    def poll_until_complete(self, external_id: Any, context: Any) -> None:
        raise Killed


class TaskState(dict[str, Any]):
    """Task state that Airflow keeps through tries and clears, or `fails` to keep."""

    fails: BaseException | None = None

    def set(self, key: str, value: Any) -> None:
        if self.fails is not None:
            raise self.fails
        self[key] = value


def fails_with(error: BaseException) -> TaskState:
    state = TaskState()
    state.fails = error
    return state


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each test that names no mode in one of them, and in the others in `make soak`."""
    named = any("mode" in mark.args[0] for mark in metafunc.definition.iter_markers("parametrize"))
    if "mode" in metafunc.fixturenames and not named:
        metafunc.parametrize("mode", one_of(MODES, metafunc.function.__name__), indirect=True)


@pytest.fixture
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class JobsCluster(ClusterStandIn):
    """A cluster, a job whose stage submits there, and what Airflow keeps of the stage's task.

    Its drivers acknowledge when they are looked at for the second time.
    """

    def __init__(self, mode: str, job: Job) -> None:
        super().__init__(mode, lambda _driver, conf, looks: "RUNNING" if looks == 0 else acknowledge(job, conf))
        self.job = job
        self.state = TaskState()

    def finish_at_once(self) -> None:
        """Let the drivers acknowledge when they are looked at for the first time."""
        self.act = lambda _driver, conf, _looks: acknowledge(self.job, conf)

    def stage(self, kind: type[SparkEpochOperator] = SparkEpochOperator, **options: Any) -> SparkEpochOperator:
        where = {"task_id": "routes", "application": "routes.py", "storage": self.job.storage, "job": self.job.name}
        return kind(**{**where, "conn_id": "cluster", "retries": 2, **self.options(), **options})

    def at(self, ti: Ti | None = None) -> Any:
        """Give the context of a try; the first one's by default."""
        return context(ti or Ti(run_id=RUN), task_state_store=self.state)

    def outlived(self, state: TaskState | None = None, **options: Any) -> Ti:
        """A try submits, and its worker is killed; gives the try."""
        self.job.trigger(RUN)
        ti = Ti(run_id=RUN)
        with pytest.raises(Killed):
            self.stage(DiesWatching, **options).execute(
                context(ti, task_state_store=self.state if state is None else state)
            )
        return ti

    def retry(self, **options: Any) -> dict[str, Any]:
        return known(self.stage(**options).execute(self.at(Ti(run_id=RUN, try_number=2))))


@pytest.fixture
def cluster(
    mode: str, job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, connections: Define
) -> Iterator[JobsCluster]:
    with JobsCluster(mode, job) as cluster:
        install_spark_submit(tmp_path / "bin", mode, cluster.url)
        monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=os.pathsep)
        for module in (hooks_of_provider, operators_of_provider):
            monkeypatch.setattr(module, "kube_client", cluster.kube_client(), raising=False)
        connections("cluster", cluster.connection())
        yield cluster


def acknowledge(job: Job, conf: dict[str, str]) -> str:
    """Driver that acknowledges and ends."""
    job.acknowledge(job.coordinator.files.read(Handover, conf["spark.cairn.handover"])[0])
    return "DONE"


def test_a_retry_waits_for_the_driver_that_lives(job: Job, cluster: JobsCluster, said: Said) -> None:
    """semantics F5: the worker was killed, the dag processor says so, and the same attempt goes on."""
    ti = cluster.outlived()
    restore_latest_checkpoint(context(ti, task=cluster.stage()))
    assert "its driver may have outlived it" in said.text
    assert cluster.retry()["attempt"] == 1
    (driver,) = cluster.states
    assert cluster.events == [f"submit {driver}"]
    # The only checkpoint, completed by the stage that acknowledged last.
    assert [(entry.id, entry.status) for entry in job.coordinator.head().history] == [(1, Status.COMPLETED)]
    assert "which an earlier try submitted" in said.text


@pytest.mark.parametrize("state_now", ["DONE", "FAILED"])
def test_the_doctor_asks_the_cluster_as_the_stage_starts(job: Job, cluster: JobsCluster, state_now: str) -> None:
    """The driver answers through the storage, of which nothing stays; no Python runs in a standalone cluster's mode."""
    asked = cluster.stage(conf={"spark.author": "1"}, py_files="own.py", post_submit_commands=["exit 1"])
    with DAG("asked") as dag:
        dag.add_task(asked)

    def act(_driver: str, conf: dict[str, str], _looks: int) -> str:
        *_, program, option, folder = words = json.loads(conf["words"])
        assert (program, option) == (cluster_probe.__file__, "--report")
        assert (conf["spark.author"], conf["spark.more"]) == ("1", "2")
        assert re.fullmatch(r"own\.py,\S+\.zip", words[words.index("--py-files") + 1])
        Path(folder.removeprefix("file://")).mkdir()
        if state_now == "DONE":
            Path(folder.removeprefix("file://"), "part-0").write_text(
                json.dumps({"spark": "4.2.0", "pyspark": "4.2.0", "java": "17.0.12", "python": "3.12.3", "failed": {}})
            )
        return state_now

    cluster.act = act
    found = ask_by_stage(asked, {"spark.more": "2"})
    if cluster.mode == "standalone":
        assert (expect(NoAnswer, found).silence, cluster.submitted) == (Silence.UNFIT, 0)
        return
    if state_now == "DONE":
        facts = expect(ClusterFacts, found)
        assert (facts.java, facts.has_code) == ("17.0.12", True)
    else:
        assert expect(NoAnswer, found).silence is Silence.FAILED
    assert cluster.submitted == 1
    assert [each.key for each in open_store(job.storage).list("") if each.key.startswith("trial")] == []
    assert asked.application == "routes.py"


@pytest.mark.parametrize("state_now", ["FAILED", "KILLED", None])
def test_a_driver_that_is_gone_is_a_failover(job: Job, cluster: JobsCluster, state_now: str | None) -> None:
    """semantics F2: the driver failed, somebody killed it, or the cluster knows nothing of it any more."""
    cluster.outlived()
    (driver,) = cluster.states
    if state_now is None:
        del cluster.states[driver]
        cluster.states["another"] = "DONE"
    else:
        cluster.states[driver] = state_now
    cluster.finish_at_once()
    assert cluster.retry()["attempt"] == 2
    assert cluster.submitted == 2
    ended = known(job.coordinator.head().ended_by_id(1))
    assert f"{driver} is gone (" in ended.detail


def wrote(job: Job, conf: dict[str, str]) -> str:
    """Program that knows nothing of Cairn, writes and ends."""
    handover = job.coordinator.files.read(Handover, conf["spark.cairn.handover"])[0]
    write_to(job.coordinator.files.spark_url(output_folder(handover, "exchange.main")), [{"key": "BER", "n": 1}])
    return "DONE"


@pytest.mark.parametrize("ended", [False, True])
def test_a_retry_acknowledges_for_a_program(job: Job, cluster: JobsCluster, ended: bool) -> None:
    """decision 0058: the worker was killed while the driver ran, or after its end and before the acknowledgement."""
    places: dict[str, Any] = {"application_args": ["--out", Output()]}
    cluster.outlived(**places)
    cluster.act = lambda _driver, conf, looks: "RUNNING" if looks == 0 else wrote(job, conf)
    if ended:
        (driver,) = cluster.states
        cluster.states[driver] = wrote(job, cluster.confs[driver])
    assert cluster.retry(**places)["attempt"] == 1
    assert cluster.submitted == 1
    assert [entry.id for entry in job.coordinator.head().completed] == [1]


@pytest.mark.parametrize("mode", ["kubernetes"], indirect=True)  # other clusters say that they do not know a driver
@pytest.mark.parametrize("places", [{"application_args": [Output()]}, {}], ids=["program", "block"])
def test_a_stage_whose_pod_vanished_has_not_ended_well(job: Job, cluster: JobsCluster, places: dict[str, Any]) -> None:
    """The provider takes a pod that is gone for one that has succeeded; what it wrote may be half of it."""

    def vanish(_driver: str, conf: dict[str, str], _looks: int) -> str:
        if places:
            wrote(job, conf)
        raise ApiException(404)

    cluster.act = vanish
    job.trigger(RUN)
    with pytest.raises(StageFailedError, match="its driver's pod was deleted before its end was seen"):
        cluster.stage(**places).execute(cluster.at())
    assert not job.coordinator.head().completed


def test_the_driver_of_another_attempt_is_ended_first(job: Job, cluster: JobsCluster, tmp_path: Path) -> None:
    note = tmp_path / "afterwards"  # semantics F3
    ti = cluster.outlived()
    job.coordinator.fail(RUN_NAME, "routes", str(ti.id), "its region failed")
    old = next(iter(cluster.states))
    cluster.act = lambda driver, conf, _looks: "RUNNING" if driver == old else acknowledge(job, conf)
    afterwards = [f"sh -c 'echo done >> {note}'"]
    assert cluster.retry(post_submit_commands=afterwards)["attempt"] == 2
    _, new = cluster.states
    assert cluster.events == [f"submit {old}", f"kill {old}", f"submit {new}"]
    assert note.read_text() == "done\n"  # after the new one alone


def test_a_driver_that_cannot_be_ended_holds_nothing_up(
    job: Job, cluster: JobsCluster, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    ti = cluster.outlived()
    job.coordinator.fail(RUN_NAME, "routes", str(ti.id), "its region failed")
    cluster.finish_at_once()
    cluster.down = True
    up = SparkEpochOperator.submit_job

    def submit_when_up_again(self: SparkEpochOperator, context: Any) -> str | None:
        cluster.down = False
        return up(self, context)

    monkeypatch.setattr(SparkEpochOperator, "submit_job", submit_when_up_again)
    assert cluster.retry()["attempt"] == 2
    assert cluster.submitted == 2
    assert "of an earlier attempt could not be ended" in said.text


def test_a_cluster_that_does_not_answer_decides_nothing(cluster: JobsCluster) -> None:
    cluster.outlived()
    cluster.down = True
    with raises_code("driver_unknown", match="500") as failed:
        cluster.retry()
    assert failed.value.fields["driver"] in [*cluster.states, *(f"{NAMESPACE}:{pod}" for pod in cluster.states)]
    cluster.down = False
    assert cluster.retry()["attempt"] == 1
    assert cluster.submitted == 1


@pytest.mark.parametrize("mode", ["kubernetes"], indirect=True)
def test_a_connection_that_cannot_be_read_decides_nothing(
    cluster: JobsCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The provider swallows the error, and would submit to YARN in client mode."""

    def refuse(*_: object) -> None:
        raise AirflowException("the API server does not answer")

    cluster.outlived()
    with monkeypatch.context() as patch:
        patch.setattr(hooks_of_provider.SparkSubmitHook, "get_connection", refuse)
        with raises_code("driver_unknown", match="connection cluster cannot be read"):
            cluster.retry()
    assert cluster.retry()["attempt"] == 1
    assert cluster.submitted == 1


def test_a_driver_that_cannot_be_noted_is_ended(job: Job, cluster: JobsCluster) -> None:
    """Nobody could find it again: it would use the cluster in vain."""
    job.trigger(RUN)
    state = fails_with(ConnectionError("the API server does not answer"))
    with pytest.raises(ConnectionError):
        cluster.stage().execute(context(Ti(run_id=RUN), task_state_store=state))
    (driver,) = cluster.states
    assert cluster.events == [f"submit {driver}", f"kill {driver}"]
    cluster.finish_at_once()
    assert cluster.retry()["attempt"] == 2


@pytest.mark.parametrize("mode", MODES, indirect=True)
def test_a_worker_that_is_killed_before_it_noted_its_driver(cluster: JobsCluster) -> None:
    """Nobody knows the driver, so it is a failover, and its acknowledgement counts not. Kubernetes has its label."""
    cluster.outlived(fails_with(Killed()))
    attempts = 1 if cluster.mode == "kubernetes" else 2
    assert cluster.retry()["attempt"] == attempts
    assert cluster.submitted == attempts


ONLY_KUBERNETES = pytest.mark.parametrize("mode", ["kubernetes"], indirect=True)


@ONLY_KUBERNETES
@pytest.mark.parametrize(
    ("noted", "cut"), [("its driver", True), ("that of an execution before", True), ("", True), ("", False)]
)
def test_a_submission_died_before_its_pod_could_start(job: Job, cluster: JobsCluster, noted: str, cut: bool) -> None:
    """The submission died between pod and ConfigMap. A noted driver waits for room: its submission's end was seen."""
    its = noted == "its driver"
    cluster.outlived(None if its else fails_with(Killed()))
    (driver,) = cluster.states
    if noted and not its:
        cluster.state.set(LAST_DRIVER, {"token": "before", "driver": f"{NAMESPACE}:before"})
    cluster.waits, cluster.cut = "", cut

    def act(each: str, conf: dict[str, str], looks: int) -> str:
        if each == driver and looks < 2:
            return "RUNNING"
        cluster.waits = None
        return acknowledge(job, conf)

    cluster.act = act
    goes_on = its or not cut
    assert cluster.retry()["attempt"] == (1 if goes_on else 2)
    assert cluster.events[1:2] == ([] if goes_on else [f"kill {driver}"])
    if not goes_on:
        assert known(job.coordinator.head().ended_by_id(1)).detail.endswith(
            f"ConfigMap {driver}-conf-map) and has not acknowledged"
        )


@ONLY_KUBERNETES
@pytest.mark.parametrize(
    ("lasts", "lacks", "faults", "says"),
    [
        (590, None, {}, ""),
        (640, None, {}, "did not start: ImagePullBackOff: no such image"),
        (640, None, {"changes": 1}, "did not start"),
        (640, None, {"changes": 99}, ""),
        (640, None, {"refuses_delete": True}, "driver_unknown"),
        (640, "main", {}, "did not start"),
        (640, "init", {}, "did not start"),
        (640, "sidecar", {}, ""),
    ],
)
def test_an_image_that_does_not_come(
    job: Job,
    cluster: JobsCluster,
    monkeypatch: pytest.MonkeyPatch,
    lasts: int,
    lacks: str | None,
    faults: dict[str, Any],
    says: str,
) -> None:
    """For ten minutes of looks the driver may still start; then its pod is ended, unless that has changed."""
    job.trigger(RUN)
    now = [0.0]
    monkeypatch.setattr(kubernetes_pods, "system_time", lambda: now[0])
    monkeypatch.setattr(kubernetes_pods, "system_sleep", lambda seconds: now.append(now.pop() + seconds))
    vars(cluster).update(waits="ImagePullBackOff", sidecar=lacks, **faults)

    def act(_driver: str, conf: dict[str, str], _looks: int) -> str:
        if now[0] < lasts:
            return "RUNNING"
        cluster.waits = None
        return acknowledge(job, conf)

    cluster.act = act
    ti, task = Ti(run_id=RUN), cluster.stage()
    if says == "driver_unknown":
        with raises_code(says, match="refused. Before that this try failed: .*driver pod .* did not start: ImagePull"):
            task.execute(cluster.at(ti))
    elif says:
        with pytest.raises(StageFailedError, match=says):
            task.execute(cluster.at(ti))
        assert 600 <= now[0] < lasts
    else:
        task.execute(cluster.at(ti))
    assert [event.split()[0] for event in cluster.events] == ["submit", *(["kill"] if "did not" in says else [])]


@ONLY_KUBERNETES
def test_a_pod_whose_name_was_not_printed_and_that_cannot_be_deleted(
    job: Job, cluster: JobsCluster, said: Said
) -> None:
    """The pod is found by its label, its log is that of the driver's container, and its end counts."""
    job.trigger(RUN)
    cluster.sidecar, cluster.refuses_delete = "sidecar", True
    cluster.finish_at_once()
    task = cluster.stage(conf={"spark.test.quiet": "true"})
    task.execute(cluster.at())
    assert "could not be deleted: ConnectionError: refused" in said.text
    assert "could not be read" not in said.text


@ONLY_KUBERNETES
@pytest.mark.parametrize("says", ["", r"stage routes failed.*exit code: 1"])
def test_a_sidecar_outlives_the_driver(job: Job, cluster: JobsCluster, says: str) -> None:
    """The driver's own container tells its end, and its pod is deleted with the sidecar."""
    job.trigger(RUN)
    cluster.sidecar, cluster.outlives = "sidecar", True
    cluster.act = lambda _driver, conf, looks: "RUNNING" if looks == 0 else "FAILED" if says else acknowledge(job, conf)
    task = cluster.stage()
    with pytest.raises(StageFailedError, match=says) if says else nullcontext():
        task.execute(cluster.at())
    assert not cluster.outlives


@ONLY_KUBERNETES
def test_a_submission_fails_while_the_cluster_does_not_answer(job: Job, cluster: JobsCluster) -> None:
    job.trigger(RUN)
    cluster.down = True
    with raises_code("driver_unknown", match=r"\(500\). Before that this try failed: .*no such master"):
        cluster.stage(conf={"spark.test.fails": "true"}).execute(cluster.at())


@ONLY_KUBERNETES
def test_a_driver_that_is_ended_in_another_namespace(cluster: JobsCluster) -> None:
    """The connection's was changed since: the others are searched in the new one."""
    ti = cluster.outlived()
    moved = cluster.stage(conf={"spark.kubernetes.namespace": "moved"})
    drivers = SubmittedDrivers(moved, cluster.at(ti))
    drivers.cancel(cluster.state[LAST_DRIVER]["driver"])
    assert drivers.find(["another"]) == {}
    assert cluster.searched == ["moved"]
    assert len(cluster.events) == 2


@ONLY_KUBERNETES
def test_a_task_is_ended_before_its_submission_has_said_which_driver(job: Job, cluster: JobsCluster) -> None:
    class DiesReading(SparkEpochOperator):
        def submit_job(self, context: Any) -> str | None:
            super().submit_job(context)
            known(self._hook)._kubernetes_driver_pod = None
            raise Killed

    job.trigger(RUN)
    task = cluster.stage(DiesReading)
    with pytest.raises(Killed):
        task.execute(cluster.at())
    task.on_kill()
    (driver,) = cluster.states
    assert cluster.events == [f"submit {driver}", f"kill {driver}"]


def test_a_driver_that_fails_while_the_retry_waits_for_it(cluster: JobsCluster) -> None:
    cluster.outlived()
    cluster.act = lambda _driver, _conf, looks: "RUNNING" if looks == 0 else "FAILED"
    ti = Ti(run_id=RUN, try_number=2, max_tries=2)
    operator = cluster.stage()
    with pytest.raises(StageFailedError, match="stage routes failed") as failed:
        operator.execute(cluster.at(ti))
    restore_latest_checkpoint(context(ti, task=operator, exception=failed.value))
    cluster.finish_at_once()
    assert cluster.retry()["attempt"] == 2
    assert cluster.submitted == 2


def test_the_end_of_a_task_ends_the_driver_that_it_waits_for(cluster: JobsCluster) -> None:
    cluster.outlived()
    cluster.act = lambda *_: "RUNNING"
    operator = cluster.stage(DiesWatching)
    with pytest.raises(Killed):
        operator.execute(cluster.at(Ti(run_id=RUN, try_number=2)))
    operator.on_kill()
    (driver,) = cluster.states
    assert cluster.events == [f"submit {driver}", f"kill {driver}"]


@pytest.fixture
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """The provider waits 10 s between its questions to YARN, and 20 s to Kubernetes."""
    monkeypatch.setattr(hooks_of_provider, "time", SimpleNamespace(sleep=lambda _seconds: None))
    now = count(step=90)  # a look and a half a limit
    monkeypatch.setattr(kubernetes_pods, "system_sleep", lambda _seconds: None)
    monkeypatch.setattr(kubernetes_pods, "system_time", lambda: float(next(now)))


def lose_sight(cluster: JobsCluster, try_number: int, **options: Any) -> None:
    """A try cannot watch its driver any more; Airflow calls back with what it raised."""
    ti, operator = Ti(run_id=RUN, try_number=try_number, **{"max_tries": 2, **options}), cluster.stage()
    with raises_code("driver_unknown") as failed:
        operator.execute(cluster.at(ti))
    restore_latest_checkpoint(context(ti, task=operator, exception=failed.value))


@pytest.mark.usefixtures("_no_waiting")
def test_a_cluster_that_stops_answering_while_a_task_watches(job: Job, cluster: JobsCluster) -> None:
    """semantics F2: first for the try that submitted, then for the one that waits; the driver works on."""
    job.trigger(RUN)

    def act(_driver: str, conf: dict[str, str], looks: int) -> str:
        cluster.down = looks in (0, 2)
        return "RUNNING" if looks < 4 else acknowledge(job, conf)

    cluster.act = act
    for try_number in (1, 2):
        lose_sight(cluster, try_number)
        assert job.coordinator.head().history == ()
        cluster.down = False
    assert cluster.retry()["attempt"] == 1
    assert len(cluster.events) == cluster.submitted == 1


@pytest.mark.parametrize("mode", ["standalone", "kubernetes"], indirect=True)
@pytest.mark.usefixtures("_no_waiting")
def test_a_driver_whose_state_is_unknown_for_a_while(job: Job, cluster: JobsCluster) -> None:  # semantics F2
    """A master that recovers, or a pod's node that cannot be reached."""
    job.trigger(RUN)
    cluster.act = lambda *_: "UNKNOWN"
    lose_sight(cluster, 1)
    (driver,) = cluster.states
    cluster.states[driver] = "RUNNING"
    cluster.act = lambda _driver, conf, looks: "RUNNING" if looks == 1 else acknowledge(job, conf)
    assert cluster.retry()["attempt"] == 1
    assert len(cluster.events) == cluster.submitted == 1


@ONLY_KUBERNETES
@pytest.mark.usefixtures("_no_waiting")
def test_nobody_asks_again_after_the_last_try(job: Job, cluster: JobsCluster) -> None:  # semantics F5
    job.trigger(RUN)
    cluster.act = lambda *_: "UNKNOWN"
    lose_sight(cluster, 1, max_tries=0)
    ended = known(job.coordinator.head().ended_by_id(1))
    assert "lost sight of its driver" in ended.detail


@pytest.mark.parametrize("mode", ["standalone"], indirect=True)
def test_a_driver_that_is_slow_to_die_is_of_its_own_attempt_alone(job: Job, cluster: JobsCluster) -> None:
    """Two workers are killed: the first once its driver runs, the second before it submits anything."""

    class DiesSubmitting(SparkEpochOperator):
        def submit_job(self, context: Any) -> str | None:
            raise Killed

    ti = cluster.outlived()
    job.coordinator.fail(RUN_NAME, "routes", str(ti.id), "its region failed")
    (old,) = cluster.states
    cluster.act = lambda driver, conf, _looks: "RUNNING" if driver == old else acknowledge(job, conf)
    with pytest.raises(Killed):
        cluster.stage(DiesSubmitting).execute(cluster.at(Ti(run_id=RUN, try_number=2)))
    cluster.states[old] = "RUNNING"
    assert cluster.retry()["attempt"] == 3
    assert cluster.submitted == 2


@pytest.mark.parametrize("mode", ["standalone"], indirect=True)
def test_a_given_up_worker_does_not_end_an_adopted_driver(job: Job, cluster: JobsCluster) -> None:  # semantics F5
    """The worker was cut off and not dead: its next heartbeat is refused, and Airflow ends it with on_kill."""
    job.trigger(RUN)
    first = cluster.stage(DiesWatching)
    with pytest.raises(Killed):
        first.execute(cluster.at())

    def give_up_the_first(driver: str, conf: dict[str, str], looks: int) -> str:
        if looks == 0:
            return "RUNNING"
        first.on_kill()
        return acknowledge(job, conf)

    cluster.act = give_up_the_first
    assert cluster.retry()["attempt"] == 1
    assert [event.split()[0] for event in cluster.events] == ["submit"]


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("mode", ["kubernetes"], indirect=True)
def test_without_durable_a_retry_is_a_failover(cluster: JobsCluster, first: bool) -> None:
    cluster.outlived(durable=first)
    cluster.finish_at_once()
    assert cluster.retry(durable=False)["attempt"] == 2
    assert cluster.submitted == 2


@pytest.mark.parametrize("mode", ["standalone", "kubernetes"], indirect=True)
def test_a_driver_whose_name_somebody_removed(job: Job, cluster: JobsCluster) -> None:
    cluster.outlived()
    ti = Ti(run_id=RUN, try_number=2)
    job.coordinator.begin(RUN_NAME, "routes", str(ti.id), drivers=Cluster())
    cluster.state.clear()
    says = "was removed[.]"
    if cluster.mode == "kubernetes":
        cluster.states.clear()
        says = "was removed; and no pod has its label"
    with pytest.raises(StageFailedError, match=says):
        cluster.stage().execute(cluster.at(ti))
    assert cluster.submitted == 1
