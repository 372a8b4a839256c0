"""A stage's submission: how `spark-submit` is started, and what is made of how it ended.

`spark-submit` is a stand-in (tests/support/spark_submit_stand_in.py); everything else is real: the provider's operator
and hook, the process, the store and the domain. The real one runs in tests/real/airflow.
"""

import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowFailException, AirflowRescheduleException, AirflowSkipException

from airflow_cairn.checkpoint import CheckpointConfig, FileSource, Offsets, Source, TriggerRequest
from airflow_cairn.checkpoint.acts.completion import Completion
from airflow_cairn.checkpoint.answers import Ready
from airflow_cairn.checkpoint.documents.attempt import Slice, StageSpec
from airflow_cairn.checkpoint.documents.entries import Stopped
from airflow_cairn.checkpoint.documents.layout import epoch_name
from airflow_cairn.checkpoint.errors import CheckpointFailedError, FencedError, InvalidConfigError
from airflow_cairn.checkpoint.store import acks
from airflow_cairn.hooks.storage import CheckpointStorageHook
from airflow_cairn.operators import SparkEpochOperator, TriggerCheckpointOperator, restore_latest_checkpoint
from airflow_cairn.operators.stage.outcome import StageFailedError, StageRun
from airflow_cairn.plugin.cairn_plugin import CairnPlugin
from airflow_cairn.storage import open_store
from airflow_cairn.storage.errors import UnavailableError
from tests.support import spark_submit_stand_in
from tests.support.airflow_fixtures import Define, Said
from tests.support.airflow_stage import Job, Ti, context
from tests.support.errors import raises_code
from tests.support.narrowing import expect, known
from tests.support.wrapped_stores import InterleavingStore

RUN = "manual__2001-01-01T00:00:00+00:00"
CANARY = "canary-0123456789"


@dataclass
class Submitted:
    """Start of the stand-in, as it has noted it."""

    note: Path

    def __getitem__(self, name: str) -> Any:
        return json.loads(self.note.read_text())[name]

    def __bool__(self) -> bool:
        return self.note.exists()


@pytest.fixture
def submitted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, connections: Define) -> Submitted:
    folder = tmp_path / "bin"
    folder.mkdir()
    binary = folder / "spark-submit"
    root = Path(__file__).parents[4]
    binary.write_text(
        f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {str(root)!r})\n"
        f"from {spark_submit_stand_in.__name__} import main\nsys.exit(main())\n"
    )
    binary.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)
    monkeypatch.setenv("CAIRN_TEST_NOTE", str(tmp_path / "note.json"))
    connections("spark_default", json.dumps({"conn_type": "spark", "host": "local[2]"}))
    return Submitted(tmp_path / "note.json")


def run(of: Job, do: str = "acknowledge", **options: Any) -> dict[str, Any] | None:
    """Trigger the run's checkpoint, and run the stage's first try."""
    of.trigger(RUN)
    return stage(of, do, **options).execute(context(Ti(run_id=RUN)))


def in_mode(connections: Define, mode: str) -> dict[str, Any]:
    """Define a connection to YARN in this mode; gives what has a stage use it."""
    connections("yarn", json.dumps({"conn_type": "spark", "host": "yarn", "extra": {"deploy-mode": mode}}))
    return {"conn_id": "yarn", "durable": False}


def stage(of: Job, do: str = "acknowledge", **options: Any) -> SparkEpochOperator:
    conf = {"spark.test.do": do, **options.pop("conf", {})}
    settings = {"task_id": "routes", "application": "routes.py", "storage": of.storage, "job": of.name, "conf": conf}
    return SparkEpochOperator(**{**settings, **options})


def test_a_stage_is_submitted_and_acknowledges(job: Job, submitted: Submitted, said: Said) -> None:
    job.complete("r0")
    job.trigger(RUN)
    where: dict[str, Any] = {"storage": job.storage, "job": job.name}
    with DAG("flights", schedule=None):
        operator = stage(job, py_files="mine.zip")
        sources: list[Source] = [FileSource("s3a://lake/in/"), Offsets(lambda *_: (1, 1))]
        TriggerCheckpointOperator(task_id="trigger", stages=[StageSpec("routes")], source=sources, **where)
    result = operator.execute(context(Ti(run_id=RUN)))
    assert result == {"checkpoint": 2, "epoch": epoch_name(RUN), "attempt": 1, "stage": "routes"}
    conf = submitted["conf"]
    assert conf["spark.cairn.storage"] == job.storage
    assert conf["spark.cairn.job"] == "flights"
    assert conf["spark.cairn.handover"].startswith("chk-0000000002/handover/routes/")
    assert conf["spark.cairn.restore"] == "1"
    assert unquote(conf["spark.cairn.sources"]) == '{"files": "s3://lake/in"}', "what is stored names no place"
    title = f"Checkpoint 2 · epoch {RUN} · attempt 1 · stage routes"
    assert f"{title}: submitting" in said.text
    assert f"{title}: acknowledged" in said.text
    assert "Restoring from checkpoint 1" in said.text
    # The author's fields stay as the author wrote them; what was shipped is gone.
    assert operator.conf == {"spark.test.do": "acknowledge"}
    assert operator.py_files == "mine.zip"
    mine, runtime = submitted["argv"][submitted["argv"].index("--py-files") + 1].split(",")
    assert mine == "mine.zip"
    assert "airflow_cairn" in Path(runtime).name
    assert not Path(runtime).exists()


