"""A stage that an operator of a service starts: crash points between claim and acknowledgement, for each launcher.

The provider's operator and hook, the store and the domain are real; services are stand-ins of their APIs
(tests/support/service_stand_ins.py, dataproc_stand_in.py). Submissions are counted: one driver of an execution, and
none left alive.
"""

import json
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowFailException
from airflow.serialization.serialized_objects import DagSerialization

from airflow_cairn import CheckpointedTaskGroup
from airflow_cairn.checkpoint.documents.attempt import Handover, StageSpec
from airflow_cairn.checkpoint.documents.layout import epoch_name
from airflow_cairn.checkpoint.errors import InvalidConfigError
from airflow_cairn.checkpoint.health.findings import Examination
from airflow_cairn.checkpoint.health.store_reach import right_missing
from airflow_cairn.checkpoint.store import acks
from airflow_cairn.cli.main import main
from airflow_cairn.launchers.livy import LivyLauncher
from airflow_cairn.operators import CairnDoctorOperator, Output, Read, SliceStart, SparkEpochOperator, epoch_stage
from airflow_cairn.operators.stage import extras, launched, programs, trial
from airflow_cairn.operators.stage.outcome import StageFailedError
from airflow_cairn.storage import open_store
from airflow_cairn.storage.clock import system_time
from airflow_cairn.storage.errors import UnavailableError
from airflow_cairn.storage.port import ObjectStore
from airflow_cairn.tasks.reports.links import SparkLink
from tests.support.airflow_fixtures import Define, Said
from tests.support.airflow_stage import Job, Ti, context
from tests.support.api_stand_in import Asked
from tests.support.dataproc_stand_in import SERVICES
from tests.support.errors import raises_code
from tests.support.plain_program import write_to
from tests.support.service_stand_ins import (
    DONE,
    FAILED,
    RUNNING,
    DatabricksJobStandIn,
    ServiceStandIn,
    SparkKubernetesStandIn,
)
from tests.unit.operators.stage.test_durable_drivers import TaskState
from tests.unit.operators.stage.test_spark_epoch import Submitted, submitted

__all__ = ["submitted"]

RUN = "manual__2001-01-01T00:00:00+00:00"

pytestmark = [pytest.mark.large, pytest.mark.usefixtures("launcher_providers")]


ALL: dict[str, type[ServiceStandIn]] = {**SERVICES, "databricks_job": DatabricksJobStandIn}


class Killed(BaseException):
    """SIGKILL, seen from inside: nothing of the worker runs any more."""


def dies(*_: object, **_more: object) -> None:
    raise Killed


@pytest.fixture(params=list(SERVICES))
def service(
    request: pytest.FixtureRequest, job: Job, connections: Define, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ServiceStandIn]:
    """A service whose drivers acknowledge when they are looked at for the sixth time."""
    monkeypatch.setattr(launched, "LOOK_S", 0)

    def act(conf: dict[str, str], looks: int) -> str:
        return RUNNING if looks < 5 else acknowledge(job, conf)

    with ALL[request.param](act) as it:
        it.arrange(monkeypatch)
        connections(*it.connection())
        yield it


def on_some(first: int) -> pytest.MarkDecorator:
    """Have a test run on every third service, from this one on; on the others in `make soak`."""
    services = [
        pytest.param(name, marks=() if number % 3 == first else pytest.mark.soak)
        for number, name in enumerate(SERVICES)
    ]
    return pytest.mark.parametrize("service", services, indirect=True)


def in_turn(
    name: str, values: Sequence[object] = (False, True), services: Collection[str] = tuple(ALL), every: int = 1
) -> pytest.MarkDecorator:
    """Have a test run on each service, with an argument that has one value on the first, another on the next.

    With the others, and on what is between every third service, say, it runs in `make soak`.
    """
    cases = [
        pytest.param(
            service,
            value,
            marks=() if (at, number % every) == (number % len(values), 0) else pytest.mark.soak,
            id=f"{service}-{getattr(value, '__name__', value)}",
        )
        for number, service in enumerate(services)
        for at, value in enumerate(values)
    ]
    return pytest.mark.parametrize(("service", name), cases, indirect=["service"])


def acknowledge(job: Job, conf: dict[str, str]) -> str:
    """Driver that acknowledges and ends."""
    job.acknowledge(job.coordinator.files.read(Handover, conf["spark.cairn.handover"])[0])
    return DONE


def kind_of(service: ServiceStandIn) -> Any:
    module, _, name = service.operator.rpartition(".")
    return getattr(import_module(module), name)


def name_of(service: ServiceStandIn) -> str:
    return next(name for name, each in ALL.items() if type(service) is each)


def a_try(number: int = 1, run_id: str = RUN) -> Ti:
    return Ti(run_id=run_id, try_number=number, max_tries=3)


def stage(job: Job, service: ServiceStandIn, arguments: dict[str, Any] | None = None, **options: Any) -> Any:
    """Make the stage; some arguments of its operator are not the usual ones."""
    made = epoch_stage(kind_of(service), storage=job.storage, job=job.name, **options)
    return made(task_id="routes", retries=3, **service.arguments() | (arguments or {}))


