"""One client for each server and credentials in a process; what would make another client gives another one."""

from __future__ import annotations

import gc
import os
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from airflow_cairn.storage import S3Options, UnsupportedStorageError
from airflow_cairn.storage.s3 import clients

LAKE = "s3://bucket/lake"
OPTIONS = S3Options("http://127.0.0.1:9", "eu-central-1", "access", "secret")


@pytest.fixture(autouse=True)
def _own_clients(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(clients, "_clients", clients._Clients())
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in clients._FILES:
        monkeypatch.delenv(name, raising=False)


def client(options: S3Options = OPTIONS) -> object:
    given: object = clients.client_for(options, LAKE)
    return given


def test_all_threads_and_equal_options_share_one() -> None:
    with ThreadPoolExecutor(16) as pool:
        found = list(pool.map(lambda _: client(S3Options("http://127.0.0.1:9", None, "access", "secret")), range(64)))
    assert len({id(each) for each in found}) == 1


@pytest.mark.parametrize(
    "other",
    [
        S3Options("http://127.0.0.1:8", "eu-central-1", "access", "secret"),
        S3Options("http://127.0.0.1:9", "eu-central-1", "access", "another"),
        S3Options("http://127.0.0.1:9", "eu-central-1", "access", "secret", "token"),
        S3Options("http://127.0.0.1:9", "eu-central-1", "access", "secret", verify="/bundle.pem"),
    ],
    ids=["endpoint", "secret", "session token", "certificates"],
)
def test_other_options_have_another(other: S3Options) -> None:
    first = client()
    assert client(other) is not first
    assert client() is first


def test_other_credentials_around_it_have_another(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    options = S3Options("http://127.0.0.1:9")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "one")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    first = client(options)
    monkeypatch.setenv("SOMETHING_ELSE", "changed")
    assert client(options) is first
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "two")
    second = client(options)
    assert second is not first
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws" / "credentials").write_text("[default]\n")
    third = client(options)
    assert third is not second, "keys that are renewed in the file are read again"
    assert client(options) is third


def test_those_that_no_store_uses_are_let_go() -> None:
    gone = weakref.ref(client())
    for number in range(clients._KEPT):
        client(S3Options("http://127.0.0.1:9", "eu-central-1", f"access-{number}", "secret"))
    gc.collect()
    assert gone() is None
    used = client()
    for number in range(2 * clients._KEPT):
        client(S3Options("http://127.0.0.1:9", "eu-central-1", f"access-{number}", "secret"))
    assert client() is used


def test_a_forked_process_makes_its_own() -> None:
    """Connections belong to one process; and a thread that held the lock is not there any more."""
    first = client()
    with clients._clients.lock:
        child = os.fork()
        if child == 0:
            code = 1
            try:
                code = 0 if client() is not first else 2
            finally:
                os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert client() is first


def test_options_that_boto3_refuses_are_refused_each_time() -> None:
    for _ in range(2):
        with pytest.raises(UnsupportedStorageError, match="boto3 cannot use these S3 options"):
            client(S3Options("http://no host", None, "access", "secret"))
