"""A server that Cairn runs, as a real Spark: started by a stage, shared, recycled, and ended by itself."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from dataclasses import asdict
from datetime import timedelta
from functools import partial
from http.client import HTTPException
from pathlib import Path
from urllib.request import urlopen

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowTaskTimeout
from airflow.sdk.execution_time.timeout import timeout
from pyspark.sql import SparkSession

from airflow_cairn.checkpoint.documents import layout
from airflow_cairn.checkpoint.documents.attempt import Handover
from airflow_cairn.checkpoint.documents.server_record import ANYWHERE, KEY, ServerEntry, ServersDocument, ServerState
from airflow_cairn.cli.main import main
from airflow_cairn.hooks.session_server import SCRATCH
from airflow_cairn.operators import CheckpointedTaskGroup, ConnectSession, SparkEpochOperator
from airflow_cairn.operators.stage.outcome import StageFailedError
from airflow_cairn.spark.handover.conf import handover_conf
from airflow_cairn.spark.remote.server import ConnectServer, server_token
from airflow_cairn.spark.remote.session_driver import forget_shared
from airflow_cairn.spark.remote.submission import NOT_RUN, VARIABLE, Submission, session_id
from airflow_cairn.spark.remote.tls_end import certificate_authority
from airflow_cairn.storage.names import parse_storage_uri
from scripts.harness.spark.start import INTERPRETED, small_conf
from scripts.harness.wait import wait_until
from tests.support.airflow_fixtures import Said
from tests.support.airflow_stage import Job, Ti, context
from tests.support.shut_down import shut_down

pytestmark = pytest.mark.spark

SECRET = "canary-of-the-secret-0123456789abcdef"  # its value is searched for below

APPLICATION = """
from pathlib import Path
from pyspark.sql.functions import udf
from airflow_cairn.spark import Epoch
with Epoch.current() as epoch:
    before = epoch.state("seen")
    def twice(id):
        import doubled
        return doubled.of(id)
    twice = udf(twice, "long")
    rows = epoch.spark.range(3).selectExpr(f"id + {epoch.checkpoint} * 10 AS id").withColumn("twice", twice("id"))
    kept = rows if before is None else before.union(rows)
    daemon = udf(lambda id: __import__("os").getppid(), "int")
    print("DAEMON", rows.select(daemon("id")).first()[0])
    epoch.snapshot("seen", kept, key="id")
    print("KEPT", kept.count(), "ON", type(epoch.spark).__module__)
    landed = epoch.spark.read.parquet(Path(__file__).with_name("landing").as_uri()).cache()  # and not unpersisted
    print("LANDED", landed.count())
    print("BEGUN", epoch.spark.catalog.tableExists(f"global_temp.cairn_attempt_{epoch.checkpoint}_1"))
"""


@pytest.fixture
def here(job: Job, connections: Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The Spark of this environment, and the secret; a server ends with its test, however that ends."""
    connections("spark_here", json.dumps({"conn_type": "spark", "host": "local[2]"}))
    connections("cairn_session", json.dumps({"conn_type": "generic", "password": SECRET}))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    yield
    shut_down(job.coordinator)


HOUR = timedelta(hours=1)
CONF = {"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", "spark.sql.shuffle.partitions": "2"}


def by_tls(conf: dict[str, str], max_sessions: int) -> ConnectSession:
    """A session whose server listens by TLS; at an address that an author may not ask for: each machine has it."""
    session = ConnectSession(
        conf={**CONF, **small_conf(), **conf}, idle=HOUR, max_sessions=max_sessions, bind_address="0.0.0.0"
    )
    object.__setattr__(session, "bind_address", "127.0.0.1")
    return session


def stage(job: Job, application: str, session: ConnectSession | None) -> SparkEpochOperator:
    """A stage on a session's server, or by spark-submit."""
    with DAG(job.name):
        group = CheckpointedTaskGroup(
            "epoch", storage=job.storage, job=job.name, conn_id="spark_here", session=session, reads_window=False
        )
        with group:
            return SparkEpochOperator(
                task_id="routes",
                application=application,
                py_files=str(Path(application).with_name("doubled.py")),
                conf=None if session is not None else {**CONF, **small_conf()},
            )


def commands(pid: int) -> list[str]:
    """The command lines of a server's processes."""
    below = psutil.Process(pid).children(recursive=True)
    found = []
    for each in [psutil.Process(pid), *below]:
        with suppress(psutil.NoSuchProcess):  # it has just ended
            found.append(" ".join(each.cmdline()))
    return found