def test_the_way_to_its_spark_application(job: Job, submitted: Submitted, said: Said, connections: Define) -> None:
    """The driver says where its UI is: the page leads there at once, and to the history server once the task ends."""
    extra = {"history_server": "https://history.example.com"}
    connections("spark_default", json.dumps({"conn_type": "spark", "host": "local[2]", "extra": extra}))
    job.trigger(RUN)
    operator, ti = stage(job, conf={"spark.test.ui": "http://driver:4040"}), Ti(run_id=RUN)
    operator.execute(context(ti))
    _, link = operator.operator_extra_links
    assert ti.xcoms == {link.xcom_key: "http://driver:4040"}
    key: Any = ti
    assert link.get_link(operator, ti_key=key) == "https://history.example.com/history/app-1/jobs/"
    assert "Spark application app-1: http://driver:4040" in said.text
    assert "cairn-spark-application" not in said.text


def test_a_pause_in_the_middle_stops_the_job_and_costs_no_try(job: Job, submitted: Submitted) -> None:
    """semantics S1: the stage's work so far is kept, and the rest waits for the end of the pause."""
    job.trigger(RUN, "routes", StageSpec("report", upstream=("routes",)))
    stage(job).execute(context(Ti(run_id=RUN, paused=True)))
    assert job.coordinator.head().stopped is Stopped.PAUSED
    report = stage(job, task_id="report")
    with pytest.raises(AirflowRescheduleException):
        report.execute(context(Ti(run_id=RUN, paused=True)))
    result = known(report.execute(context(Ti(run_id=RUN))))
    assert result["attempt"] == 2
    head = job.coordinator.head()
    assert head.stopped is None
    assert [(each.attempt, each.acks) for each in head.completed] == [(2, 2)], "it is taken over"


def test_a_pause_that_another_task_noticed_leaves_a_stage_alone(job: Job, submitted: Submitted) -> None:
    """semantics S1, A2: the stage was running then, and acknowledges after its attempt has ended."""
    job.trigger(RUN)
    assert stage(job, "acknowledge after a pause").execute(context(Ti(run_id=RUN, paused=True))) is not None
    job.coordinator.unpause()
    waiting = expect(Ready, job.coordinator.go_on(epoch_name(RUN)))
    assert waiting.checkpoint == 2


def test_a_stage_below_one_that_declined_starts_no_driver(job: Job, submitted: Submitted) -> None:  # semantics B4
    stages = (StageSpec("clean"), StageSpec("routes", upstream=("clean",)))
    job.coordinator.trigger(TriggerRequest(epoch_name(RUN), Slice(), stages))
    job.decline(job.begin(RUN, "clean"), "ValueError: bad row")
    with DAG("flights", schedule=None):
        stage(job, task_id="clean")
        routes = stage(job)
    with pytest.raises(CheckpointFailedError, match=r"nothing was submitted: clean, .*ValueError: bad row") as failed:
        routes.execute(context(Ti(run_id=RUN)))
    assert not submitted
    assert failed.value.fields["attempt"] == 1


def test_the_stage_that_acknowledges_last_completes_the_checkpoint(
    job: Job, submitted: Submitted, said: Said
) -> None:  # semantics C1
    """The task that waits for it has still to start; it finds the checkpoint complete, and tells and cleans."""
    job.trigger(RUN, "routes", "airports")
    stage(job).execute(context(Ti(run_id=RUN)))
    assert job.coordinator.head().completed == (), "airports has not acknowledged"
    stage(job, task_id="airports").execute(context(Ti(run_id=RUN)))
    assert [each.id for each in job.coordinator.head().completed] == [1]
    assert "Checkpoint 1: every stage has acknowledged, the checkpoint is complete" in said.text


def test_so_does_a_stage_whose_try_died_after_its_acknowledgement(job: Job, submitted: Submitted, said: Said) -> None:
    """semantics C1: the try died between the end of its application and the completion."""
    job.trigger(RUN)
    job.acknowledge(job.begin(RUN))
    assert stage(job, retries=2).execute(context(Ti(run_id=RUN, try_number=2, max_tries=2))) is None
    assert not submitted
    assert f"Checkpoint 1 · epoch {RUN} · stage routes: already acknowledged, nothing to submit" in said.text
    assert [each.id for each in job.coordinator.head().completed] == [1]


