"""A stage over Spark Connect: how the client process is started, and what is made of how it ended.

The server is a stand-in that computes nothing (tests/support/connect_stand_in.py). The operator, the client process,
PySpark's client, the epoch, the store and the domain are real.
"""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat
from cryptography.x509.oid import NameOID

from airflow_cairn.checkpoint.answers import Failed
from airflow_cairn.checkpoint.documents.layout import epoch_name
from airflow_cairn.hooks import driver_output
from airflow_cairn.operators import Output, SparkEpochOperator
from airflow_cairn.operators.stage.outcome import StageFailedError
from airflow_cairn.spark.remote.submission import session_id
from airflow_cairn.spark.remote.tls_end import TlsEnd
from tests.support.airflow_fixtures import Define, Said
from tests.support.airflow_stage import Job, Ti, context
from tests.support.connect_stand_in import ConnectStandIn, connect_server
from tests.support.narrowing import expect

pytestmark = pytest.mark.large

RUN = "manual__2001-01-01T00:00:00+00:00"
TOKEN = "canary-0123456789"  # its value is searched for below

APPLICATION = """
import os, signal, sys
from airflow_cairn.spark import Epoch
with Epoch.current() as epoch:
    epoch.put("arguments", sys.argv[1:])
    print("running", epoch.spark.conf.get("spark.sql.shuffle.partitions"), sorted(os.environ) == [])
    if "fail" in sys.argv:
        raise ValueError("this day is broken")
    if "killed" in sys.argv:
        os.kill(os.getpid(), signal.SIGKILL)
    if "stand" in sys.argv:
        print("it stands", flush=True)
        signal.pause()
"""


@pytest.fixture
def server(connections: Define) -> Iterator[ConnectStandIn]:
    """A server that asks for a token, and the connection to it."""
    with connect_server(token=TOKEN) as it:
        connect_to(connections, it)
        yield it


def connect_to(connections: Define, server: ConnectStandIn, **more: Any) -> None:
    told = {"conn_type": "spark_connect", "host": "localhost", "port": server.port, "password": TOKEN}
    connections("warm", json.dumps({**told, **more}))


@pytest.fixture
def application(tmp_path: Path) -> str:
    """A file that opens its epoch and writes no DataFrame."""
    file = tmp_path / "routes.py"
    file.write_text(APPLICATION)
    return str(file)


def stage(of: Job, application: str, **options: Any) -> SparkEpochOperator:
    settings = {"task_id": "routes", "application": application, "storage": of.storage, "job": of.name}
    return SparkEpochOperator(**{**settings, "conn_id": "warm", **options})


def test_an_application_runs_as_a_client_and_its_session_is_released(
    job: Job, server: ConnectStandIn, application: str, said: Said
) -> None:  # semantics V2
    job.trigger(RUN)
    operator = stage(job, application, conf={"spark.sql.shuffle.partitions": 7}, application_args=["--day", "1"])
    result = operator.execute(context(Ti(run_id=RUN)))
    assert result == {"checkpoint": 1, "epoch": epoch_name(RUN), "attempt": 1, "stage": "routes"}
    assert [each.id for each in job.coordinator.head().completed] == [1]
    [session] = server.closed
    assert session == ("cairn", session_id(token_of(server)))
    assert not server.open
    assert "running 7" in said.text
    assert TOKEN not in said.text
    assert TOKEN not in str(server.conf)
    assert operator.conf == {"spark.sql.shuffle.partitions": 7}, "the author's own stays as it was"


PLAIN = """
import pathlib, sys
import pyarrow, pyarrow.parquet
from pyspark.sql import SparkSession
assert SparkSession.builder.getOrCreate().conf.get("spark.sql.shuffle.partitions") == "7"
if sys.argv[1] == "write":
    folder = pathlib.Path(sys.argv[2].removeprefix("file://"))
    folder.mkdir(parents=True)
    pyarrow.parquet.write_table(pyarrow.table({"n": [1]}), folder / "part-0.parquet")
    (folder / "_SUCCESS").touch()
"""


def test_a_program_without_a_block(job: Job, server: ConnectStandIn, tmp_path: Path) -> None:
    """decision 0058: the operator acknowledges over Connect too, and a program that wrote nothing is tried again."""
    file = tmp_path / "plain.py"
    file.write_text(PLAIN)
    job.trigger(RUN)
    conf = {"spark.sql.shuffle.partitions": 7}
    with pytest.raises(StageFailedError, match="was not written, although the program ended"):
        stage(job, str(file), conf=conf, application_args=["nothing", Output()]).execute(context(Ti(run_id=RUN)))
    again = stage(job, str(file), conf=conf, application_args=["write", Output()])
    assert expect(dict, again.execute(context(Ti(run_id=RUN, try_number=2))))["attempt"] == 2
    assert len(set(server.closed)) == 2, "each attempt has a session of its own"
    assert [each.id for each in job.coordinator.head().completed] == [2]


def test_the_session_of_the_try_before_is_closed_first(job: Job, server: ConnectStandIn, application: str) -> None:
    """semantics V2"""
    job.trigger(RUN)
    dead = session_id(job.begin(RUN, claimant="a worker that has died").token)
    stage(job, application).execute(context(Ti(run_id=RUN, try_number=2)))
    assert ("cairn", dead) in server.closed
    released = server.asked.index(("ReleaseSession", "cairn", dead))
    ours = [at for at, (method, _, session) in enumerate(server.asked) if method == "Config" and session != dead]
    assert released < min(ours), "before the application could begin"