def shown_in(folder: Path) -> dict[str, str]:
    """Conf by which Spark shows what it knows: in its UI, and in its event log."""
    (folder / "events").mkdir()
    log = {"spark.eventLog.enabled": "true", "spark.eventLog.dir": f"file://{folder}/events"}
    return {"spark.ui.enabled": "true", "spark.ui.port": "0", "spark.eventLog.compress": "false", **log}


def shown_in_ui(pid: int) -> str:
    """Conf and environment in the UI of a server: its page reads them there."""
    processes = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
    for each in (found for process in processes for found in process.net_connections("tcp")):
        if each.status == psutil.CONN_LISTEN:
            applications = f"http://127.0.0.1:{each.laddr.port}/api/v1/applications"
            with suppress(OSError, HTTPException):  # what listens there is no UI
                [application] = json.loads(_page(applications))
                return _page(f"{applications}/{application['id']}/environment")
    raise AssertionError("no UI listens")


def _page(url: str) -> str:
    with urlopen(url, timeout=60) as answer:
        return str(answer.read().decode())


def has_ended(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def servers(job: Job) -> ServersDocument:
    return job.coordinator.files.read(ServersDocument, KEY)[0]


def land(folder: Path, name: str) -> None:
    """Put a file of one row into the folder that the application reads."""
    (folder / "landing").mkdir(exist_ok=True)
    pq.write_table(pa.table({"id": [1]}), folder / "landing" / f"{name}.parquet")


def test_what_sessions_left_in_what_all_share_is_dropped(spark: SparkSession, request: pytest.FixtureRequest) -> None:
    """The driver of a server drops it while no session is open; its own temporary views stay."""
    mode = "spark.sql.codegen.factoryMode"
    request.addfinalizer(lambda: spark.conf.set(mode, INTERPRETED[mode]))
    spark.conf.set(mode, "FALLBACK")  # interpreted, Spark cannot list tables
    cached = spark.range(10).selectExpr("id AS forgotten").cache()
    spark.range(1).createOrReplaceGlobalTempView("left")
    spark.range(1).createOrReplaceTempView("own")
    assert cached.storageLevel.useMemory
    assert spark.catalog.tableExists("global_temp.left")
    forget_shared(spark)
    assert not cached.storageLevel.useMemory
    assert not spark.catalog.tableExists("global_temp.left")
    assert spark.catalog.tableExists("own")
    spark.catalog.dropTempView("own")


def test_a_server_is_started_shared_and_recycled(
    job: Job, here: None, tmp_path: Path, said: Said
) -> None:  # semantics V1, V2, V4
    application = tmp_path / "routes.py"
    application.write_text(APPLICATION)
    (tmp_path / "doubled.py").write_text("def of(number):\n    return 2 * number\n")
    of_three = by_tls(shown_in(tmp_path), max_sessions=3)

    def run(run_id: str) -> str:
        land(tmp_path, run_id)
        job.trigger(run_id)
        stage(job, str(application), of_three).execute(context(Ti(run_id=run_id)))
        return servers(job).servers[-1].nonce

    first = run("e1")
    assert run("e2") == first, "one server for both"
    [pid] = [int(found) for found in re.findall(r"Starting a Spark server for job flights: process (\d+)", said.text)]
    used = [int(found) for found in re.findall(r"DAEMON (\d+)", said.text)]
    assert len(set(used)) == 2, "each session with modules of its own has one"
    wait_until(lambda: all(map(has_ended, used)), 120, "the Python daemons of released sessions to end")
    [entry] = servers(job).servers
    assert (entry.state, entry.machine, entry.host) == (ServerState.UP, ANYWHERE, "127.0.0.1"), "it has not ended too"
    folder = Path(tempfile.gettempdir(), f"cairn-server-{first}")
    for closed in (folder, folder / SCRATCH):
        assert (closed.stat().st_uid, stat.S_IMODE(closed.stat().st_mode)) == (os.geteuid(), 0o700)
    made = {path.name.partition("-")[0] for path in (folder / SCRATCH).iterdir()}
    assert made >= {"artifacts", "blockmgr", "spark"}, "what other users could read"
    token = server_token(SECRET, job.storage, job.name, first)
    events = "".join(path.read_text() for path in (tmp_path / "events").rglob("*") if path.is_file())
    for shown in (" ".join(commands(pid)), shown_in_ui(pid), events):
        assert "org.apache.spark.sql.connect.SparkConnectPlugin" in shown, "what would show the token"
        assert token not in shown
        assert SECRET not in shown
    assert run("e3") == first
    assert re.findall(r"LANDED (\d+)", said.text) == ["1", "2", "3"], "and not what the epoch before had cached"
    assert re.findall(r"BEGUN (\w+)", said.text) == ["True"] * 3, "so a second stage of an attempt clears nothing"
    wait_until(lambda: not servers(job).servers, 300, "the server that has had three sessions to end")
    wait_until(lambda: not folder.exists(), 120, "the folder to go, which is the last that it does")
    wait_until(lambda: has_ended(pid), 120, "its process to end")
    assert [each.id for each in job.coordinator.head().completed][-1] == 3

    words = ("--request-id", "s1", "--storage", job.storage)
    assert main(["savepoint", job.name, f"file://{tmp_path}/savepoints", *words]) == 0
    [savepoint] = (tmp_path / "savepoints").iterdir()
    other = Job(job.folder, "rides")
    assert main(["resume", other.name, "--from", f"file://{savepoint}", "--yes", "--storage", other.storage]) == 0
    other.trigger("e1")
    stage(other, str(application), None).execute(context(Ti(dag_id=other.name, run_id="e1")))
    kept = set(re.findall(r"KEPT (\d+) ON ([\w.]+)", said.text))
    assert {("9", "pyspark.sql.connect.session"), ("12", "pyspark.sql.session")} <= kept, (
        "of one transport on the other"
    )
    stored = " ".join(path.read_text(errors="replace") for path in job.folder.rglob("*") if path.is_file())
    for text in (said.text, stored):
        assert SECRET not in text
        assert token not in text


ENDS = """
import os, signal, sys, time
from pathlib import Path
from airflow_cairn.spark import Epoch
todo = Path(__file__).with_name("todo")
with Epoch.current() as epoch:
    print("ROWS", epoch.spark.range(7).count(), "LEADS", os.getpid() == os.getsid(0), flush=True)
    for what in todo.read_text().split():
        todo.write_text("")
        if what == "wait":
            time.sleep(600)
        if what == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        raise ValueError("no rows")
    epoch.snapshot("seen", epoch.spark.range(3), key="id")
"""


def has_socket(folder: Path) -> bool:
    return any(each.is_socket() for each in folder.iterdir())


@pytest.mark.soak  # tests/unit/hooks/test_forked_client.py has each end, without a server of Spark
def test_a_forked_client_ends_as_a_new_process_does(job: Job, here: None, tmp_path: Path, said: Said) -> None:
    """Each client succeeds, fails, is killed, or ended by the task's timeout; only the first stage's loads PySpark."""
    application, todo = tmp_path / "routes.py", tmp_path / "todo"
    application.write_text(ENDS)
    (tmp_path / "doubled.py").touch()
    session = ConnectSession(conf={**CONF, **small_conf()}, idle=HOUR)
    ways: dict[str, type[BaseException] | None] = {"": None, "fail": StageFailedError, "kill": StageFailedError}
    for number, (what, error) in enumerate({"first": None, **ways, "wait": AirflowTaskTimeout}.items()):
        todo.write_text(what.removeprefix("first"))
        job.trigger(f"e{number}")
        run = stage(job, str(application), session)
        with pytest.raises(error) if error else nullcontext(), timeout(seconds=20 if what == "wait" else 500):
            run.execute(context(Ti(run_id=f"e{number}")))
        if error:
            todo.write_text("")
            run.execute(context(Ti(run_id=f"e{number}", try_number=2, max_tries=2)))
        if what == "first":
            folder = Path(tempfile.gettempdir(), f"cairn-server-{servers(job).servers[-1].nonce}")
            wait_until(partial(has_socket, folder), 120, "the fork server to be up")
    [why] = re.findall("loads PySpark itself: (.*)", said.text)
    assert "loads it too, for later stages" in why
    assert re.findall(r"ROWS 7 LEADS (\w+)", said.text) == ["False", *["True"] * 7]
    assert "ValueError: no rows" in said.text
    assert "The application was killed, and its session is released" in said.text
    assert [each.id for each in job.coordinator.head().completed][-1] == 8


FULL = """
from pathlib import Path
from airflow_cairn.spark import Epoch
struck = Path(__file__).with_name("struck")
with Epoch.current() as epoch:
    if not struck.exists():
        struck.touch()
        # Spark computes it while it plans, in the driver: more bytes than the heap has.
        epoch.spark.sql("SELECT length(repeat('x', 2000000000))").collect()
    epoch.snapshot("seen", epoch.spark.range(3), key="id")
"""


@pytest.mark.soak  # that the JVM is told to end is seen in tests/unit/hooks/test_server_jvm.py
def test_a_server_whose_heap_is_full_ends_and_another_one_takes_its_place(
    job: Job, here: None, tmp_path: Path, said: Said
) -> None:  # semantics V4
    application = tmp_path / "routes.py"
    application.write_text(FULL)
    (tmp_path / "doubled.py").touch()
    session = ConnectSession(conf={**CONF, **small_conf(), "spark.driver.memory": "1g"}, idle=HOUR)
    job.trigger("e1")
    with pytest.raises(StageFailedError):
        stage(job, str(application), session).execute(context(Ti(run_id="e1")))
    [pid] = [int(found) for found in re.findall(r"Starting a Spark server for job flights: process (\d+)", said.text)]
    wait_until(lambda: has_ended(pid), 120, "the server to end")
    assert "Terminating due to java.lang.OutOfMemoryError" in said.text, "the end of its log"
    stage(job, str(application), session).execute(context(Ti(run_id="e1", try_number=2, max_tries=2)))
    assert [each.id for each in job.coordinator.head().completed] == [2], "the second attempt"


@pytest.mark.soak  # test_connect.py stops the work; that each look closes what is over: test_session_driver.py
def test_work_of_a_dead_client_stops_when_the_next_try_runs_elsewhere(
    job: Job, here: None, tmp_path: Path, said: Said
) -> None:  # semantics V2
    """Each machine has its own server: the next try, on another machine, does not reach the one of the try before."""
    application = tmp_path / "routes.py"
    application.write_text(APPLICATION)
    (tmp_path / "doubled.py").write_text("def of(number):\n    return 2 * number\n")
    session = ConnectSession(conf={**CONF, **small_conf()}, idle=HOUR)

    def run(run_id: str) -> ServerEntry:
        land(tmp_path, run_id)
        job.trigger(run_id)
        stage(job, str(application), session).execute(context(Ti(run_id=run_id)))
        return servers(job).servers[-1]

    server = run("e1")
    token = server_token(SECRET, job.storage, job.name, server.nonce)
    at = ConnectServer("127.0.0.1", server.port, token, use_ssl=True, authority=certificate_authority(token))

    def start(handover: Handover) -> subprocess.Popen[bytes]:
        key = layout.handover(handover.checkpoint, handover.stage, handover.token)
        handed = handover_conf(handover, key, storage=parse_storage_uri(job.storage))
        slow = str(Path(__file__).parent / "applications" / "connect_slow.py")
        # Twenty minutes on both of the server's cores: until it is stopped, nothing else runs.
        submission = Submission(slow, session_id(handover.token), handed, asdict(at), ("60000",), nonce=server.nonce)
        program = [sys.executable, "-m", "airflow_cairn.spark.remote.client"]
        return subprocess.Popen(program, env={**os.environ, VARIABLE: submission.to_json()}, cwd=tmp_path)

    def parts(handover: Handover) -> list[Path]:
        return [each for each in job.folder.rglob("*.parquet") if handover.token in str(each)]

    log = Path(tempfile.gettempdir(), f"cairn-server-{server.nonce}", "server.log")
    job.trigger("e2")
    first = job.begin("e2", claimant="a try on this machine")
    with start(first) as dead:
        wait_until(lambda: len(parts(first)) == 2, 600, "both tasks of the first to write")
        dead.kill()
    second = job.begin("e2", claimant="a try on another machine")
    wait_until(lambda: not parts(first), 60, "the first to be stopped, and what it wrote to be deleted")
    job.acknowledge(second)
    job.coordinator.complete(second.checkpoint)
    assert (
        "The session of stage routes, attempt 1 of e2, is closed: attempt 2, checkpoint 3, runs the" in log.read_text()
    )

    # A client of the first try that comes only now finds its session closed, and a third epoch the server free.
    with start(first) as late:
        assert late.wait(600) == NOT_RUN
    assert run("e3").nonce == server.nonce
    assert [each.id for each in job.coordinator.head().completed][-1] == 4
    assert parts(first) == []