def test_a_completed_epoch_is_skipped_unless_a_try_died_after_the_completion(
    job: Job, submitted: Submitted, said: Said
) -> None:  # semantics C1, T9
    """A skipped stage would have the tasks behind it skipped too."""
    job.complete(RUN)
    assert stage(job, retries=2).execute(context(Ti(run_id=RUN, try_number=2, max_tries=2))) is None
    assert f"Checkpoint 1 has completed epoch {RUN}: stage routes has nothing to submit" in said.text
    why = r"is completed: checkpoint 1 holds it\. It is not run again"
    for ti in (Ti(run_id=RUN), Ti(run_id=RUN, try_number=2, max_tries=3)):
        with pytest.raises(AirflowSkipException, match=why) as skip:
            stage(job, retries=2).execute(context(ti))
        assert f"Skipped: {skip.value}" in said.text
    assert not submitted


def test_a_stage_that_was_added_while_the_run_went_on_begins_with_the_next(
    job: Job, submitted: Submitted, said: Said
) -> None:  # semantics T9
    """Airflow adds its task to the run; that it has completed the epoch would not be true."""
    job.trigger(RUN)
    with pytest.raises(InvalidConfigError, match="does not expect this stage: the DAG has changed"):
        stage(job, task_id="added").execute(context(Ti(run_id=RUN)))
    job.acknowledge(job.begin(RUN))
    job.coordinator.complete(1)
    assert stage(job, task_id="added", retries=2).execute(context(Ti(run_id=RUN, try_number=2, max_tries=2))) is None
    assert f"Checkpoint 1 has completed epoch {RUN}: stage added has nothing to submit" in said.text
    assert not submitted