def killed(task: Any, point: Callable[[pytest.MonkeyPatch], None], ti: Ti | None = None) -> None:
    """Run a task whose worker is killed at a point."""
    with pytest.MonkeyPatch.context() as patch:
        point(patch)
        with pytest.raises(Killed):
            task.execute(context(ti or a_try()))


def outlived(job: Job, service: ServiceStandIn, point: Callable[[pytest.MonkeyPatch], None]) -> None:
    """Run a first try whose worker is killed at a point."""
    job.trigger(RUN)
    killed(stage(job, service), point)


def execute(job: Job, service: ServiceStandIn, try_number: int = 1, **options: Any) -> dict[str, Any]:
    if try_number == 1:
        job.trigger(RUN)
    result: dict[str, Any] = stage(job, service, **options).execute(context(a_try(try_number)))
    return result


def test_a_stage_hands_over_and_waits(job: Job, service: ServiceStandIn) -> None:
    """The author's arguments stay, conf and zip are added, and the same zip serves the next epoch."""
    job.trigger(RUN)
    task, ti = stage(job, service), a_try()
    assert task.execute(context(ti))["attempt"] == 1
    assert ti.xcoms.get(SparkLink().xcom_key) == service.ui
    (driver,) = service.drivers
    conf = service.conf_of(driver)
    assert (conf["spark.author"], conf["spark.cairn.job"]) == ("{{ var }}", job.name)
    names = [each.key for each in open_store(job.storage).list(extras.FOLDER)]
    assert len(names) == 1
    assert service.zip_of(driver).endswith(names[0])
    assert set(kind_of(service).template_fields) <= set(type(task).template_fields)
    links = {type(each) for each in task.operator_extra_links}
    assert {type(each) for each in kind_of(service).operator_extra_links} <= links
    later = RUN.replace("2001", "2002")
    job.trigger(later)
    stage(job, service).execute(context(a_try(run_id=later)))
    assert [each.key for each in open_store(job.storage).list(extras.FOLDER)] == names


