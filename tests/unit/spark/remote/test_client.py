"""A client whose application does not end when it is told to, or leaves its session alone for long."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import ExitStack
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import PySparkException

from airflow_cairn.spark.execution.fence import EndSignal
from airflow_cairn.spark.execution.transport import Heard
from airflow_cairn.spark.remote import client
from airflow_cairn.spark.remote.channel import ConnectChannel, channel_builder
from airflow_cairn.spark.remote.server import LOOPBACK, ConnectServer, server_of
from airflow_cairn.spark.remote.submission import VARIABLE, Submission, session_id
from scripts.harness.processes import RealProcess
from scripts.harness.wait import wait_until
from tests.support.connect_stand_in import connect_server
from tests.support.errors import raises_code

ONE = session_id("one")


@pytest.mark.parametrize("there", [True, False], ids=["server is there", "server is gone"])
def test_its_session_is_released_without_it(there: bool, monkeypatch: pytest.MonkeyPatch) -> None:  # semantics V2
    ends, told = list[int](), EndSignal()
    monkeypatch.setattr(client, "END_SIGNAL", told)
    monkeypatch.setattr(client, "CLEAN_UP_S", 0.0)
    monkeypatch.setattr(os, "_exit", ends.append)
    told.told.put(signal.SIGTERM)
    with connect_server() as server:
        at = {"host": "localhost", "port": server.port if there else 1}
        submission = Submission("routes.py", ONE, {}, at)
        if there:
            client._release_in_time(submission)
        else:
            with raises_code("server_unreachable"):
                client._release_in_time(submission)
        assert server.closed == ({("cairn", ONE)} if there else set())
    assert ends == [128 + signal.SIGTERM]


@pytest.mark.parametrize("there", [True, False], ids=["server is there", "server is gone"])
def test_it_is_told_to_end_while_it_connects(tmp_path: Path, there: bool) -> None:  # semantics V2
    """PySpark itself asks a server that is gone for ten minutes, when the process ends."""
    came, go = Event(), Event()
    with ExitStack() as started:
        with connect_server(holds={"spark.author": (came, go)}) as server:
            at = {"host": "localhost", "port": server.port}
            submission = Submission("os.getpid", ONE, {"spark.author": "x"}, at, patience=3)
            told = {**os.environ, VARIABLE: submission.to_json()}
            command = [sys.executable, "-m", "airflow_cairn.spark.remote.client"]
            process = started.enter_context(RealProcess("client", command, tmp_path / "client.log", env=told))
            assert came.wait(300)
            if there:
                os.kill(process.pid, signal.SIGTERM)
                go.set()
                wait_until(lambda: process.returncode is not None, 300, "the client to end")
                assert server.closed == {("cairn", ONE)}
            else:
                os.kill(process.pid, signal.SIGSTOP)  # so that it is told before it has tried again in vain
        if not there:
            os.kill(process.pid, signal.SIGTERM)
            os.kill(process.pid, signal.SIGCONT)
            wait_until(lambda: process.returncode is not None, 300, "the client to end")
        assert process.returncode == 128 + signal.SIGTERM


@pytest.mark.parametrize(
    ("authority", "heard", "asked"),
    [
        ("of Cairn", Heard.NOTHING, 1),
        ("of Cairn", Heard.STRANGER, 1),
        ("of Cairn", Heard.SILENCE, 2),
        ("of Cairn", Heard.SERVER, 2),
        (None, Heard.NOTHING, 0),
    ],
)
def test_calls_are_repeated_while_the_server_of_cairn_lives(
    monkeypatch: pytest.MonkeyPatch, authority: str | None, heard: Heard, asked: int
) -> None:  # semantics V4
    calls = list[object]()

    def hear(*at: object) -> Heard:
        calls.append(at)
        return heard

    monkeypatch.setattr(client, "hear", hear)
    server = ConnectServer(LOOPBACK, 1, "token", authority=authority)
    made = client._open(server, channel_builder(server, ONE), 2)
    try:
        with pytest.raises(Exception, match=r"UNAVAILABLE|failed to connect"):
            made.client.get_configs("spark.app.name")
        assert min(len(calls), 2) == asked, "2: PySpark asks more than once about each failure"
    finally:
        made.stop()


def test_a_session_uses_the_connection_by_which_the_server_was_asked() -> None:
    """With a token PySpark's own channel would be another connection, and through TLS another handshake."""
    with connect_server(token="right") as server:
        at = server_of("localhost", server.port, token="right")
        with ConnectChannel(at) as channel:
            channel.version(ONE)
            made = client._open(at, channel.builder(ONE), 2)
        try:
            made.conf.set("spark.cairn.job", "flights")
        finally:
            made.stop()
        assert [method for method, _, _ in server.asked] == ["AnalyzePlan", "Config", "ReleaseSession"]
        assert len(server.peers) == 1


def test_a_client_that_lives_uses_its_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server closes one that is not used for ten minutes; an application may compute for longer by itself."""
    over, asked = Event(), list[str]()

    class Conf:
        def get(self, key: str, _default: None) -> None:
            asked.append(key)
            if len(asked) == 3:
                over.set()
            raise PySparkException("the server does not answer")

    monkeypatch.setattr(client, "USE_S", 0.001)
    client._keep_open(SimpleNamespace(conf=Conf()), over)  # type: ignore[arg-type]
    assert len(asked) == 3, "it goes on where a call fails, and ends with the application"


class Catalog:
    """Views and calls that the sessions of one server share."""

    def __init__(self) -> None:
        self.views, self.done = set[str](), list[str]()

    def tableExists(self, name: str) -> bool:
        return name in self.views

    def clearCache(self) -> None:
        self.done.append("forgotten")

    def range(self, _rows: int) -> Catalog:
        return self

    def createOrReplaceGlobalTempView(self, name: str) -> None:
        self.done.append(name)
        self.views.add(f"global_temp.{name}")


def test_the_first_stage_of_an_attempt_forgets_what_was_cached_before() -> None:
    """semantics V2: the view comes only afterwards, so that a stage which finds it may rely on it."""
    shared = Catalog()
    conf = SimpleNamespace(get={"spark.sql.globalTempDatabase": "global_temp"}.__getitem__)
    spark: Any = SimpleNamespace(catalog=shared, range=shared.range, conf=conf)
    for attempt in ("7_1", "7_1", "7_2"):
        client.forget_cached(spark, attempt)
    assert shared.done == ["forgotten", "cairn_attempt_7_1", "forgotten", "cairn_attempt_7_2"]
