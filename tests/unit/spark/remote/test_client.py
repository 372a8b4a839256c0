"""A client whose application does not end when it is told to."""

from __future__ import annotations

import os
import signal

import pytest

from airflow_cairn.spark.execution.end_signal import EndSignal
from airflow_cairn.spark.remote import client
from airflow_cairn.spark.remote.channel import ServerUnreachableError
from airflow_cairn.spark.remote.sessions import session_id
from airflow_cairn.spark.remote.submission import Submission
from tests.support.connect_stand_in import connect_server

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
            with pytest.raises(ServerUnreachableError):
                client._release_in_time(submission)
        assert server.closed == ({("cairn", ONE)} if there else set())
    assert ends == [128 + signal.SIGTERM]
