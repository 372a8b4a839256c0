"""A server that Cairn runs on a cluster: standalone and YARN in deploy mode client, YARN in deploy mode cluster.

These clusters are real; `make soak` starts that of YARN. No Kubernetes runs here: a stand-in of its API takes what the
real spark-submit asks of it.
"""

from __future__ import annotations

import base64
import json
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest
from airflow.sdk import DAG

from airflow_cairn.checkpoint import system_runtime
from airflow_cairn.checkpoint.documents.server_record import ANYWHERE, KEY, ServerEntry, ServersDocument
from airflow_cairn.hooks.session_server import StartingServer
from airflow_cairn.operators import CheckpointedTaskGroup, ConnectSession, SparkEpochOperator
from airflow_cairn.spark.remote.server import server_token
from airflow_cairn.storage.names import parse_storage_uri
from airflow_cairn.tasks.job_settings import JobSettings
from airflow_cairn.tasks.shared_server import SharedServer
from scripts.harness.spark.cluster import SparkCluster
from scripts.harness.spark.start import small_conf
from scripts.harness.spark.yarn import YarnCluster
from scripts.harness.wait import wait_until
from tests.support.airflow_fixtures import Said
from tests.support.airflow_stage import Job, Ti, context
from tests.support.api_stand_in import Answer, ApiStandIn, Asked
from tests.support.shut_down import shut_down

# Each starts a cluster and drivers on it, which takes ten minutes where a machine is busy.
pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]

SECRET = "canary-of-the-secret-0123456789abcdef"  # its value is searched for below
BARE_PYTHON = Path(sys.executable).resolve()
"""Below the virtual environment: it has neither this project nor PySpark, which the driver's container gets shipped."""
SMALL_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

# A function that two executors compute; one of them is killed between two of its uses.
APPLICATION = """
import os, signal, sys
from pyspark.sql.functions import udf
from airflow_cairn.spark import Epoch

def parent(pid):
    return int(open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[1])

with Epoch.current() as epoch:
    rows = epoch.spark.range(0, 40, 1, 2).selectExpr(f"id + {epoch.checkpoint} * 100 AS id")
    here = udf(lambda id: os.getppid())
    daemons = {int(row[0]) for row in rows.select(here("id")).collect()}
    print("MASTER", epoch.spark.conf.get("spark.master"), "EXECUTORS", *sorted(map(parent, daemons)))
    print("DAEMONS", *daemons)
    if "kill an executor" in sys.argv:
        os.kill(parent(min(daemons)), signal.SIGKILL)
    def doubled(id):
        import doubled
        return doubled.of(id)
    twice = udf(doubled, "long")
    before = epoch.state("seen")
    rows = rows.withColumn("twice", twice("id"))
    kept = rows if before is None else before.union(rows)
    epoch.snapshot("seen", kept, key="id")
    assert [row for row in kept.collect() if row.twice != 2 * row.id] == []
    print("KEPT", kept.count())
"""


@pytest.fixture
def application(
    job: Job, tmp_path: Path, connections: Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    """A stage's program, and the secret; a server ends with its test, however that ends."""
    file = tmp_path / "routes.py"
    file.write_text(APPLICATION)
    file.with_name("doubled.py").write_text("def of(number):\n    return 2 * number\n")
    connections("cairn_session", json.dumps({"conn_type": "generic", "password": SECRET}))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    yield str(file)
    shut_down(job.coordinator)


CONF = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.executor.memory": "512m",
}


def session(conf: dict[str, str], *, listens: bool = False) -> ConnectSession:
    made = ConnectSession(conf=conf, idle=timedelta(hours=1), bind_address="0.0.0.0" if listens else None)
    if listens:  # an address that an author may not ask for: a test opens no port to others
        object.__setattr__(made, "bind_address", "127.0.0.1")
    return made