def before_submission(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(launched.LaunchedStage, "_submit", dies)


def before_the_id_is_known(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(launched.LaunchedStage, "_wait", dies)


def while_it_waits(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(launched, "system_sleep", dies)


def before_it_acknowledges(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(programs, "acknowledge", lambda *_args, **_more: dies())


@in_turn("point", (before_submission, before_the_id_is_known, while_it_waits), SERVICES)
def test_a_worker_is_killed(job: Job, service: ServiceStandIn, point: Callable[..., None]) -> None:
    """semantics F5: the next try finds the driver by its token alone; without one it opens the next attempt."""
    outlived(job, service, point)
    service.crowd()
    assert execute(job, service, 2)["attempt"] == (2 if point is before_submission else 1)
    assert service.submitted == 1


@on_some(0)
def test_the_answer_to_a_submission_is_lost(job: Job, service: ServiceStandIn) -> None:
    """The submission was accepted: nothing is decided, and the next try waits for it."""
    service.cuts = True
    with raises_code("driver_unknown"):
        execute(job, service)
    service.cuts = False
    assert execute(job, service, 2)["attempt"] == 1
    assert service.submitted == 1


@on_some(1)
def test_a_driver_fails(job: Job, service: ServiceStandIn) -> None:
    """semantics F2: the driver's cause is the stage's, and the next attempt has a driver of its own."""
    service.act = lambda _conf, _looks: FAILED
    with pytest.raises(StageFailedError, match=r"the day is broken(?!\\W)"):
        execute(job, service)
    service.act = lambda conf, _looks: acknowledge(job, conf)
    assert execute(job, service, 2)["attempt"] == 2
    tokens = [service.conf_of(driver)["spark.cairn.handover"] for driver in service.drivers]
    assert len(set(tokens)) == 2


@on_some(0)
@pytest.mark.parametrize("forgets", [False, True])
def test_the_service_does_not_answer_or_has_forgotten(job: Job, service: ServiceStandIn, forgets: bool) -> None:
    """Unknown is not gone; a driver that the service does not know is."""
    outlived(job, service, while_it_waits)
    if forgets:
        service.drivers.clear()
    else:
        service.down = True
        with raises_code("driver_unknown"):
            execute(job, service, 2)
        service.down = False
    assert execute(job, service, 3)["attempt"] == (2 if forgets else 1)


@on_some(2)
def test_a_driver_that_the_service_has_forgotten_is_gone(job: Job, service: ServiceStandIn) -> None:
    """A task that watches the driver says so; a retry that does not find it asks for no state."""
    outlived(job, service, while_it_waits)
    (driver,) = service.drivers
    service.drivers.clear()
    task = stage(job, service)
    task._prepare()
    assert not task._ready().state(driver).lives


@pytest.mark.parametrize("service", ["glue"], indirect=True)
def test_of_two_runs_of_one_execution_the_one_that_lives_is_waited_for(job: Job, service: ServiceStandIn) -> None:
    """The answer to the submission was lost, and the client has sent it again."""
    outlived(job, service, while_it_waits)
    (lives,) = service.drivers.values()
    service.drivers = {"older": replace(lives, state=FAILED), **service.drivers}
    assert execute(job, service, 2)["attempt"] == 1


@pytest.mark.parametrize("service", ["emr_steps"], indirect=True)
def test_a_name_that_is_too_long_keeps_the_token_at_its_end(
    job: Job, service: ServiceStandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = service.arguments()
    given["steps"][0]["Name"] = "routes " * 40
    monkeypatch.setattr(service, "arguments", lambda: given)
    outlived(job, service, while_it_waits)
    assert execute(job, service, 2)["attempt"] == 1


@on_some(1)
def test_a_service_that_stops_answering_while_a_task_watches(
    job: Job, service: ServiceStandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launched, "UNANSWERED", 2)

    def act(conf: dict[str, str], looks: int) -> str:
        service.down = looks == 1
        return RUNNING if looks <= 3 else acknowledge(job, conf)

    service.act = act
    with raises_code("driver_unknown"):
        execute(job, service)
    service.down = False
    assert execute(job, service, 2)["attempt"] == 1
    assert service.submitted == 1


@on_some(2)
def test_a_driver_ends_well_while_the_retry_asks(job: Job, service: ServiceStandIn) -> None:
    """semantics F5: the driver acknowledged after the try had looked for that, and before the service was asked."""
    outlived(job, service, while_it_waits)
    service.act = lambda conf, _looks: acknowledge(job, conf)
    assert stage(job, service).execute(context(a_try(2))) is None
    assert service.submitted == 1
    assert [entry.id for entry in job.coordinator.head().history] == [1]


@on_some(0)
def test_the_driver_of_an_attempt_that_is_over_is_ended(job: Job, service: ServiceStandIn) -> None:
    """semantics F3: never a reconnect to it, although it lives and is the task's own."""
    job.trigger(RUN)
    ti, kept = a_try(), TaskState()
    with pytest.MonkeyPatch.context() as patch:
        while_it_waits(patch)
        with pytest.raises(Killed):
            stage(job, service).execute(context(ti, task_state_store=kept))
    job.coordinator.fail(epoch_name(RUN), "routes", str(ti.id), "its region failed")
    # Airflow's task state outlives a clear, and leads to the driver of the attempt that is over.
    for key in ("glue_job_run_id", "livy_batch_id", "databricks_run_id"):
        kept.set(key, "1")
    assert stage(job, service).execute(context(a_try(2), task_state_store=kept))["attempt"] == 2
    assert service.killed == ["1"]
    assert service.submitted == 2


@in_turn("knows", (True, False), SERVICES)
def test_a_kill_ends_the_driver(job: Job, service: ServiceStandIn, knows: bool) -> None:
    """The task may be killed before it has heard the driver's id."""
    job.trigger(RUN)
    task = stage(job, service)
    killed(task, while_it_waits if knows else before_the_id_is_known)
    if not knows:
        task._driver = None
    task.on_kill()
    assert service.live == []
    assert len(service.killed) == 1


@pytest.mark.parametrize(("waited_s", "status", "ends"), [(500, 200, 0), (601, 200, 1), (601, 403, 0), (601, 404, 0)])
@pytest.mark.parametrize("service", ["spark_kubernetes"], indirect=True)
def test_an_application_whose_image_does_not_come(
    job: Job, service: SparkKubernetesStandIn, said: Said, waited_s: int, status: int, ends: int
) -> None:
    """The driver may still start for ten minutes, or the look may fail; then it is deleted, and the try fails."""

    def act(conf: dict[str, str], looks: int) -> str:
        if looks < 2:
            return RUNNING
        service.pod = None
        return acknowledge(job, conf)

    service.act = act
    service.waits_for_an_image(waited_s, status)
    with pytest.raises(StageFailedError, match="ImagePullBackOff: no such image") if ends else nullcontext():
        execute(job, service)
    assert (service.submitted, len(service.killed)) == (1, ends)
    assert "no answer about its state" not in said.text


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("service", ["spark_kubernetes"], indirect=True)
def test_a_resource_is_deleted_after_its_end_as_the_operator_does(
    job: Job, service: ServiceStandIn, fails: bool
) -> None:
    job.trigger(RUN)
    service.act = lambda conf, _looks: FAILED if fails else acknowledge(job, conf)
    task = stage(job, service, {"delete_on_termination": True})
    with pytest.raises(StageFailedError) if fails else nullcontext():
        task.execute(context(a_try()))
    assert (service.submitted, service.drivers) == (1, {})


@on_some(1)
def test_a_kill_leaves_a_driver_that_another_try_waits_for(job: Job, service: ServiceStandIn, said: Said) -> None:
    job.trigger(RUN)
    zombie, later = stage(job, service), stage(job, service)
    service.act = lambda _conf, _looks: RUNNING
    for number, task in ((1, zombie), (2, later)):
        killed(task, while_it_waits, a_try(number))
    zombie.on_kill()
    assert len(service.live) == 1
    assert "another try of this task waits for its driver" in said.text
    later.on_kill()
    assert service.live == []


def step(*words: Any, jar: str = "command-runner.jar") -> dict[str, Any]:
    return {"Name": "routes", "HadoopJarStep": {"Jar": jar, "Args": list(words)}}


def python_app(**spec: Any) -> dict[str, Any]:
    return {"template_spec": {"spec": {"type": "Python", **spec}}}


def pyspark_job(**more: Any) -> dict[str, Any]:
    return {"job": {"pyspark_job": {}, **more}}


OURS = {"spark.cairn.job": "x"}


def on_emr(kind: str) -> dict[str, Any]:
    submit = {"entryPoint": "s3://lake/x.jar", "entryPointArguments": WORDS, "sparkSubmitParameters": "--class Main"}
    return {"job_driver": {kind: submit}}


WORDS = ["--out", Output("clean")]
PLACED: dict[str, dict[str, Any]] = {
    "livy": {"file": "s3://lake/x.jar", "class_name": "Main", "args": ["--out=" + Output("clean")], "py_files": None},
    "emr_serverless": on_emr("sparkSubmit"),
    "emr_container": on_emr("sparkSubmitJobDriver"),
    "emr_steps": {"steps": [step("spark-submit", "--class", "Main", "s3://lake/x.jar", *WORDS)]},
    "glue": {"script_args": {"--out": Output("clean")}},
    "databricks": {
        **dict.fromkeys(("spark_python_task", "libraries")),
        "json": {"notebook_task": {"notebook_path": "/routes", "base_parameters": {"out": Output("clean")}}},
    },
    "databricks_job": {"python_params": WORDS},
    "spark_kubernetes": {
        "template_spec": {
            "apiVersion": "sparkoperator.k8s.io/v1beta2",
            "kind": "SparkApplication",
            "metadata": {},
            "spec": {"type": "Scala", "arguments": WORDS, "driver": {}, "executor": {}},
        },
        "delete_on_termination": True,
    },
    "dataproc_job": {"job": {"spark_job": {"main_class": "Main", "args": WORDS}}},
    "dataproc_batch": {"batch": {"spark_sql_batch": {"query_variables": {"out": Output("clean")}}}},
}
"""Programs that know nothing of Cairn, most of them no Python, as each operator is given them."""


class TriedJob:
    """Driver of a trial: acknowledges in the job that its conf names."""

    def __init__(self, job: Job) -> None:
        self.folder = job.folder

    def __call__(self, conf: dict[str, str], looks: int) -> str:
        return RUNNING if looks < 6 else acknowledge(Job(self.folder, conf["spark.cairn.job"]), conf)


AGAIN = {
    "livy": "another driver, 2: it is ended",
    "emr_steps": "another",
    "glue": "another",
    "spark_kubernetes": "refused",
}


@on_some(2)
def test_a_launcher_is_tried(job: Job, service: ServiceStandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    """A trial runs the stage of a DAG; its submissions and objects are gone in the end, but for Cairn's own code."""
    monkeypatch.setattr(trial, "LOOK_S", 0.01)
    monkeypatch.setattr(trial, "LONGEST_S", 1)
    monkeypatch.setattr(trial, "LISTED_S", 0.1)
    service.act = TriedJob(job)
    with DAG("tried"):
        task = stage(job, service)
    seen = {each.what: each for each in trial.Trial(task).looks()}
    assert seen["the same token again"].found.startswith(AGAIN.get(name_of(service), "the same driver"))
    assert seen["found by the token"].fine
    assert seen["conf, code and the storage reach the driver"].found == "it acknowledged"
    assert seen["ended well, by its state"].found == "yes"
    assert " s), " in seen["states"].found
    assert seen["cancelled"].found.endswith(" s)")
    assert service.live == []
    assert {each.key.partition("/")[0] for each in open_store(job.storage).list("")} == {"_cairn"}


@pytest.mark.parametrize("service", ["livy"], indirect=True)
def test_a_trial_of_what_does_not_work(
    job: Job,
    service: ServiceStandIn,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each look is printed as it comes, and whatever happens no driver is left."""
    service.act = lambda _conf, _looks: DONE
    file = tmp_path / "tried.py"
    file.write_text(
        "from airflow.sdk import DAG\n"
        "from airflow.providers.apache.livy.operators.livy import LivyOperator\n"
        "from airflow_cairn.operators import epoch_stage\n"
        f"with DAG('tried'):\n    epoch_stage(LivyOperator, storage='{job.storage}')("
        "task_id='routes', file='{{ ds }}.py')\n"
    )
    assert main(["try-launcher", str(file), "tried", "routes"]) == 1
    out = capsys.readouterr().out
    assert re.search(r"^! conf, code and the storage reach the driver +no: it has not acknowledged", out, re.MULTILINE)
    assert service.drivers["1"].body["file"] == "2001-01-01.py"
    with monkeypatch.context() as patch:
        patch.setattr(acks, "why_declined", dies)  # as Ctrl-C would, once the driver is submitted
        with pytest.raises(Killed):
            main(["try-launcher", str(file), "tried", "routes"])
        assert re.search(r"^found by the token", capsys.readouterr().out, re.MULTILINE)
        service.act = lambda _conf, _looks: RUNNING
        patch.setattr(trial, "LONGEST_S", 0.05)
        patch.setattr(trial, "LOOK_S", 0.01)
        with pytest.raises(Killed):
            main(["try-launcher", str(file), "tried", "routes"])
    with monkeypatch.context() as patch:
        start = LivyLauncher.start

        def unheard(launcher: LivyLauncher, context: Any) -> str:
            start(launcher, context)
            raise TimeoutError("no answer")

        patch.setattr(LivyLauncher, "start", unheard)
        assert main(["try-launcher", str(file), "tried", "routes"]) == 1
    assert service.live == []
    assert main(["try-launcher", str(file), "tried", "rotes"]) == 2
    assert "the DAG has no such task; did you mean 'routes'?" in capsys.readouterr().err
    service.down = True
    assert main(["try-launcher", str(file), "tried", "routes"]) == 1
    assert re.search(r"^! the service refused what comes next +.*500", capsys.readouterr().out, re.MULTILINE)
    assert {each.key.partition("/")[0] for each in open_store(job.storage).list("")} == {"_cairn"}


def is_away(_store: ObjectStore) -> str:
    raise UnavailableError("the store is away")


FACTS: dict[str, Any] = {
    "spark": "4.2.0",
    "pyspark": "4.2.0",
    "java": "17.0.12",
    "python": "3.12.3",
    "hosts": ["node-1"],
    "executor_spark": ["4.2.0"],
    "executor_java": ["17.0.12"],
    "executor_python": ["3.12.3"],
    "failed": {},
}
REFUSED = Examination([right_missing(open_store("s3://lake"), "s3:PutObject", "AccessDenied")], ["storage", "clock"])


@in_turn("block", every=3)
def test_the_doctor_asks_a_cluster_as_a_stage_starts(
    job: Job, service: ServiceStandIn, monkeypatch: pytest.MonkeyPatch, block: bool
) -> None:
    """The author's operator, place and conf with Cairn's program; its answer, or why there is none; nothing is left."""
    name = name_of(service)
    if block and name == "databricks_job":
        return  # refused at parse
    monkeypatch.setattr(service, "conf_of", lambda _driver: {})
    monkeypatch.setattr(trial, "LOOK_S", 0.01)
    options = {} if block else PLACED[name]
    if name == "databricks" and not block:
        options = options | {"json": options["json"] | {"existing_cluster_id": "it"}}
    with DAG("asked") as dag:
        stage(job, service, options)
        asks: dict[str, Any] = {"airflow_api_conn_id": None, "cluster": True, "stage": "routes", "fail_on": "never"}
        doctor = CairnDoctorOperator(task_id="doctor", storage=job.storage, **asks)
    answers = [json.dumps(FACTS | {"storage": REFUSED.as_json()}), DONE]

    def act(_conf: dict[str, str], _looks: int) -> str:
        body = json.dumps(list(service.drivers.values())[-1].body)
        assert re.search(r"/_cairn/runtime/cluster_probe-\w+\.py", body), body
        assert not re.search(r"routes\.py|x\.jar|#0>|notebook_task", body), body
        folder = re.search(r'"--report"[,:] "file://([^"]+)"', body)
        assert folder is not None, body
        if answers[0]:
            Path(folder[1]).mkdir()
            Path(folder[1], "part-0").write_text(answers[0])
        return answers[1]

    def found() -> tuple[list[str], dict[str, str]]:
        said = doctor.execute(context(a_try()) | {"var": "x", "ds": "2001-01-01"})
        return (
            [each["what"] for each in said["findings"] if each["subject"] in ("routes", "s3:PutObject")],
            {each["check"]: each["reason"] for each in said["skipped"]},
        )

    assert doctor.dag is dag
    service.act = act
    findings, skipped = found()
    if name == "databricks_job":
        assert "a job of Databricks runs its own program" in skipped["the cluster"]
        return
    assert "the cluster" not in skipped
    assert findings == (["as the driver of routes sees it: AccessDenied"] if block else [])
    monkeypatch.setattr(trial, "ANSWER_S", 0.05)
    monkeypatch.setattr(trial, "LISTED_S", 0.1)
    for state, why in ((FAILED, "without an answer: "), (RUNNING, "no answer within 0 s")):
        answers[:] = "", state
        ((what,), _) = found()
        assert why in what
    assert service.live == []
    assert service.submitted == 3
    monkeypatch.setattr(trial, "stored_probe", is_away)
    assert found()[0] == ["the cluster did not run a small application: the store is away"]
    assert {each.key.partition("/")[0] for each in open_store(job.storage).list("")} == {"_cairn"}


FORGET = {"emr_serverless", "emr_container", "emr_steps", "databricks"}
"""Services that are asked for living drivers alone."""


@in_turn("ended")
def test_a_program_without_a_block(
    job: Job, service: ServiceStandIn, monkeypatch: pytest.MonkeyPatch, ended: bool
) -> None:
    """decision 0058: a program gets addresses and no code of Cairn; its output is checked; its retry waits for it.

    If the worker dies once it has `ended`, the retry acknowledges, or runs it again where the service shows no ended
    drivers.
    """
    monkeypatch.setattr(service, "conf_of", lambda _driver: {})
    bodies: list[str] = []

    def act(_conf: dict[str, str], looks: int) -> str:
        bodies.append(json.dumps(list(service.drivers.values())[-1].body))
        if looks >= 5 and service.submitted > 1:
            write()
        return RUNNING if looks < 5 else DONE

    def write() -> None:
        (url,) = set(re.findall(r'file://[^"\\]*/exchange\.clean', bodies[-1]))
        write_to(url, [{"key": "a", "n": 1}])

    def run() -> Any:
        return stage(job, service, PLACED[name])

    name = name_of(service)
    service.act = act
    job.trigger(RUN)
    with pytest.raises(StageFailedError, match="was not written, although the program ended"):
        run().execute(context(a_try()))
    killed(run(), before_it_acknowledges if ended else while_it_waits, a_try(2))
    again = ended and name in FORGET
    assert run().execute(context(a_try(3)))["attempt"] == (3 if again else 2)
    assert service.submitted == (3 if again else 2)
    assert "airflow_cairn-" not in bodies[-1]
    assert "#0>" not in bodies[-1]
    if name == "databricks_job":  # its history may be long
        assert any("active_only=true" in each.path for each in service.asked)
    assert [entry.id for entry in job.coordinator.head().completed] == [3 if again else 2]


@pytest.mark.parametrize(
    ("tasks", "said"),
    [
        ([{}, {}], "the job does not have exactly one task"),
        ([{"max_retries": 2}], "max_retries has Databricks start a failed driver again"),
        ([{"environment_key": "it"}], "disable_auto_optimization of the job's task has to be true"),
    ],
)
@pytest.mark.parametrize("service", ["databricks_job"], indirect=True)
def test_a_job_of_databricks_that_is_no_stage(
    job: Job, service: ServiceStandIn, monkeypatch: pytest.MonkeyPatch, tasks: list[dict[str, Any]], said: str
) -> None:
    answer, described = service.answer, (200, {"settings": {"name": "routes", "tasks": tasks}})

    def answers(asked: Asked, path: str, query: Any) -> Any:
        return described if path.endswith("jobs/get") else answer(asked, path, query)

    monkeypatch.setattr(service, "answer", answers)
    job.trigger(RUN)
    with pytest.raises(AirflowFailException, match=said):
        stage(job, service, PLACED["databricks_job"]).execute(context(a_try()))


def test_one_job_on_several_launchers(
    job: Job, submitted: Submitted, connections: Define, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A jar, a batch of Livy, a SparkApplication and a SQL file; a driver fails, and its stage alone runs again."""
    monkeypatch.setattr(launched, "LOOK_S", 0)
    upstream = {"raw": (), "clean": ("raw",), "routes": ("clean",), "totals": ("raw",)}
    checkpoint = job.trigger(RUN, *(StageSpec(uid, reads) for uid, reads in upstream.items()))
    where: dict[str, Any] = {"storage": job.storage, "job": job.name, "retries": 3, "conf": {"spark.test.do": "write"}}

    def submit(uid: str, *words: Any) -> None:
        SparkEpochOperator(
            task_id=uid, application="x.jar", java_class="Main", application_args=[*words, Output()], **where
        ).execute(context(Ti(run_id=RUN, task_id=uid)))

    def launch(uid: str, service: ServiceStandIn, *outcomes: str) -> list[int]:
        ends = iter(outcomes)
        service.act = lambda conf, _looks: acknowledge(job, conf) if next(ends) == DONE else FAILED
        connections(*service.connection())
        attempts = []
        for number in range(1, len(outcomes) + 1):
            made: Any = epoch_stage(kind_of(service), storage=job.storage, job=job.name)
            task = made(task_id=uid, retries=3, **service.arguments())
            try:
                done = task.execute(context(Ti(run_id=RUN, task_id=uid, try_number=number, max_tries=3)))
            except StageFailedError:
                continue
            attempts.append(done["attempt"])
        return attempts

    with SERVICES["livy"]() as livy, SERVICES["spark_kubernetes"]() as kubernetes:
        submit("raw")
        raw = submitted["argv"]
        assert launch("clean", livy, FAILED, DONE) == [2]
        assert launch("routes", kubernetes, DONE) == [2]
        assert submitted["argv"] == raw, "what was acknowledged is kept"
        submit("totals", "-f", "totals.sql", "--in", Read("raw"))
    assert (livy.submitted, kubernetes.submitted) == (2, 1)
    assert [entry.id for entry in job.coordinator.head().completed] == [checkpoint + 1]


def test_a_zip_that_is_used_is_renewed_and_one_that_is_not_is_deleted(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(job.storage)
    old = f"{extras.FOLDER}airflow_cairn-0.0.1-abc.zip"
    store.create(old, b"old")
    day = 24 * 3600.0
    now = system_time()
    monkeypatch.setattr(extras, "system_time", lambda: now + 31 * day)
    ours = extras.stored_runtime(store)
    (kept,) = store.list(extras.FOLDER)
    assert ours.endswith(kept.key)
    assert extras.stored_runtime(store) == ours
    (renewed,) = store.list(extras.FOLDER)
    assert (renewed.modified_ms or 0) > (kept.modified_ms or 0)
    assert renewed.size_bytes == kept.size_bytes


def test_a_zip_that_was_changed_is_replaced_before_a_driver_runs(job: Job, said: Said) -> None:
    store = open_store(job.storage)
    extras.stored_runtime(store)
    ((key, own),) = [(each.key, store.get(each.key)) for each in store.list(extras.FOLDER)]
    store.replace(key, b"print('mine')", expected_etag=own.etag)
    extras.stored_runtime(store)
    assert store.get(key).data == own.data
    assert "was not what its name says" in said.text


@pytest.mark.parametrize(
    ("options", "arguments", "match"),
    [
        ({}, {"name": "mine"}, "name is set by Cairn"),
        ({}, {"conf": {"spark.cairn.job": "x"}}, "is set by Cairn itself"),
        ({}, {"conf": {"spark.my.password": "hunter2"}}, "holds a secret"),
        ({}, {"args": ["--password", "hunter2"]}, "password holds a secret"),
        ({"reads": "clean"}, {}, "list of stages' uids"),
        ({}, {"conf": {"spark.x": "a/" + Output("clean")}}, "not an argument of the application.*LivyOperator takes"),
        ({}, {"args": [Output("a"), Output("a")]}, "the same output, exchange a"),
        ({"parallelism": 2}, {"args": [Output("a")]}, "parallelism needs an Epoch block"),
    ],
)
def test_a_bad_option_is_refused_at_parse(
    job: Job, options: dict[str, Any], arguments: dict[str, Any], match: str
) -> None:
    with pytest.raises(InvalidConfigError, match=match):
        stage(job, SERVICES["livy"](), arguments, **options)


@pytest.mark.parametrize(
    ("name", "arguments", "match"),
    [
        ("emr_serverless", {"job_driver": {"hive": {"query": "SELECT 1"}}}, "no sparkSubmit"),
        ("emr_serverless", {"config": {"clientToken": "mine"}}, "clientToken is set by Cairn"),
        ("emr_serverless", {"config": {"retryPolicy": {"maxAttempts": 3}}}, "start a failed driver again by itself"),
        ("emr_serverless", {"config": "{}"}, "config is a str"),
        ("emr_container", {"configuration_overrides": "{}"}, "configuration_overrides is a str"),
        ("emr_container", {"job_driver": {"sparkSqlJobDriver": {}}}, "no sparkSubmitJobDriver"),
        ("emr_container", {"client_request_token": "mine"}, "client_request_token is set by Cairn"),
        ("emr_container", {"job_retry_max_attempts": 2}, "start a failed driver again by itself"),
        ("emr_steps", {"steps": [step("hive-script")]}, "not one spark-submit"),
        ("emr_steps", {"steps": [step("spark-submit", "x.py", jar="s3://lake/own.jar")]}, "not one spark-submit"),
        ("emr_steps", {"steps": [step("spark-submit", "x.py")] * 2}, "not one spark-submit"),
        ("emr_steps", {"steps": [step("spark-submit", "--conf", "spark.cairn.job=x", "x.py")]}, "is set by Cairn"),
        ("emr_steps", {"steps": [step("spark-submit", "x.py", "--password", "hunter2")]}, "password holds a secret"),
        ("databricks", {"idempotency_token": "mine"}, "idempotency_token is set by Cairn"),
        ("databricks", {"spark_python_task": None}, "no spark_python_task"),
        ("databricks", {"tasks": [{}, {}]}, "not have exactly one task"),
        ("databricks", {"json": {"max_retries": 1}}, "max_retries has Databricks start a failed driver again"),
        ("databricks_job", {}, "a run of a job takes no Spark conf.*python_params="),
        ("databricks_job", {"python_params": [SliceStart()]}, "this one gets none: give its parameters Output"),
        ("databricks_job", {"job_name": None, "python_params": WORDS}, "give it job_id or job_name"),
        ("databricks_job", {"repair_run": True}, "repair_run acts on the runs of other attempts"),
        ("databricks_job", {"idempotency_token": "mine"}, "idempotency_token is set by Cairn"),
        ("databricks", {"new_cluster": {"spark_conf": {"spark.cairn.job": "x"}}}, "is set by Cairn"),
        ("databricks", {"json": {"existing_cluster_id": "c"}}, "no new_cluster"),
        ("databricks", {"spark_python_task": {"parameters": ["--password", "hunter2"]}}, "password holds a secret"),
        ("spark_kubernetes", {"template_spec": {"spec": {"type": "Scala"}}}, "no spec of type Python"),
        ("spark_kubernetes", python_app(restartPolicy={"type": "OnFailure"}), "restartPolicy is OnFailure"),
        ("spark_kubernetes", python_app(sparkConf=OURS), "is set by Cairn"),
        ("dataproc_job", {"request_id": "mine"}, "request_id is set by Cairn"),
        ("dataproc_job", pyspark_job(reference={"job_id": "mine"}), "reference.job_id is set by"),
        ("dataproc_job", {"job": {"hive_job": {}}}, "job has no pyspark_job"),
        ("dataproc_job", {"job": "{}"}, "job is a str"),
        ("dataproc_job", pyspark_job(scheduling={"max_failures_total": 1}), "start a failed driver"),
        ("dataproc_job", {"deferrable": True, "start_from_trigger": True}, "start_from_trigger submits before"),
        ("dataproc_job", {"job": {"pyspark_job": {"args": ["--password", "hunter2"]}}}, "password holds a secret"),
        ("dataproc_batch", {"batch_id_prefix": "mine"}, "batch_id_prefix is set by Cairn"),
        ("dataproc_batch", {"batch": {"spark_batch": {}}}, "batch has no pyspark_batch"),
        ("dataproc_batch", {"batch": {"pyspark_batch": {}, "runtime_config": {"properties": OURS}}}, "is set by Cairn"),
        ("glue", {"retry_limit": 1}, "tries a failed run again by itself"),
        ("glue", {"create_job_kwargs": {"NonOverridableArguments": {"--conf": "x"}}}, "the job fixes --conf"),
        ("glue", {"create_job_kwargs": {"Command": {"Name": "pythonshell"}}}, "the job's command is pythonshell"),
        ("glue", {"script_args": {"--conf": "spark.a=b --conf spark.cairn.job=x"}}, "is set by Cairn"),
        ("glue", {"script_args": {"--password": "hunter2"}}, "password holds a secret"),
    ],
)
def test_options_that_leave_no_stage_are_refused_at_parse(
    job: Job, name: str, arguments: dict[str, Any], match: str
) -> None:
    with pytest.raises(InvalidConfigError, match=match):
        stage(job, ALL[name](), arguments)


@pytest.mark.parametrize(
    ("name", "option", "given", "said"),
    [
        *(
            ("emr_serverless", "config", given, "a retry does not help: change what the error names")
            for given in ({"retryPolicy": {"maxAttempts": 5}}, {"name": "mine"}, "no dictionary")
        ),
        ("databricks", "tasks", [{}, {}], "not have exactly one task"),
    ],
)
def test_an_option_from_a_template_is_checked_once_it_is_rendered(
    job: Job, name: str, option: str, given: object, said: str
) -> None:
    task = stage(job, SERVICES[name](), {option: "{{ var.json.it }}"})
    setattr(task, option, given)
    job.trigger(RUN)
    with pytest.raises(AirflowFailException, match=said):
        task.execute(context(a_try()))


def test_an_operator_without_a_launcher_is_refused() -> None:
    with pytest.raises(
        InvalidConfigError, match="one of DatabricksRunNowOperator, DatabricksSubmitRunOperator, Dataproc"
    ):
        epoch_stage(SparkEpochOperator)


def test_a_group_has_stages_of_several_kinds() -> None:
    """The group gives its storage and job, and edges too; retries and pool are the operator's own."""
    livy: Any = kind_of(SERVICES["livy"]())
    stand_in = SERVICES["emr_serverless"]()
    with (
        DAG("flights", schedule=None, default_args={"retries": 3, "aws_conn_id": "lake"}) as dag,
        CheckpointedTaskGroup("epoch", storage="s3://lake/cairn", aws_conn_id="lake", reads_window=False),
    ):
        raw = SparkEpochOperator(task_id="raw", application="raw.py")
        emr: Any = epoch_stage(kind_of(stand_in), parallelism=2)
        clean = emr(task_id="clean", pool="emr", **{**stand_in.arguments(), "aws_conn_id": "emr"})
        each = epoch_stage(livy).partial(task_id="each", file="each.py").expand(args=[["1"], ["2"]])
        raw >> clean >> each
    assert (
        DagSerialization.from_dict(DagSerialization.to_dict(dag)).get_task("epoch.clean").task_type.endswith("Operator")
    )
    assert (clean.storage, clean.job, clean.retries, clean.pool) == ("s3://lake/cairn", "flights", 3, "emr")
    # The operator's own connection is not the storage's.
    assert (clean.aws_conn_id, clean.launch_fields) == ("lake", {"aws_conn_id": "emr"})
    assert clean.made_launcher()._operator.aws_conn_id == "emr"
    trigger: Any = dag.task_dict["epoch.trigger_checkpoint"]
    drawn = {each.uid: (each.reads, each.instances) for each in trigger.drawn_stages()}
    assert drawn == {"raw": ((), 0), "clean": (("raw",), 0), "each": (("clean",), 2)}
