"""Address of the job's Spark server: who answers there, and what a decline says of it (semantics F4, V4)."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from airflow_cairn.spark.execution import transport
from airflow_cairn.spark.execution.transport import Heard, JobServer, hear
from airflow_cairn.spark.remote.register import ServerRegister
from airflow_cairn.spark.remote.server import this_machine
from airflow_cairn.spark.remote.tls_end import TlsEnd, certificate, certificate_authority
from airflow_cairn.storage.clock import system_runtime
from tests.support.airflow_stage import Job

TOKEN = "the-servers-token"


SPARKS = ("the server", "another server", "its Spark hangs", "its Spark is gone")


@contextmanager
def spark(kind: str) -> Iterator[int]:
    """Port that a server forwards to: Spark Connect's HTTP/2, as far as its first answer."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        if kind == "its Spark is gone":
            server.close()
        if not kind.endswith("server"):
            yield port
            return

        def answer() -> None:
            with suppress(OSError):
                connection, _ = server.accept()
                with connection:
                    connection.sendall(bytes((0, 0, 0, 4, 0, 0, 0, 0, 0)))
                    while connection.recv(65536):
                        pass

        thread = Thread(target=answer)
        thread.start()
        yield port
        server.shutdown(socket.SHUT_RDWR)
        thread.join()


@contextmanager
def listening(kind: str, folder: Path) -> Iterator[int]:
    """Something at a port: a server, by what its Spark does; a program that `talks`, one that is `mute`, or nothing."""
    if kind in SPARKS:
        token = "another token" if kind == "another server" else TOKEN
        with (
            spark(kind) as target,
            TlsEnd(certificate(token), token, address="127.0.0.1", target=target, folder=str(folder)) as end,
        ):
            yield end.port
        return
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        if kind == "nothing":
            server.close()
        elif kind == "talks":

            def answer() -> None:
                connection, _ = server.accept()
                with connection, suppress(ConnectionError):
                    connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                    while connection.recv(65536):
                        pass

            thread = Thread(target=answer)
            thread.start()
            yield port
            thread.join()
            return
        yield port


@pytest.mark.parametrize(
    ("kind", "heard"),
    [
        ("the server", Heard.SERVER),
        ("another server", Heard.STRANGER),
        ("its Spark hangs", Heard.SILENCE),
        ("its Spark is gone", Heard.NOTHING),
        ("talks", Heard.STRANGER),
        ("mute", Heard.SILENCE),
        ("nothing", Heard.NOTHING),
    ],
)
def test_only_the_server_itself_is_taken_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, heard: Heard
) -> None:  # semantics V4
    monkeypatch.setattr(transport, "CONNECT_S", 0.3 if kind in ("mute", "its Spark hangs") else 60.0)
    with listening(kind, tmp_path) as port:
        assert hear("127.0.0.1", port, certificate_authority(TOKEN)) is heard


@pytest.mark.parametrize(
    ("heard", "lease_ms", "lost"),
    [
        (Heard.SERVER, 60_000, False),
        (Heard.SERVER, 0, True),
        (Heard.SILENCE, 60_000, False),
        (Heard.SILENCE, 0, True),
        (Heard.SILENCE, None, True),
        (Heard.SERVER, None, False),
        (Heard.NOTHING, 60_000, True),
        (Heard.STRANGER, 60_000, True),
    ],
)
def test_a_decline_names_the_server_that_is_gone(
    job: Job, monkeypatch: pytest.MonkeyPatch, heard: Heard, lease_ms: int | None, lost: bool
) -> None:  # semantics F4, V4
    monkeypatch.setattr("airflow_cairn.checkpoint.rules.server.LEASE_MS", lease_ms or 0)
    register = ServerRegister(job.coordinator.files, system_runtime())
    register.claim(None, this_machine(), "s1")
    if lease_ms is None:
        register.drop("s1")
    monkeypatch.setattr(transport, "hear", lambda *_: heard)
    it = JobServer()
    it.use("s1", "127.0.0.1", 1, "PEM")
    assert it.lost(job.coordinator.files) == ("s1" if lost else "")


@pytest.mark.parametrize(("nonce", "pem"), [("", "PEM"), ("", None)])
def test_a_server_of_the_authors_is_none_of_ours(job: Job, nonce: str, pem: str | None) -> None:
    it = JobServer()
    assert it.lost(job.coordinator.files) == "", "the application runs on none"
    it.use(nonce, "127.0.0.1", 1, pem)
    assert it.lost(job.coordinator.files) == ""


def test_a_store_that_does_not_answer_leaves_it_open(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "hear", lambda *_: Heard.SILENCE)
    it = JobServer()
    it.use("s1", "127.0.0.1", 1, "PEM")

    class Broken:
        def read(self, *_: Any) -> Any:
            from airflow_cairn.storage.errors import UnavailableError

            raise UnavailableError("it does not answer")

    files: Any = Broken()
    assert it.lost(files) == ""
