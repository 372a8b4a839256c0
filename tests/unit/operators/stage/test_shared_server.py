"""A stage on the server that its job's stages share: started, shared, waited for, replaced, and what its end is.

The server is a process of its own that computes nothing (tests/support/session_server_stand_in.py). The operator, the
client process, PySpark's client, the epoch, the record, the store and the domain are real.
"""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from threading import Event
from typing import Any

import psutil
import pytest
from airflow.sdk.exceptions import AirflowFailException

from airflow_cairn.checkpoint.documents.server_record import ANYWHERE, KEY, ServersDocument, ServerState
from airflow_cairn.checkpoint.errors import InvalidConfigError
from airflow_cairn.hooks.spark_connect import Ended
from airflow_cairn.operators import ConnectSession, SparkEpochOperator
from airflow_cairn.operators.stage.outcome import StageFailedError
from airflow_cairn.spark.execution.transport import Heard, hear
from airflow_cairn.spark.remote.register import ServerRegister
from airflow_cairn.spark.remote.server import ConnectServer, server_of, server_token, this_machine
from airflow_cairn.spark.remote.submission import NOT_RUN, Problem
from airflow_cairn.storage.clock import Runtime, system_runtime
from airflow_cairn.storage.names import parse_storage_uri
from airflow_cairn.storage.port import Written
from airflow_cairn.tasks.job_settings import JobSettings
from airflow_cairn.tasks.shared_server import SharedServer, hear_of
from scripts.harness.wait import wait_until
from scripts.setup.base import ROOT
from tests.support.airflow_fixtures import Define, Said
from tests.support.airflow_stage import Job, Ti, context
from tests.support.connect_stand_in import connect_server
from tests.support.errors import raises_code
from tests.support.groups import epoch_group
from tests.support.shut_down import shut_down

pytestmark = pytest.mark.large

SECRET = "canary-of-the-secret-0123456789abcdef"  # its value is searched for below

APPLICATION = """
import os, signal, socket, sys
from urllib.parse import urlsplit
from airflow_cairn.spark import Epoch
with Epoch.current() as epoch:
    epoch.put("done", epoch.epoch)
    told = [epoch.spark.conf.get(f"spark.cairn.localState.{name}", None) for name in ("folder", "bytes")]
    print("COPIES", epoch.epoch, *told)
    if "lose the server" in sys.argv:
        os.kill(int(open(sys.argv[-1]).read()), signal.SIGKILL)
        at = urlsplit(os.environ["SPARK_REMOTE"].partition("/;")[0])
        while True:
            try:
                socket.create_connection((at.hostname, at.port), 600).close()
            except ConnectionError:
                break
        raise ConnectionError("the server is gone")
    if "fail" in sys.argv:
        raise ConnectionError("this stage alone")
"""


@dataclass
class Servers:
    """The processes of servers, as they noted how they were started."""

    notes: Path
    job: Job
    application: str

    def stage(
        self, session: ConnectSession | None = None, group_conn_id: str | None = None, **options: Any
    ) -> SparkEpochOperator:
        """Make a stage of a group with a session."""
        of = {"storage": self.job.storage, "job": self.job.name, "session": session or ConnectSession()}
        with epoch_group(**of, conn_id=group_conn_id):
            return SparkEpochOperator(**{"task_id": "routes", "application": self.application, **options})

    def run(self, run_id: str, **options: Any) -> None:
        """Trigger an epoch, and run its stage."""
        self.job.trigger(run_id)
        self.stage(**options).execute(context(Ti(run_id=run_id)))

    def first(self, **options: Any) -> str:
        """Run the first epoch; gives the nonce of the server that it has started."""
        self.run("e1", **options)
        [nonce] = self.nonces()
        return nonce

    def completed(self) -> list[int]:
        """Give the checkpoints; a try that has failed would have used up a number."""
        return [each.id for each in self.job.coordinator.head().completed]

    def started(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.notes.read_text().splitlines()] if self.notes.exists() else []

    def pid(self) -> int:
        return int(self.started()[-1]["pid"])

    def nonces(self) -> list[str]:
        document, _ = self.job.coordinator.files.read(ServersDocument, KEY)
        return [each.nonce for each in document.servers]

    def port(self) -> int:
        document, _ = self.job.coordinator.files.read(ServersDocument, KEY)
        [port] = [each.port for each in document.servers]
        return port

    def kill(self) -> None:
        os.kill(self.pid(), signal.SIGKILL)
        wait_until(lambda: _has_ended(self.pid()), 60, "the server to end")

    def said(self, pid: int) -> dict[str, Any]:
        file = self.notes.with_name(f"{self.notes.name}.{pid}")
        wait_until(file.exists, 60, "the server to end")
        told: dict[str, Any] = json.loads(file.read_text())
        return told