def test_a_completion_that_fails_does_not_fail_the_stage(
    job: Job, submitted: Submitted, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fault cannot be caused on local files: the store is away for that one moment."""

    def away(*_: object, **__: object) -> None:
        raise UnavailableError("the store did not answer")

    monkeypatch.setattr(Completion, "complete_if_last", away)
    assert run(job) is not None
    assert "The checkpoint is left to the task that waits for it: the store did not answer" in said.text


@pytest.mark.parametrize("lags", [True, False])
def test_a_stage_that_was_left_out_is_skipped_and_its_input_is_kept(
    job: Job, submitted: Submitted, said: Said, lags: bool
) -> None:
    """semantics B3: the checkpoint completes while the stage runs, or before it starts a driver."""
    stages = (StageSpec("clean"), StageSpec("routes", upstream=("clean",)))
    job.coordinator.trigger(TriggerRequest(epoch_name(RUN), Slice(), stages, CheckpointConfig(unaligned=True)))
    job.acknowledge(job.begin(RUN, "clean"))
    if not lags:
        job.coordinator.complete(1)
    with pytest.raises(AirflowSkipException, match=r"without stage routes\. Its input is kept") as skipped:
        stage(job, "lag").execute(context(Ti(run_id=RUN)))
    assert bool(submitted) is lags
    assert f"Skipped: {skipped.value}" in said.text
    assert job.coordinator.head().completed[0].left_out == ("routes",)


def test_nothing_was_triggered(job: Job, submitted: Submitted) -> None:
    with DAG("flights", schedule=None):
        task = stage(job)
    with pytest.raises(AirflowFailException, match="Clear Task Instance at the task that triggers the checkpoint"):
        task.execute(context(Ti(run_id=RUN)))
    assert not submitted


@pytest.mark.parametrize(
    ("do", "text"),
    [
        ("fail", "stage routes failed: spark-submit ended with status 3 and gave no reason"),
        ("raise", "stage routes failed: spark-submit ended with status 1: ValueError: the seventh row is bad"),
        ("die", "stage routes failed: spark-submit was killed by signal 9 and gave no reason. Signal 9: mostly"),
        ("decline", "stage routes failed: AnalysisException: no such column"),
        ("decline quietly", "stage routes declined: AnalysisException: no such column"),
        ("nothing", "ended without opening an epoch: add `with Epoch.current() as epoch:` around its work"),
    ],
)
def test_how_applications_fail(job: Job, submitted: Submitted, do: str, text: str) -> None:
    with pytest.raises(StageFailedError) as caught:
        run(job, do)
    assert text in str(caught.value)
    assert caught.value.fields == {"job": "flights", "checkpoint": 1, "attempt": 1}


@pytest.mark.parametrize(
    ("returncode", "report", "cause", "signal", "hint"),
    [
        (-9, "", "", 9, "no memory left; `dmesg` there, or `kubectl describe pod` (OOMKilled)"),
        (137, "", "", 9, "no memory left"),
        (143, "", "", 15, "a person who marked or cleared the task"),
        (-6, "", "", 6, "hs_err_pid*.log"),
        (139, "", "", 11, "hs_err_pid*.log"),
        (-10, "", "", 10, None),
        (0, "driver pod failed: exit_code=137 reason=OOMKilled", "", None, "Signal 9: mostly its machine or container"),
        (0, "driver pod failed: reason=OOMKilled", "", None, "Signal 9: mostly its machine or container"),
        (1, "Error code is: 1. Kubernetes spark exit code is: 137", "", None, "Signal 9: mostly"),
        (1, "Error code is: 1. Kubernetes spark exit code is: 143", "gone", None, "gone. Signal 15: it was"),
        (1, "Error code is: 1. Kubernetes spark exit code is: 1", "ERROR gone", None, None),
        (52, "Error code is: 52.", "", None, None),
    ],
)
def test_what_a_signal_mostly_means_is_said(
    job: Job, returncode: int, report: str, cause: str, signal: int | None, hint: str | None
) -> None:
    job.trigger(RUN)
    failed = str(StageRun(job.coordinator, job.begin(RUN)).failure(returncode, report, cause=cause))
    assert (f"was killed by signal {signal} and gave no reason" in failed) == (signal is not None)
    assert hint is None or hint in failed
    assert ("Signal " in failed) == (hint is not None)


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ("success", "a person marked its task as a success"),
        ("failed", "a person marked it or its run as failed, or its heartbeats did not arrive"),
        ("skipped", "the DAG run took longer than its dagrun_timeout"),
        (None, "a person cleared its task"),
        ("restarting", "a person cleared its task"),
        ("up_for_retry", "its heartbeats did not arrive"),
        ("running", "its machine or pod was shut down"),
        ("of a later Airflow", "its task is of a later Airflow"),
        (ConnectionError("no answer"), "and does not say why: no answer"),
        ({}, "its run was deleted"),
    ],
)
@pytest.mark.parametrize("index", [-1, 1])
def test_the_history_says_who_ended_a_try(job: Job, submitted: Submitted, state: Any, said: str, index: int) -> None:
    """And not that a signal did, by which Airflow ends what a person has marked or cleared."""

    class Asked(Ti):
        def get_task_states(self, dag_id: str, task_ids: list[str], run_ids: list[str]) -> dict[str, Any]:
            if isinstance(state, Exception):
                raise state
            name = self.task_id if index < 0 else f"{self.task_id}_{index}"
            return {} if state == {} else {run_ids[0]: {name: state}}

    uid = "routes" if index < 0 else f"routes-{index}"
    job.trigger(RUN, uid)
    operator, ti = stage(job, "die"), Asked(run_id=RUN, map_index=index)
    operator.on_kill()
    with pytest.raises(StageFailedError, match="Airflow told it to end") as caught:
        operator.execute(context(ti))
    restore_latest_checkpoint(context(ti, task=operator, exception=caught.value))
    ended = job.coordinator.head().history[-1]
    assert said in ended.detail
    assert ended.detail.startswith(f"{uid}: Airflow told it to end")
    assert "signal" not in ended.detail


def test_the_log_of_a_failure_ends_with_its_cause(
    job: Job, submitted: Submitted, caplog: pytest.LogCaptureFixture
) -> None:
    """The cause is in a line of Cairn's, and the error does not repeat Spark's log."""
    caplog.set_level("INFO")
    with pytest.raises(StageFailedError) as caught:
        run(job, "raise")
    said = [(each.name, each.levelname, each.getMessage()) for each in caplog.records]
    title = f"Checkpoint 1 · epoch {RUN} · attempt 1 · stage routes"
    cause = "spark-submit ended with status 1: ValueError: the seventh row is bad"
    assert said[-1] == ("airflow_cairn", "ERROR", f"{title}: failed: {cause}")
    assert [each for each in said if each[0] == "spark"] == [
        ("spark", "INFO", "::group::Trace"),
        ("spark", "INFO", "Traceback (most recent call last):"),
        ("spark", "INFO", '  File "app.py", line 1'),
        ("spark", "INFO", "::endgroup::"),
        ("spark", "ERROR", "ValueError: the seventh row is bad"),
    ]
    assert "Last spark-submit output" not in str(caught.value.__cause__)


@pytest.mark.parametrize(
    ("do", "text"),
    [
        ("decline for good", "AnalysisException: no such column"),
        (
            "miss it",
            (
                f"the application routes.py does not exist on this worker: it was looked for in {Path.cwd()}, where "
                "this process was started. Give the whole path"
            ),
        ),
    ],
)
def test_what_no_retry_cures_fails_at_once(job: Job, submitted: Submitted, do: str, text: str) -> None:  # semantics F4
    job.trigger(RUN)
    told = context(Ti(run_id=RUN))
    operator = stage(job, do)
    with pytest.raises(AirflowFailException) as caught:
        operator.execute(told)
    assert f"stage routes failed: {text}" in str(caught.value)
    restore_latest_checkpoint(told | {"task": operator, "exception": caught.value})
    head = job.coordinator.head()
    assert head.pending == ()
    assert head.history[-1].detail == f"no retry cures this: routes: {text}"
    with pytest.raises(AirflowFailException, match="no retry cures this"):
        operator.execute(context(Ti(run_id=RUN)))


LOOKED_FOR = (
    "was looked for in {dags}, beside the DAG file, and in {here}, where this process was started. Put it beside the "
    "DAG file, or give the whole path"
)


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """The folder of the DAG file, and another one in which the worker was started."""
    found = {"dags": tmp_path / "bundle" / "dags", "here": tmp_path / "worker"}
    for folder in found.values():
        folder.mkdir(parents=True)
    monkeypatch.chdir(found["here"])
    return found


def parsed(job: Job, dags: Path, **options: Any) -> SparkEpochOperator:
    """Give the task of a DAG file as Airflow reads it; a helper elsewhere makes the DAG."""
    helpers = dags.parent / "helpers"
    helpers.mkdir(exist_ok=True)
    (helpers / "made_by_helper.py").write_text("from airflow.sdk import DAG\ndef made():\n    return DAG('flights')\n")
    given = {"task_id": "routes", "storage": job.storage, "job": job.name, **options}
    (dags / "flights.py").write_text(
        f"import sys; sys.path.insert(0, {str(helpers)!r})\nfrom made_by_helper import made\n"
        "from airflow_cairn.operators import SparkEpochOperator\n"
        f"with made() as dag:\n    SparkEpochOperator(**{given!r})\n"
    )
    bag = DagBag(dag_folder=str(dags / "flights.py"))
    assert bag.import_errors == {}
    return expect(SparkEpochOperator, bag.dags["flights"].get_task("routes"))


@pytest.mark.parametrize(
    ("there", "option", "given", "submitted_as"),
    [
        (["dags/clean.py"], "application", "clean.py", "{dags}/clean.py"),
        (["dags/apps/clean.py"], "application", "apps/clean.py", "{dags}/apps/clean.py"),
        (["dags/../apps/clean.py"], "application", "../apps/clean.py", "{dags}/../apps/clean.py"),
        (["here/clean.py"], "application", "clean.py", "clean.py"),
        (["dags/clean.py", "here/clean.py"], "application", "clean.py", "{dags}/clean.py"),
        (["dags/clean.py"], "application", "{here}/clean.py", "{here}/clean.py"),
        (["dags/clean.py"], "application", "s3a://code/clean.py", "s3a://code/clean.py"),
        (["dags/clean.py"], "application", "local:///opt/clean.py", "local:///opt/clean.py"),
        (["dags/one.py"], "py_files", "one.py, two.zip,hdfs:///three.zip", "{dags}/one.py,two.zip,hdfs:///three.zip"),
        (["dags/jars/a.jar"], "jars", "jars/*.jar", "{dags}/jars/*.jar"),
        (["dags/airports.csv"], "files", "airports.csv#ports,s3a://b/x", "{dags}/airports.csv#ports,s3a://b/x"),
        (["dags/env.zip"], "archives", "env.zip#env", "{dags}/env.zip#env"),
        (["dags/spark.conf"], "properties_file", "spark.conf", "{dags}/spark.conf"),
    ],
)
def test_a_relative_path_is_one_beside_the_dag_file(
    job: Job,
    submitted: Submitted,
    places: dict[str, Path],
    there: list[str],
    option: str,
    given: str,
    submitted_as: str,
) -> None:
    for name in there:
        root, _, path = name.partition("/")
        (places[root] / path).parent.mkdir(parents=True, exist_ok=True)
        (places[root] / path).touch()
    job.trigger(RUN)
    text = {name: str(folder) for name, folder in places.items()}
    options = {"application": "/opt/app.py", option: given.format(**text), "conf": {"spark.test.do": "acknowledge"}}
    parsed(job, places["dags"], **options).execute(context(Ti(run_id=RUN)))
    argv = submitted["argv"]
    found = argv[-1] if option == "application" else argv[argv.index(f"--{option.replace('_', '-')}") + 1]
    # Cairn's own archive comes after the author's files.
    assert (found.rpartition(",")[0] if option == "py_files" else found) == submitted_as.format(**text)


@pytest.mark.parametrize(
    ("there", "said_of_it"),
    [
        (["here"], "clean.py is not beside the DAG file: the one in {here} is taken"),
        (["here", "dags"], "clean.py is in {here} too: the one beside the DAG file is taken, {dags}/clean.py"),
    ],
)
def test_what_lies_in_the_workers_folder_is_told(
    job: Job, submitted: Submitted, places: dict[str, Path], said: Said, there: list[str], said_of_it: str
) -> None:
    job.trigger(RUN)
    for name in there:
        (places[name] / "clean.py").touch()
    conf = {"spark.test.do": "acknowledge"}
    parsed(job, places["dags"], application="clean.py", conf=conf).execute(context(Ti(run_id=RUN)))
    assert said_of_it.format(**places) in said.text


@pytest.mark.parametrize(
    ("option", "given", "missing"),
    [
        ("application", "clean.py", "clean.py"),
        ("application", "{{ params.name }}.py", None),
        ("application", "/opt/of/workers/clean.py", None),
        ("application", "s3a://code/clean.py", None),
        ("application", "jobs.daily.clean", None),
        ("files", "config.json", "config.json"),
        ("py_files", "there.py,one.py,two.zip", "one.py, two.zip"),
    ],
)
def test_what_is_missing_is_said_where_the_dag_is_parsed(
    job: Job, places: dict[str, Path], said: Said, option: str, given: str, missing: str | None
) -> None:
    (places["dags"] / "there.py").touch()
    parsed(job, places["dags"], **{"application": "/opt/app.py", option: given})
    warned = f"routes: {option} {missing} {LOOKED_FOR.format(**places)}" if missing else None
    assert said.text.count("was looked for") == (1 if warned else 0)
    assert (warned or "") in said.text


def test_an_application_that_is_nowhere_is_said_with_its_places(
    job: Job, submitted: Submitted, places: dict[str, Path]
) -> None:  # semantics F4
    job.trigger(RUN)
    operator = parsed(job, places["dags"], application="clean.py", conf={"spark.test.do": "miss it"})
    with pytest.raises(AirflowFailException) as caught:
        operator.execute(context(Ti(run_id=RUN)))
    text = f"the application clean.py does not exist on this worker: it {LOOKED_FOR.format(**places)}"
    assert f"stage routes failed: {text}" in str(caught.value)


def test_an_application_that_is_there_may_end_with_any_status(job: Job, submitted: Submitted, tmp_path: Path) -> None:
    (tmp_path / "there.py").touch()  # semantics F4
    with pytest.raises(StageFailedError, match="status 2 and gave no reason") as caught:
        run(job, "miss it", application=str(tmp_path / "there.py"))
    assert type(caught.value) is StageFailedError


def test_a_stage_that_was_replaced_while_it_ran(job: Job, submitted: Submitted) -> None:  # semantics A2, F3
    with pytest.raises(FencedError, match="replaced while it ran; what it wrote is discarded"):
        run(job, "be replaced")


def beside_airports(of: Job) -> None:
    """Trigger the run's checkpoint, and begin another stage of the stage's region."""
    both = ("routes", "airports")
    of.trigger(RUN, *both, StageSpec("report", both, pipelined=both))
    of.begin(RUN, "airports", "airports-1")


def test_a_stage_that_was_replaced_while_it_claimed(
    job: Job, submitted: Submitted, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:  # semantics W4, F5
    """No process has seen the claim, so none clears the task: the same try begins anew, and no retry is used up."""
    beside_airports(job)

    def fail_the_other() -> None:
        job.coordinator.fail(epoch_name(RUN), "airports", "airports-1", "boom")

    store = InterleavingStore(open_store(job.storage), "create", 0, fail_the_other, suffix=".json")
    monkeypatch.setattr(CheckpointStorageHook, "open_store", lambda *_, **__: store)
    ti = Ti(run_id=RUN)
    with pytest.raises(AirflowRescheduleException):
        stage(job).execute(context(ti))
    assert submitted["conf"]["spark.cairn.handover"].startswith("chk-0000000001/"), "in vain"
    assert "Checkpoint 1 was replaced while this stage claimed its work, and this stage begins anew" in said.text
    again = known(stage(job).execute(context(ti, task_reschedule_count=1)))
    assert (again["checkpoint"], again["attempt"]) == (2, 2)


@pytest.mark.parametrize("mode", ["client", "cluster"])
def test_a_stage_that_was_replaced_after_it_had_acknowledged(
    job: Job, submitted: Submitted, connections: Define, mode: str
) -> None:  # semantics A2, F5
    """The end of the driver's own process says that the head has judged; who came later has the task cleared."""
    beside_airports(job)
    ti = Ti(run_id=RUN)
    begun = partial(stage(job, "acknowledge, then be replaced", **in_mode(connections, mode)).execute, context(ti))
    if mode == "cluster":
        with pytest.raises(FencedError, match="replaced while it ran"):
            begun()
    else:
        assert known(begun())["attempt"] == 1
    entry = known(job.coordinator.head().pending_of_epoch(epoch_name(RUN)))
    assert known(job.coordinator.pending_document(entry)).restarted["routes"] == str(ti.id)


def test_the_next_try_settles_what_the_first_left(job: Job, submitted: Submitted) -> None:  # semantics F5
    with pytest.raises(StageFailedError):
        run(job, "die")
    second = known(stage(job).execute(context(Ti(run_id=RUN, try_number=2))))
    assert (second["checkpoint"], second["attempt"]) == (2, 2)


def test_each_execution_keeps_its_driver_under_a_key_of_its_own(job: Job, submitted: Submitted) -> None:
    """A durable operator's stored driver id survives a clear: nobody may reconnect to another attempt's driver."""
    job.trigger(RUN)
    keys = set()
    for do in ("die", "acknowledge"):
        operator = stage(job, do)
        try:
            operator.execute(context(Ti(run_id=RUN)))
        except StageFailedError:
            assert do == "die"
        keys |= {operator.external_id_key, operator._K8S_DRIVER_STATUS_KEY}
    assert len(keys) == 4
    assert all(key.startswith(("spark_job_", "k8s_driver_status_")) for key in keys)


@pytest.fixture
def lake(connections: Define, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, str]]:
    """Lets a connection hold secrets while the store itself stays local; gives what has a stage use it."""
    from airflow_cairn.hooks.storage_connections import s3_options_of

    def define(**extra: str) -> dict[str, str]:
        secrets = {"conn_type": "aws", "login": f"login-{CANARY}", "password": f"key-{CANARY}", "extra": extra}
        connections("lake", json.dumps(secrets))
        options = property(lambda hook: s3_options_of(hook.get_connection("lake")))
        monkeypatch.setattr(CheckpointStorageHook, "is_s3", True)
        monkeypatch.setattr(CheckpointStorageHook, "options", options)
        return {"aws_conn_id": "lake"}

    return define