def run(job: Job, run_id: str, application: str, how: ConnectSession, *arguments: str) -> ServerEntry:
    """Run an epoch of one stage; gives the server that it ran on."""
    job.trigger(run_id)
    with DAG(job.name):
        group = CheckpointedTaskGroup(
            "epoch", storage=job.storage, job=job.name, conn_id="spark_there", session=how, reads_window=False
        )
        with group:
            stage = SparkEpochOperator(
                task_id="routes",
                application=application,
                application_args=list(arguments),
                py_files=str(Path(application).with_name("doubled.py")),
            )
    stage.execute(context(Ti(run_id=run_id)))
    return servers(job)[-1]


def servers(job: Job) -> tuple[ServerEntry, ...]:
    return job.coordinator.files.read(ServersDocument, KEY)[0].servers


def started(said: Said) -> list[int]:
    return [int(found) for found in re.findall(r"Starting a Spark server for job flights: process (\d+)", said.text)]


def has_ended(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def commands(pid: int) -> list[str]:
    """The command lines of a process and of those below it."""
    found = []
    for each in [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]:
        with suppress(psutil.Error):  # it has just ended
            found.append(" ".join(each.cmdline()))
    return found


def kept(said: Said) -> list[int]:
    return [int(found) for found in re.findall(r"KEPT (\d+)", said.text)]


def executors(said: Said) -> list[list[int]]:
    """The executors' processes, epoch by epoch."""
    return [[int(pid) for pid in found.split()] for found in re.findall(r"EXECUTORS ([\d ]+)", said.text)]


@pytest.mark.soak  # test_session.py has a server, tests/real/airflow/test_cluster.py a standalone cluster
def test_on_a_standalone_cluster_executors_compute_and_none_is_left(
    job: Job, application: str, connections: Callable[[str, str], None], said: Said
) -> None:  # semantics V1, V4
    with SparkCluster() as cluster:

        def applications() -> list[str]:
            state = cluster.state()
            assert state is not None
            return [str(each["state"]) for each in state["activeapps"]]

        connections("spark_there", json.dumps({"conn_type": "spark", "host": cluster.master_url}))
        how = session({**CONF, **small_conf()})
        first = run(job, "e1", application, how)
        assert run(job, "e2", application, how, "kill an executor").nonce == first.nonce
        assert run(job, "e3", application, how).nonce == first.nonce
        assert len(executors(said)[0]) == 2, "both workers computed"
        assert executors(said)[0] != executors(said)[2], "another executor has taken the place of the killed one"
        assert applications() == ["RUNNING"], "one application for all"
        used = {int(pid) for found in re.findall(r"DAEMONS ([\d ]+)", said.text) for pid in found.split()}
        assert len(used) >= 5, "each session has daemons of its own"
        wait_until(lambda: all(map(has_ended, used)), 120, "the daemons of released sessions to end")

        def below() -> set[int]:
            return {len(psutil.Process(pid).children()) for pid in executors(said)[2]}

        wait_until(lambda: below() <= {0, 1}, 120, "all daemons but that of the server's driver to end")

        [pid] = started(said)
        for each in psutil.Process(pid).children(recursive=True):
            each.send_signal(signal.SIGKILL)
        os.kill(pid, signal.SIGKILL)
        second = run(job, "e4", application, how)
        assert second.nonce != first.nonce
        wait_until(lambda: applications() == ["RUNNING"], 120, "the master to see that the killed server has gone")
        assert kept(said) == [40, 80, 120, 160]

        shut_down(job.coordinator)
        wait_until(lambda: not servers(job), 300, "the server to end with its job")
        wait_until(lambda: applications() == [], 120, "its application to leave the master")
        gone = {pid for each in executors(said) for pid in each} | {*started(said)}
        wait_until(lambda: all(map(has_ended, gone)), 120, "its processes to end")


def hides(token: str, folder: Path) -> list[Path]:
    """Give the files below a folder that hold a token."""
    return [path for path in folder.rglob("*") if path.is_file() and token.encode() in path.read_bytes()]


def is_open_to_others(path: Path, root: Path) -> bool:
    """Tell whether another user could read a file: it, and each folder above it up to a root, lets others in."""
    above = [folder for folder in path.parents if folder.is_relative_to(root)]
    return bool(path.stat().st_mode & 0o004) and all(folder.stat().st_mode & 0o001 for folder in above)


def is_driver_below(folder: Path, process: psutil.Process) -> bool:
    """Tell whether a process is the JVM or the Python of a driver in a container of YARN."""
    with suppress(psutil.Error):  # it has just ended
        words = process.cmdline()
        of_driver = "org.apache.spark.deploy.yarn.ApplicationMaster" in words or words[-1:] == ["server.py"]
        return of_driver and Path(process.cwd()).is_relative_to(folder)
    return False


@pytest.mark.soak
def test_on_yarn_the_token_is_a_credential_and_the_driver_ends(
    job: Job,
    application: str,
    tmp_path: Path,
    connections: Callable[[str, str], None],
    monkeypatch: pytest.MonkeyPatch,
    said: Said,
) -> None:  # semantics V1, V4
    monkeypatch.setattr("airflow_cairn.spark.remote.server.ANY_ADDRESS", "127.0.0.1")
    with YarnCluster(tmp_path / "yarn") as yarn:
        monkeypatch.setenv("HADOOP_CONF_DIR", str(yarn.conf_dir))
        events = tmp_path / "events"
        events.mkdir()
        conf = {
            **CONF,
            **yarn.spark_conf(),
            "spark.pyspark.driver.python": str(BARE_PYTHON),
            "spark.pyspark.python": sys.executable,
            "spark.driver.extraJavaOptions": SMALL_JVM,
            "spark.executor.extraJavaOptions": SMALL_JVM,
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": f"file://{events}",
        }

        def running() -> list[str]:
            return [str(each["id"]) for each in yarn.applications() if each["state"] == "RUNNING"]

        connections("spark_there", json.dumps({"conn_type": "spark", "host": "yarn"}))
        run(job, "e1", application, session(conf))
        assert len(running()) == 1
        [in_client_mode] = started(said)
        for each in psutil.Process(in_client_mode).children(recursive=True):
            each.send_signal(signal.SIGKILL)
        os.kill(in_client_mode, signal.SIGKILL)

        extra = {"deploy-mode": "cluster"}
        connections("spark_there", json.dumps({"conn_type": "spark", "host": "yarn", "extra": extra}))
        del conf["spark.driver.host"]
        how = session(conf, listens=True)
        server = run(job, "e2", application, how)
        assert (server.machine, server.host) == (ANYWHERE, "localhost")
        assert has_ended(started(said)[1]), "the spark-submit went once the server was up"
        token = server_token(SECRET, job.storage, job.name, server.nonce)
        shown = " ".join(" ".join(each.info["cmdline"] or ()) for each in psutil.process_iter(["cmdline"]))
        assert server.nonce not in shown, "what the server is told stands in its program"
        for secret in (SECRET, token):
            assert secret not in shown
            assert secret not in said.text
            assert hides(secret, job.folder) == []
            assert hides(secret, events) == []
            held = hides(secret, yarn.root)
            assert {path.name for path in held} <= {"container_tokens"} | {f"{path.stem}.tokens" for path in held}
            assert [path for path in held if is_open_to_others(path, yarn.root)] == []
        drivers = [each for each in psutil.process_iter() if is_driver_below(yarn.root, each)]
        for each in drivers:
            each.send_signal(signal.SIGKILL)
        assert len(drivers) == 2, "a JVM and its Python"
        another = run(job, "e3", application, how)
        assert another.nonce != server.nonce
        assert kept(said) == [40, 80, 120]
        assert len(yarn.applications()) == 3, "YARN starts no driver by itself"
        shut_down(job.coordinator)
        # Not until the record is empty: it may hold the server killed in mode client, which only the next claim drops.
        wait_until(
            lambda: another.nonce not in {each.nonce for each in servers(job)}, 300, "the server to end with its job"
        )
        wait_until(lambda: running() == [], 120, "its application to end")
        assert yarn.applications()[-1]["finalStatus"] == "SUCCEEDED"


@pytest.mark.soak  # tests/unit/hooks/ has what is asked of the API; `make kubernetes` has a real one
def test_on_kubernetes_the_pod_mounts_a_secret_that_goes_with_it(
    job: Job,
    application: str,
    tmp_path: Path,
    connections: Callable[[str, str], None],
    monkeypatch: pytest.MonkeyPatch,
    said: Said,
) -> None:  # semantics V4
    # The provider asks only whether the client of its Kubernetes provider is there.
    monkeypatch.setattr("airflow.providers.apache.spark.hooks.spark_submit.kube_client", object(), raising=False)

    def answer(asked: Asked) -> Answer:
        if asked.method not in ("POST", "PATCH"):
            return 503, {"kind": "Status", "status": "Failure", "code": 503}
        made = {**asked.body, "metadata": {"namespace": "lake", **asked.body["metadata"], "uid": "made"}}
        return 201, made

    uploads = tmp_path / "uploads"
    uploads.mkdir()
    with ApiStandIn(answer) as api, ExitStack() as stack:

        def made(kind: str) -> list[dict[str, Any]]:
            return [each.body for each in api.asked if each.body and each.body.get("kind") == kind]

        extra = {"deploy-mode": "cluster", "namespace": "lake"}
        connections("spark_there", json.dumps({"conn_type": "spark", "host": f"k8s://{api.url}", "extra": extra}))
        conf = {"spark.kubernetes.container.image": "spark", "spark.kubernetes.file.upload.path": f"file://{uploads}"}
        settings = JobSettings(parse_storage_uri(job.storage), job.name, None)
        how = ConnectSession(conf=conf, bind_address="0.0.0.0")
        nonce = system_runtime().new_token()
        shared = SharedServer(how, "spark_there", settings, job.coordinator, "e1")
        starting = StartingServer(shared._how(nonce, SECRET))
        stack.callback(starting.let_go)
        wait_until(lambda: made("ConfigMap") and made("Secret"), 300, "spark-submit to make the driver's objects")
        starting.check()
        shown = " ".join(commands(starting.pid))
        logged = (starting.folder / "server.log").read_text()
        starting.let_go()
        assert has_ended(starting.pid)
        assert not starting.folder.exists()

        [pod], [secret], [config] = made("Pod"), made("Secret"), made("ConfigMap")
        assert secret["metadata"]["ownerReferences"][0]["name"] == pod["metadata"]["name"], "it goes with the pod"
        [data] = secret["data"].items()
        token = server_token(SECRET, job.storage, job.name, nonce)
        assert token.encode() in base64.b64decode(data[1])
        [container] = pod["spec"]["containers"]
        [volume] = [each["name"] for each in pod["spec"]["volumes"] if "secret" in each]
        [mount] = [each["mountPath"] for each in container["volumeMounts"] if each["name"] == volume]
        environ = {each["name"]: each.get("value") for each in container["env"]}
        assert environ["HADOOP_TOKEN_FILE_LOCATION"] == f"{mount}/{data[0]}"
        assert "SPARK_DRIVER_BIND_ADDRESS" in environ, "the driver's own address, by which stages reach it"
        properties = config["data"]["spark.properties"]
        assert "spark.plugins=org.apache.spark.sql.connect.SparkConnectPlugin" in properties
        [program] = uploads.rglob("server.py")
        assert container["args"][-1] == f"file://{program}"
        assert f'"nonce": "{nonce}"' in program.read_text()
        assert [*uploads.rglob("airflow_cairn-*.zip")]
        asked = json.dumps([each.body for each in api.asked if each.body is not secret])
        for text in (asked, shown, logged, said.text):
            assert token not in text
            assert SECRET not in text
            assert "PRIVATE KEY" not in text
        assert hides(token, uploads) == []
        assert "DELETE" not in {each.method for each in api.asked}, "the driver goes on without its spark-submit"