def _has_ended(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.fixture
def servers(job: Job, tmp_path: Path, connections: Define, monkeypatch: pytest.MonkeyPatch) -> Iterator[Servers]:
    """A `spark-submit` that is the stand-in, the connections, and the end of what was started."""
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "spark-submit"
    stand_in = ROOT / "tests" / "support" / "session_server_stand_in.py"
    program.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" "{stand_in}" "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    notes = tmp_path / "notes"
    monkeypatch.setenv("CAIRN_TEST_NOTE", str(notes))
    connections("spark_default", json.dumps({"conn_type": "spark", "host": "local[2]"}))
    connections("cairn_session", json.dumps({"conn_type": "generic", "password": SECRET}))
    application = tmp_path / "routes.py"
    application.write_text(APPLICATION)
    it = Servers(notes, job, str(application))
    yield it
    for each in it.started():
        with suppress(ProcessLookupError):
            os.kill(each["pid"], signal.SIGKILL)


def test_the_first_stage_starts_a_server_and_the_next_epoch_uses_it(job: Job, servers: Servers, said: Said) -> None:
    servers.run("e1")  # semantics V1
    servers.run("e2", session=ConnectSession(local_state_mb=0))
    assert servers.completed() == [1, 2]
    [started] = servers.started()
    assert started["task"]["local_state"] is True
    assert f"COPIES e1 {started['folder']}/local-state {2**30}" in said.text  # semantics V3
    assert "COPIES e2" in said.text
    assert "COPIES e2 /" not in said.text
    assert started["session"] == started["pid"], "no signal to the task's session reaches it"
    assert servers.nonces()
    shut_down(job.coordinator)
    told = servers.said(started["pid"])
    assert told["why"] == "its job was drained or stopped"
    assert len(told["closed"]) == 2, "a session for each execution, released"
    wait_until(lambda: not servers.nonces(), 60, "its entry to go")


def test_the_token_is_in_the_environment_and_nowhere_else(
    job: Job, servers: Servers, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:  # semantics V4
    for name in ("AIRFLOW_CONN_LAKE", "AIRFLOW_VAR_KEY", "AIRFLOW__CORE__FERNET_KEY"):
        monkeypatch.setenv(name, "a secret of Airflow")
    monkeypatch.setenv("AIRFLOW_HOME", "/opt/airflow")
    conf = {"spark.driver.memory": "2g", "spark.pyspark.python": "/opt/python"}
    servers.run("e1", session=ConnectSession(conf=conf))
    [started] = servers.started()
    assert started["environ"]["PYSPARK_PYTHON"] == "/opt/python", "a Connect server does not look at its conf for it"
    assert "a secret of Airflow" not in started["environ"].values(), "Airflow's own variables are not the server's"
    assert started["environ"]["AIRFLOW_HOME"] == "/opt/airflow"
    [nonce] = servers.nonces()
    token = server_token(SECRET, job.storage, job.name, nonce)
    assert started["environ"]["SPARK_CONNECT_AUTHENTICATE_TOKEN"] == token
    rest = {name: value for name, value in started["environ"].items() if name != "SPARK_CONNECT_AUTHENTICATE_TOKEN"}
    stored = [path.read_text(errors="replace") for path in job.folder.rglob("*") if path.is_file()]
    written = [
        path.read_text(errors="replace") for path in Path(started["folder"]).glob("*.*") if path.suffix != ".zip"
    ]
    for text in (json.dumps(started["argv"]), json.dumps(rest), said.text, *stored, *written):
        assert token not in text
        assert SECRET not in text
    pairs = [started["argv"][at + 1] for at, word in enumerate(started["argv"]) if word == "--conf"]
    assert "spark.driver.memory=2g" in pairs
    assert "spark.plugins=org.apache.spark.sql.connect.SparkConnectPlugin" in pairs
    assert "spark.connect.grpc.binding.address=127.0.0.1" in pairs


def test_a_killed_server_is_replaced_before_the_application_begins(servers: Servers, said: Said) -> None:
    """semantics V1"""
    first = servers.first()
    servers.kill()
    servers.run("e2")
    [second] = servers.nonces()
    assert second != first
    assert f"The Spark server {first} is gone" in said.text
    assert not Path(servers.started()[0]["folder"]).exists()
    assert servers.completed() == [1, 2], "no try has failed"


@pytest.mark.soak  # tests/unit/checkpoint/rules/test_server.py says who waits
def test_a_stage_waits_for_the_server_that_another_one_starts(
    job: Job, servers: Servers, monkeypatch: pytest.MonkeyPatch, said: Said
) -> None:  # semantics V1
    nonce = servers.first()
    files = job.coordinator.files
    register = ServerRegister(files, system_runtime())
    written, port = None, 0
    while not isinstance(written, Written):  # the server may renew its lease between the two
        record, blob = files.read(ServersDocument, KEY)
        port = record.servers[0].port or port
        starting = replace(record.servers[0], state=ServerState.STARTING)
        written = files.replace(KEY, record.with_entry(starting), expected_etag=blob.etag)
    monkeypatch.setattr(
        "airflow_cairn.tasks.shared_server.log.info",
        lambda text, *values: register.come_up(nonce, port) if "waiting for it" in text else None,
    )
    servers.run("e2")
    assert servers.nonces() == [nonce]
    assert len(servers.started()) == 1


def on_all_machines() -> ConnectSession:
    """A session whose server listens by TLS; at an address that an author may not ask for: each machine has it."""
    session = ConnectSession(bind_address="0.0.0.0")
    object.__setattr__(session, "bind_address", "127.0.0.1")
    return session


def test_stages_of_all_machines_share_a_server_that_listens_by_tls(
    job: Job, servers: Servers, monkeypatch: pytest.MonkeyPatch, said: Said
) -> None:  # semantics V1, V4
    for run_id in ("e1", "e2"):
        monkeypatch.setattr("airflow_cairn.tasks.shared_server.this_machine", lambda run_id=run_id: f"of-{run_id}")
        servers.run(run_id, session=on_all_machines())
    assert servers.completed() == [1, 2]
    [started] = servers.started()
    record, _ = job.coordinator.files.read(ServersDocument, KEY)
    assert [(each.machine, each.host) for each in record.servers] == [(ANYWHERE, "127.0.0.1")]
    assert "BEGIN ENCRYPTED PRIVATE KEY" in started["environ"]["CAIRN_SERVER_IDENTITY"]
    assert [*Path(started["folder"]).glob("*.pem")] == []


def test_a_server_that_lives_and_is_not_reached_is_no_endless_wait(
    job: Job, servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    register = ServerRegister(job.coordinator.files, system_runtime())
    register.claim(None, ANYWHERE, "elsewhere")
    register.come_up("elsewhere", 1, "spark.example")
    monkeypatch.setattr("airflow_cairn.tasks.shared_server.hear_of", lambda _: Heard.SILENCE)
    monkeypatch.setattr("airflow_cairn.tasks.shared_server.SILENCE_MS", 0)
    with raises_code("server_unreachable", match=r"does not reach it.*hostname_callable.*bind_address.*example:1`"):
        servers.run("e1", session=on_all_machines())
    assert servers.started() == []


def test_an_unreachable_own_server_is_not_started_again(servers: Servers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airflow_cairn.tasks.shared_server.hear_of", lambda _: Heard.NOTHING)  # semantics V1
    with raises_code("server_unreachable", match="this machine does not reach it"):
        servers.run("e1", session=on_all_machines())
    [started] = servers.started()
    assert servers.said(started["pid"])["why"] == "another server has replaced it", "it ends by itself"


def shared(job: Job) -> SharedServer:
    settings = JobSettings(parse_storage_uri(job.storage), job.name, None)
    return SharedServer(ConnectSession(bind_address="0.0.0.0"), "spark_default", settings, job.coordinator, "e1")


def test_other_machines_get_the_workers_airflow_name(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airflow_cairn.tasks.shared_server.get_hostname", lambda: "worker-1.example")
    start = shared(job)._how("n1", SECRET)
    task = start.task("/x")
    assert (task.bind_address, task.host) == ("0.0.0.0", "worker-1.example")
    assert "BEGIN ENCRYPTED PRIVATE KEY" in start.identity
    monkeypatch.setattr("airflow_cairn.tasks.shared_server.get_hostname", lambda: "worker-1.")
    with pytest.raises(InvalidConfigError, match=r"\[core\] hostname_callable.*host=`worker-1\.`"):
        shared(job)._how("n1", SECRET).task("/x")


LISTENER = """
import os, socket, sys
if os.geteuid() == 0:
    os.setuid(65534)
with socket.create_server(("127.0.0.1", int(sys.argv[1])), reuse_port=True) as server:
    print("up", flush=True)
    while True:
        connection, _ = server.accept()
        while data := connection.recv(65536):
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
"""


@contextmanager
def another_users_program(port: int) -> Iterator[Callable[[], bytes]]:
    """Listen at a port and answer nothing; gives what it was sent, once it has been ended."""
    command = [sys.executable, "-c", LISTENER, str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == b"up\n"

        def sent() -> bytes:
            assert program.stdout is not None
            program.kill()
            return program.stdout.read()

        yield sent


def test_a_stranger_at_a_dead_servers_port_gets_nothing(servers: Servers, said: Said) -> None:  # semantics V4
    first = servers.first()
    servers.kill()
    with connect_server(address=f"127.0.0.1:{servers.port()}") as other:
        servers.run("e2")
    assert other.shown == []
    assert servers.nonces() != [first]
    assert f"The Spark server {first} is gone: {Heard.STRANGER}" in said.text
    assert servers.completed() == [1, 2], "no try has failed"


def hear_for_a_moment(monkeypatch: pytest.MonkeyPatch, port: int) -> None:
    """Wait for an answer at this port for 0.3 s; at the port of the server that replaces it as long as ever."""

    def asked(host: str, at: int, authority: str) -> Heard:
        with monkeypatch.context() as patched:
            if at == port:
                patched.setattr("airflow_cairn.spark.execution.transport.CONNECT_S", 0.3)
            return hear(host, at, authority)

    monkeypatch.setattr("airflow_cairn.tasks.shared_server.hear", asked)


@pytest.mark.soak  # test_job_server.py hears the silence; a stranger is above
def test_a_program_that_is_silent_at_a_dead_servers_port_gets_nothing(
    job: Job, servers: Servers, monkeypatch: pytest.MonkeyPatch, said: Said
) -> None:  # semantics V4
    first = servers.first()
    servers.kill()
    hear_for_a_moment(monkeypatch, servers.port())
    monkeypatch.setattr("airflow_cairn.tasks.shared_server.LEASE_MS", 1)
    with another_users_program(servers.port()) as sent:
        servers.run("e2")
        told = sent()
    assert told, "it was asked for its certificate"
    for secret in (SECRET, server_token(SECRET, job.storage, job.name, first), "Bearer"):
        assert secret.encode() not in told
    assert f"The Spark server {first} is gone: {Heard.SILENCE}" in said.text
    assert servers.completed() == [1, 2], "no try has failed"


@pytest.mark.soak  # to a stage it is as silent as the program above
@pytest.mark.parametrize("asked", [0, 1], ids=["before the stage looks", "before the application"])
def test_a_stopped_server_is_replaced_after_its_lease(
    servers: Servers, monkeypatch: pytest.MonkeyPatch, said: Said, asked: int
) -> None:  # semantics V1, V4
    first = servers.first()
    heard = iter([Heard.SERVER] * asked)

    def stops(server: ConnectServer) -> Heard:
        if next(heard, None) is not None:
            os.kill(servers.pid(), signal.SIGSTOP)
            return Heard.SERVER
        return hear_of(server)

    if asked:
        monkeypatch.setattr("airflow_cairn.tasks.shared_server.hear_of", stops)
    else:
        os.kill(servers.pid(), signal.SIGSTOP)
    hear_for_a_moment(monkeypatch, servers.port())
    monkeypatch.setattr("airflow_cairn.tasks.shared_server.LEASE_MS", 1)
    servers.run("e2")
    assert servers.nonces() != [first]
    assert asked or f"The Spark server {first} does not answer: waiting until its lease ends" in said.text
    assert f"The Spark server {first} is gone: {Heard.SILENCE}" in said.text
    assert servers.completed() == [1, 2], "no try has failed"


def test_a_failure_because_of_the_server_names_it(
    servers: Servers, monkeypatch: pytest.MonkeyPatch, said: Said
) -> None:  # semantics V4
    """The server lives, and its Spark never answers: the stage asks again, and one incident counts for all stages."""
    nonce = servers.first()
    unusable = Ended(NOT_RUN, Problem("the host answers, but Spark does not", incurable=False, of_server=True))
    monkeypatch.setattr("airflow_cairn.hooks.spark_connect.ConnectClient.run", lambda _: unusable)
    monkeypatch.setattr("airflow_cairn.tasks.shared_server.SharedServer.why_lost", lambda *_, **__: None)
    with pytest.raises(StageFailedError, match="Spark does not") as failed:
        servers.run("e2")
    assert failed.value.fields["server"] == nonce
    assert said.text.count(f"The Spark server {nonce} is tried again") == 2


@pytest.mark.soak  # tests/unit/checkpoint/rules/test_server.py has clocks
def test_a_dead_starter_with_a_fast_clock_holds_up_no_stage(
    job: Job, servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:  # semantics V1
    ahead = Runtime(lambda: system_runtime().now_ms() + 86_400_000, system_runtime().new_token)
    ServerRegister(job.coordinator.files, ahead).claim(None, this_machine(), "ahead")
    monkeypatch.setattr("airflow_cairn.tasks.shared_server.LEASE_MS", 1)
    servers.run("e1")
    assert "ahead" not in servers.nonces()
    assert servers.completed() == [1]


@pytest.mark.parametrize(
    ("heard", "entry", "lost"),
    [
        (Heard.SERVER, "renewed", None),
        (Heard.SERVER, "left", Heard.SILENCE),
        (Heard.SERVER, "taken away", None),
        (Heard.SILENCE, "renewed", None),
        (Heard.SILENCE, "left", Heard.SILENCE),
        (Heard.SILENCE, "taken away", Heard.SILENCE),
        (Heard.NOTHING, "renewed", Heard.NOTHING),
        (Heard.STRANGER, "renewed", Heard.STRANGER),
    ],
)
def test_a_server_that_could_not_be_used_is_gone_once_its_lease_is_over(
    job: Job, monkeypatch: pytest.MonkeyPatch, heard: Heard, entry: str, lost: Heard | None
) -> None:  # semantics V4
    register = ServerRegister(job.coordinator.files, system_runtime())
    register.claim(None, ANYWHERE, "s1")
    register.come_up("s1", 1, "spark.example")
    if entry == "taken away":
        register.drop("s1")
    monkeypatch.setattr("airflow_cairn.tasks.shared_server.hear_of", lambda _: heard)
    monkeypatch.setattr("airflow_cairn.tasks.shared_server.LEASE_MS", 60_000 if entry == "renewed" else 1)
    monkeypatch.setattr("airflow_cairn.tasks.shared_server.system_sleep", lambda _: register.renew("s1"))
    if entry == "left":
        monkeypatch.setattr("airflow_cairn.tasks.shared_server.system_sleep", lambda _: Event().wait(0.01))
    server = server_of("127.0.0.1", 1, token="x")
    assert shared(job).why_lost("s1", server, waits=True) is lost


@pytest.mark.soak  # it is a stranger to the stage, as above
def test_a_secret_that_was_changed_brings_another_server(servers: Servers, connections: Define, said: Said) -> None:
    """semantics V4"""
    first = servers.first()
    connections("cairn_session", json.dumps({"conn_type": "generic", "password": SECRET[::-1]}))
    servers.run("e2")
    assert servers.nonces() != [first]
    assert servers.said(servers.started()[0]["pid"])["why"] == "another server has replaced it"
    assert f"The Spark server {first} is gone: {Heard.STRANGER}" in said.text
    assert servers.completed() == [1, 2], "no try has failed"


def test_a_failure_names_the_servers_end_and_not_its_own(job: Job, servers: Servers, tmp_path: Path) -> None:
    """semantics F4, V4"""
    nonce = servers.first()
    with pytest.raises(StageFailedError, match="this stage alone") as own:
        servers.run("e2", application_args=["fail"])
    assert "server" not in own.value.fields
    pid = tmp_path / "pid"
    pid.write_text(str(servers.pid()))
    again = servers.stage(retries=1, application_args=["lose the server", str(pid)])
    with pytest.raises(StageFailedError, match="the server is gone") as lost:
        again.execute(context(Ti(run_id="e2", try_number=2)))
    assert lost.value.fields["server"] == nonce
    keys = [each.key for each in job.coordinator.files.store.list(f"{job.name}/") if "/declines/" in each.key]
    said = [json.loads(job.coordinator.files.store.get(key).data).get("server") for key in keys]
    assert sorted(said, key=str) == sorted([None, nonce], key=str), "the declines say so too"


def test_each_epoch_has_a_server_that_ends_with_it(servers: Servers) -> None:
    for run_id in ("e1", "e2"):  # semantics V1
        servers.run(run_id, session=ConnectSession(per="epoch"))
        assert servers.said(servers.pid())["why"] == "its epoch has ended"
    assert len(servers.started()) == 2


def test_a_server_that_does_not_start_says_why_and_holds_nobody_up(servers: Servers) -> None:
    with raises_code("server_start", match=r"ended with status 3 .*\n.*there is no such master"):
        servers.run("e1", session=ConnectSession(conf={"spark.test.do": "fail"}))
    assert servers.nonces() == []
    assert not Path(servers.started()[0]["folder"]).exists()


@pytest.mark.parametrize("mode", [pytest.param("client", marks=pytest.mark.soak), "cluster"])
def test_a_driver_that_fails_before_spark_submit_ends_is_not_started_again(
    servers: Servers, connections: Define, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:  # semantics V1
    monkeypatch.setattr("airflow_cairn.spark.remote.server.ANY_ADDRESS", "127.0.0.1")
    connections("other", json.dumps({"conn_type": "spark", "host": "yarn", "extra": {"deploy-mode": mode}}))
    session = on_all_machines()
    object.__setattr__(session, "conf", {"spark.test.do": "break"})
    with raises_code("server_start", match=r"(?s)ended with status 1 before .*there is no such plugin"):
        servers.run("e1", session=session, group_conn_id="other")
    [started] = servers.started()
    assert servers.nonces() == [], "the stage has taken its entry away"
    assert not Path(started["folder"]).exists()


@pytest.mark.soak  # tests/protocol/test_server_crash_points.py
def test_a_replaced_servers_nonce_is_not_used_again(
    job: Job, servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:  # semantics V1
    register = ServerRegister(job.coordinator.files, system_runtime())
    replaced: list[str] = []

    def meanwhile(text: str, *_: object) -> None:
        if "Starting a Spark server" in text and not replaced:
            replaced.extend(servers.nonces())
            register.claim(None, this_machine(), "other", gone=replaced[0])
        elif "waiting for it" in text:
            register.drop("other")

    monkeypatch.setattr("airflow_cairn.tasks.shared_server.log.info", meanwhile)
    nonce = servers.first()
    assert nonce not in [*replaced, "other"]
    assert servers.completed() == [1]


def test_a_stage_with_a_connection_of_its_own_goes_there(servers: Servers) -> None:
    operator = servers.stage(conn_id="elsewhere", driver_memory="1g")
    assert operator.session is None
    assert operator._conn_id == "elsewhere"


def test_without_a_secret_the_stage_names_the_command_that_makes_one(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AIRFLOW_CONN_CAIRN_SESSION")
    with pytest.raises(AirflowFailException, match=r"airflow connections add cairn_session.*a retry does not help"):
        servers.run("e1")
    assert servers.started() == []


@pytest.mark.parametrize(
    ("connection", "words"),
    [
        ({"conn_type": "spark", "host": "spark://m:7077", "extra": {"deploy-mode": "cluster"}}, "YARN and Kubernetes"),
        ({"conn_type": "spark", "host": "yarn", "extra": {"deploy-mode": "cluster"}}, r'bind_address="0\.0\.0\.0"'),
        ({"conn_type": "spark_connect", "host": "localhost", "port": 15002}, "a server that runs already"),
    ],
)
def test_a_connection_that_starts_no_server_is_refused(
    servers: Servers, connections: Define, connection: dict[str, Any], words: str
) -> None:
    connections("other", json.dumps(connection))
    with pytest.raises(AirflowFailException, match=f"{words}.*a retry does not help"):
        servers.run("e1", group_conn_id="other")
    assert servers.started() == []
    assert servers.nonces() == []


def test_on_a_cluster_the_submission_ends_once_the_server_is_up(
    job: Job, servers: Servers, connections: Define, monkeypatch: pytest.MonkeyPatch, said: Said
) -> None:  # semantics V1, V4
    monkeypatch.setattr("airflow_cairn.spark.remote.server.ANY_ADDRESS", "127.0.0.1")
    connections("other", json.dumps({"conn_type": "spark", "host": "yarn", "extra": {"deploy-mode": "cluster"}}))
    for run_id in ("e1", "e2"):
        servers.run(run_id, session=on_all_machines(), group_conn_id="other")
    assert servers.completed() == [1, 2]
    [started] = servers.started()
    assert started["task"]["folder"] is None, "the one on this machine is none of the server's"
    [submission] = [int(found) for found in re.findall(r"Starting a Spark server .* process (\d+)", said.text)]
    assert _has_ended(submission)
    assert not _has_ended(started["pid"])
    assert not Path(started["folder"]).exists()
    token = server_token(SECRET, job.storage, job.name, servers.nonces()[0])
    environ = started["environ"]
    for text in (json.dumps(started["argv"]), json.dumps(environ), json.dumps(started["task"]), said.text):
        assert token not in text
        assert SECRET not in text
    assert "PRIVATE KEY" not in json.dumps(environ)


@pytest.mark.parametrize(
    ("conf", "options", "why"),
    [
        ({}, {"driver_memory": "1g"}, "driver_memory says how Spark is started"),
        ({"spark.my.password": "hunter2hunter2"}, {}, r"conf spark\.my\.password holds a secret"),
    ],
)
def test_what_no_server_takes_is_refused(servers: Servers, conf: Any, options: Any, why: str) -> None:
    with pytest.raises(InvalidConfigError, match=why):
        servers.stage(ConnectSession(conf=conf), **options)


def test_a_server_idles_no_longer_than_it_is_told() -> None:
    assert ConnectSession(idle=timedelta(minutes=2)).limits().idle_ms == 120_000