def test_credentials_go_by_the_environment_alone(
    job: Job, submitted: Submitted, said: Said, lake: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    secrets = lake(aws_session_token=f"token-{CANARY}", endpoint_url="http://127.0.0.1:1")
    monkeypatch.setenv("AWS_PROFILE", "the worker's own")
    job.trigger(RUN)
    operator = stage(job, **secrets, env_vars={"MINE": "kept"})
    result = operator.execute(context(Ti(run_id=RUN)))
    environ = submitted["environ"]
    names = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
    assert [environ[name] for name in names] == [f"{kind}-{CANARY}" for kind in ("login", "key", "token")]
    assert environ["MINE"] == "kept"
    assert "AWS_PROFILE" not in environ
    assert submitted["conf"]["spark.cairn.s3.endpoint"] == "http://127.0.0.1:1"
    fields = {name: getattr(operator, name) for name in operator.template_fields}
    for shown in (submitted["argv"], said.text, fields, result, repr(operator._extras)):
        assert CANARY not in str(shown)
    assert CANARY not in "".join(path.read_text() for path in job.folder.rglob("*.json"))
    assert "AWS_ACCESS_KEY_ID" not in os.environ


def test_a_foreign_session_token_is_not_mixed_in(
    job: Job, submitted: Submitted, lake: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SESSION_TOKEN", "of the worker")
    run(job, **lake())
    assert "AWS_SESSION_TOKEN" not in submitted["environ"]


def test_in_cluster_mode_nothing_is_passed(
    job: Job, submitted: Submitted, lake: Callable[..., Any], connections: Define
) -> None:
    run(job, **lake(), **in_mode(connections, "cluster"))
    # The test's own way to define a connection is the environment; nothing else of it may be there.
    environ = {name: value for name, value in submitted["environ"].items() if name != "AIRFLOW_CONN_LAKE"}
    assert CANARY not in str(environ)
    assert "AWS_SECRET_ACCESS_KEY" not in environ


@pytest.mark.parametrize(
    ("mode", "mine", "attempts"),
    [("cluster", {}, "1"), ("cluster", {"spark.yarn.maxAppAttempts": "3"}, "3"), ("client", {}, None)],
)
def test_yarn_starts_no_second_driver_by_itself(
    job: Job, submitted: Submitted, connections: Define, mode: str, mine: dict[str, str], attempts: str | None
) -> None:
    """semantics F4: a failure reaches the task, and with it the restart strategy; the author may decide otherwise."""
    run(job, **in_mode(connections, mode), conf=mine)
    assert submitted["conf"].get("spark.yarn.maxAppAttempts") == attempts


@pytest.mark.parametrize(("mode", "starts_from_it"), [("client", True), ("cluster", False)])
def test_a_driver_beside_its_task_starts_from_the_archive_of_classes(
    job: Job,
    submitted: Submitted,
    connections: Define,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    mode: str,
    starts_from_it: bool,
) -> None:
    """On a cluster's machines there is none, or another one."""
    (tmp_path / "jars").mkdir()
    (tmp_path / "cairn-classes.jsa").touch()
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    run(job, **in_mode(connections, mode))
    options = submitted["conf"].get("spark.driver.defaultJavaOptions", "")
    assert ("cairn-classes.jsa" in options) is starts_from_it


def test_what_became_of_an_application_on_the_cluster_is_told(job: Job) -> None:
    """In cluster mode spark-submit ends well whatever becomes of the driver: its status is no cause."""
    job.trigger(RUN)
    run = StageRun(job.coordinator, job.begin(RUN))
    error = run.failure(0, "YARN application application_1_0001 ended with state: FAILED\nDiagnostics: a long story")
    assert "failed: YARN application application_1_0001 ended with state: FAILED; the cluster's own log" in str(error)
    assert "a long story" not in str(error)


def test_its_checkpoint_completes_and_is_cleaned_before_the_task_looks(job: Job) -> None:  # semantics A2, C5
    """The last acknowledgement completes the checkpoint, and its marker goes with that: it has acknowledged."""
    checkpoint = job.trigger(RUN)
    run = StageRun(job.coordinator, job.begin(RUN))
    job.acknowledge(run.handover)
    job.coordinator.complete(checkpoint)
    job.coordinator.clean()
    assert not acks.has_acknowledged(run.coordinator.files, "routes", run.handover.execution), "else this test is void"
    run.check_acknowledged()


def test_another_execution_completed_the_checkpoint(job: Job) -> None:  # semantics A2, F3
    """The first execution was replaced while its application ran; no error says that it opened no epoch."""
    job.trigger(RUN)
    run = StageRun(job.coordinator, job.begin(RUN))
    job.coordinator.fail(epoch_name(RUN), "routes", "somebody", "killed")
    job.acknowledge(job.begin(RUN, claimant="another"))
    job.coordinator.complete(2)
    with pytest.raises(FencedError, match="this execution was replaced while it ran"):
        run.check_acknowledged()


def test_the_author_may_override_s3a_but_not_the_handover(
    job: Job, submitted: Submitted, lake: Callable[..., Any]
) -> None:
    run(job, **lake(endpoint_url="http://127.0.0.1:1"), conf={"spark.hadoop.fs.s3a.endpoint": "http://127.0.0.1:2"})
    assert submitted["conf"]["spark.hadoop.fs.s3a.endpoint"] == "http://127.0.0.1:2"
    assert submitted["conf"]["spark.cairn.s3.endpoint"] == "http://127.0.0.1:1"


def test_what_templates_rendered_to_is_checked_again(job: Job, submitted: Submitted) -> None:
    job.trigger(RUN)
    operator = stage(job)
    operator.conf = {"spark.mine": "AKIAIOSFODNN7EXAMPLE"}
    with pytest.raises(InvalidConfigError, match="an AWS access key id"):
        operator.execute(context(Ti(run_id=RUN)))
    operator.conf, operator.job = {}, "../other"
    with raises_code("invalid_name", match="this job name cannot be used"):
        operator.execute(context(Ti(run_id=RUN)))
    assert not submitted


def test_an_instance_of_a_mapped_task_is_a_stage(job: Job, submitted: Submitted, said: Said) -> None:
    job.trigger(RUN, "routes-0", "routes-1")
    result = known(stage(job).execute(context(Ti(run_id=RUN, map_index=1))))
    assert result["stage"] == "routes-1"
    assert submitted["conf"]["spark.cairn.handover"].startswith("chk-0000000001/handover/routes-1/")
    assert f"Checkpoint 1 · epoch {RUN} · attempt 1 · stage routes-1: acknowledged" in said.text


def test_killing_a_stage_that_has_submitted_nothing(job: Job) -> None:
    """SIGTERM may come while the connection is being fetched; there is nothing to end then."""
    stage(job).on_kill()


def test_the_way_from_a_stage_to_its_checkpoint(job: Job) -> None:
    with DAG("flights", schedule=None):
        operator = stage(job)
    link, _ = operator.operator_extra_links
    key: Any = Ti(run_id=RUN)
    address = link.get_link(operator, ti_key=key)
    assert address.endswith("/dags/flights/runs/manual__2001-01-01T00%3A00%3A00%2B00%3A00/plugin/run-checkpoints")
    (tab,) = [view for view in CairnPlugin.external_views if view["destination"] == "dag_run"]
    assert address.endswith(f"/plugin/{tab['url_route']}"), "what the plugin registers"


@pytest.mark.parametrize(
    ("uri", "options", "why"),
    [
        ("spark://yarn", {"use_krb5ccache": True}, "KRB5CCNAME environment variable required"),
        ("spark://m:7077?deploy-mode=cluster", {"env_vars": {"A": "b"}, "durable": False}, "env_vars is not supported"),
        ("k8s://https%3A%2F%2Fc:443?deploy-mode=cluster&namespace=a", {}, "install apache-airflow-providers-cncf-kub"),
        ("spark://yarn?spark-home=/opt/spark", {}, "`spark-home` extra is not allowed"),
        ("spark://yarn", {"application_args": ["a", "x" * 131_072]}, r"application_args\[1\] has 131,072 bytes"),
        ("spark://yarn", {"application_args": ["x" * 100_000] * 30}, r"together 3,\d+,\d+: Linux .* give its place"),
        ("spark://yarn", {"conf": {"spark.a": "x" * 140_000}}, "--conf spark.a has 140,008 bytes"),
        ("spark://yarn", {"env_vars": {"LONG": "x" * 140_000}}, "--conf spark.yarn.appMasterEnv.LONG has 140,0"),
    ],
)
def test_the_providers_reason_is_told_where_nothing_was_started(
    job: Job, monkeypatch: pytest.MonkeyPatch, uri: str, options: dict[str, Any], why: str
) -> None:
    """semantics D1, F4"""
    monkeypatch.delenv("KRB5CCNAME", raising=False)
    monkeypatch.setenv("AIRFLOW_CONN_CLUSTER", uri)
    # No retry follows, which would find the same.
    with pytest.raises(AirflowFailException, match=f"stage routes failed: spark-submit was not started: .*{why}"):
        run(job, conn_id="cluster", **options)


def test_a_worker_without_spark_submit_says_how_to_get_one(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """semantics F4: no retry follows, which would find none either."""
    monkeypatch.setenv("AIRFLOW_CONN_CLUSTER", "spark://yarn")
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(AirflowFailException, match=r"not started: .*'spark-submit'.* PATH, or .*extra spark-binary"):
        run(job, conn_id="cluster")