def certificate_of_an_operator(host: str) -> tuple[str, bytes]:
    """Give a certificate and its key for a proxy, PEM, the key encrypted; and what a client has to trust."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a proxy")])
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(datetime(2000, 1, 1, tzinfo=UTC))
        .not_valid_after(datetime(9999, 1, 1, tzinfo=UTC))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address(host))]), critical=False)
        .sign(key, hashes.SHA256())
        .public_bytes(Encoding.PEM)
    )
    locked = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(TOKEN.encode()))
    return (made + locked).decode(), made


def test_a_proxy_with_tls_is_in_front_of_a_server_of_the_operators(
    job: Job,
    server: ConnectStandIn,
    application: str,
    connections: Define,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """The proxy's certificate is of an authority that the worker trusts by grpc's own variable."""
    host = "127.0.0.1"
    identity, trusted = certificate_of_an_operator(host)
    roots = tmp_path / "roots.pem"
    roots.write_bytes(trusted)
    monkeypatch.setenv("GRPC_DEFAULT_SSL_ROOTS_FILE_PATH", str(roots))
    with TlsEnd(identity, TOKEN, address=host, target=server.port, folder=str(tmp_path)) as proxy:
        connect_to(connections, server, host=host, port=proxy.port, extra={"use_ssl": True})
        job.trigger(RUN)
        stage(job, application).execute(context(Ti(run_id=RUN)))
    assert [each.id for each in job.coordinator.head().completed] == [1]
    assert len(server.closed) == 1


@pytest.mark.parametrize(
    ("do", "refuses", "why", "log"),
    [
        ("fail", False, "stage routes failed: ValueError: this day is broken", ""),
        ("killed", False, "was killed by signal 9", "its session is released: the server stops what it has begun"),
        ("killed", True, "was killed by signal 9", "its session not released; the next try does that"),
    ],
)
def test_an_application_that_fails_leaves_no_session_open(
    job: Job, server: ConnectStandIn, application: str, said: Said, do: str, refuses: bool, why: str, log: str
) -> None:  # semantics V2
    job.trigger(RUN)
    server.refuses_release = refuses
    with pytest.raises(StageFailedError, match=f"{'the Spark Connect client ' if do == 'killed' else ''}{why}"):
        stage(job, application, application_args=[do]).execute(context(Ti(run_id=RUN)))
    assert log in said.text
    assert TOKEN not in said.text
    assert refuses or (len(server.closed), bool(server.open)) == (1, False)


def test_a_task_whose_time_is_over_ends_its_client(
    job: Job, server: ConnectStandIn, application: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Airflow raises in the middle of `execute`, and calls `on_kill` only when that has ended."""

    class TimeIsOverError(BaseException):
        """Timeout that is no Exception, as Airflow's own."""

    def log(level: int, text: str, *values: object) -> None:
        if "it stands" in text % values:
            raise TimeIsOverError

    monkeypatch.setattr(driver_output.spark, "log", log)
    job.trigger(RUN)
    with pytest.raises(TimeIsOverError):
        stage(job, application, application_args=["stand"]).execute(context(Ti(run_id=RUN)))
    assert len(server.closed) == 1
    assert not server.open
    progress = expect(Failed, job.coordinator.progress(epoch_name(RUN)))
    assert "SystemExit" in progress.detail


@pytest.mark.parametrize(
    ("where", "version", "error", "why"),
    [
        ({"password": "wrong"}, None, AirflowFailException, "does not take the connection's token"),
        ({}, "3.5.6", AirflowFailException, r"is Spark 3\.5\.6, and this worker has PySpark"),
        ({"port": 1}, None, StageFailedError, "cannot be reached"),
    ],
    ids=["a wrong token fails at once", "another Spark fails at once", "a server that is gone is tried again"],
)
def test_servers_that_do_not_serve(
    job: Job, server: ConnectStandIn, application: str, connections: Define,
    where: dict[str, Any], version: str | None, error: type[Exception], why: str,
) -> None:  # fmt: skip  # semantics F4
    connect_to(connections, server, **where)
    server.version = version or server.version
    job.trigger(RUN)
    with pytest.raises(error, match=why):
        stage(job, application).execute(context(Ti(run_id=RUN)))


@pytest.mark.parametrize(
    ("missing", "said"),
    [
        ("{folder}/missing.py", "does not exist on this worker. Over Spark Connect it runs there"),
        ("missing.py", "does not exist on this worker: it was looked for in {here}, where this process was started"),
    ],
)
def test_an_application_that_is_not_there_fails_at_once(
    job: Job, server: ConnectStandIn, tmp_path: Path, missing: str, said: str
) -> None:
    job.trigger(RUN)
    with pytest.raises(AirflowFailException) as failed:
        stage(job, missing.format(folder=tmp_path)).execute(context(Ti(run_id=RUN)))
    assert said.format(here=Path.cwd()) in str(failed.value)
    assert server.asked == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"packages": "a:b:1"}, "packages says how Spark is started"),
        ({"executor_memory": "2g"}, "executor_memory says how Spark is started"),
        ({"deploy_mode": "cluster"}, "deploy_mode says how Spark is started"),
        ({"application": "routes.jar"}, "a Python file or 'package.module.function'"),
    ],
)
def test_what_only_spark_submit_could_follow_is_refused(
    job: Job, server: ConnectStandIn, application: str, options: dict[str, Any], said: str
) -> None:
    job.trigger(RUN)
    with pytest.raises(AirflowFailException, match=said):
        stage(job, **{"application": application, **options}).execute(context(Ti(run_id=RUN)))
    assert server.asked == []


def token_of(server: ConnectStandIn) -> str:
    """Give the token of the execution whose application was handed over."""
    [conf] = server.conf.values()
    return conf["spark.cairn.handover"].rpartition("/")[2].removesuffix(".json")
