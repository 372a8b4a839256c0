"""What a decline says of the Spark server that the job's stages share (semantics F4, V4)."""

from __future__ import annotations

import socket

import pytest

from airflow_cairn.spark.execution.job_server import JobServer, listens


def test_a_server_that_refuses_connections_is_lost() -> None:  # semantics V4
    it = JobServer()
    assert it.lost() == "", "the application runs on none"
    with socket.create_server(("127.0.0.1", 0)) as server:
        it.use("s1", "127.0.0.1", port := server.getsockname()[1])
        assert it.lost() == "", "the stage's own error"
    assert it.lost() == "s1"
    it.use("", "127.0.0.1", port)
    assert it.lost() == "", "the author's own server"


def test_a_machine_that_does_not_answer_is_told_from_a_port_that_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    def times_out(*_: object) -> None:
        raise TimeoutError("no answer")

    monkeypatch.setattr("socket.create_connection", times_out)
    assert listens("127.0.0.1", 1) is None
    it = JobServer()
    it.use("s1", "127.0.0.1", 1)
    assert it.lost() == "", "it may be busy"
