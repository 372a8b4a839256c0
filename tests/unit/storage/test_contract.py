"""The contract of `storage/port.py`, held against local files, a moto server and a real S3 server.

What moto 5.2 lacks is listed here, behaviour by behaviour, and `test_moto_still_lacks_what_is_listed_above` fails when
the list is out of date. Nothing is skipped for it:

- `If-None-Match` on CopyObject is ignored (so does versitygw 1.8): Cairn copies through itself there, and the contract
  holds all the same (`test_a_copy_never_overwrites`).
- `MaxUploads` of ListMultipartUploads is ignored: one page always. Paging of uploads is tested on the real server.
"""

from __future__ import annotations

import io
import tempfile
import time
from collections.abc import Callable

import boto3
import pytest

from airflow_cairn.storage import (
    Blob,
    ConditionFailed,
    DocumentError,
    GoneError,
    InvalidKeyError,
    ObjectStore,
    PendingUpload,
    Written,
)
from airflow_cairn.storage.clock import system_time
from tests.support.errors import raises_code
from tests.unit.storage.backends import Backend
from tests.unit.storage.hostile import HOSTILE_KEYS

SPARK_KEYS = [
    "state/.part-00000-ab.snappy.parquet.crc",
    "state/_SUCCESS",
    "state/__magic_job-1/tasks/x.pending",
    "state/_temporary/0/task_1/part-0",
    "state/day=2024-01-01/origin=A%20B/part-0.parquet",
    "state/part-00000-ab.c000.snappy.parquet",
    "state/with space+plus&amp;'quote",
    "state/zürich",
    "state/￮",
    "state/😀",
]


def keys(store: ObjectStore, prefix: str = "", **kw: str) -> list[str]:
    return [found.key for found in store.list(prefix, **kw)]


def tag(answer: object) -> str:
    assert isinstance(answer, Written)
    return answer.etag


def test_what_is_created_is_read_back_by_every_handle(backend: Backend):
    etag = tag(backend.open().create("job/head.json", b"{}"))
    other = backend.open()
    assert other.get("job/head.json").data == b"{}"
    assert other.get("job/head.json").etag == other.stat("job/head.json").etag == etag
    assert other.stat("job/head.json").size_bytes == 2


def test_what_still_has_its_tag_is_not_read_again(backend: Backend):  # semantics W2, W3, W5
    first = tag(backend.open().create("job/head.json", b"1"))
    store = backend.open()
    assert store.get_if_changed("job/head.json", first) is None
    assert store.get_if_changed("job/head.json", first, max_bytes=1) is None
    second = tag(backend.open().replace("job/head.json", b"22", expected_etag=first))
    assert store.get_if_changed("job/head.json", first) == Blob(b"22", second)
    assert store.get_if_changed("job/head.json", second) is None
    with pytest.raises(DocumentError, match="larger than it may be"):
        store.get_if_changed("job/head.json", first, max_bytes=1)
    store.delete(["job/head.json"])
    with pytest.raises(GoneError):
        store.get_if_changed("job/head.json", second)


def test_a_create_never_overwrites(store: ObjectStore):  # semantics W2
    etag = tag(store.create("job/a", b"mine"))
    for data in (b"theirs", b"mine"):
        assert store.create("job/a", data) == ConditionFailed(etag)
    assert store.get("job/a").data == b"mine"


def test_a_create_from_a_file_is_a_create(store: ObjectStore):  # semantics W2, C5
    data = bytes(range(256)) * 20_000
    with tempfile.TemporaryFile() as source:
        source.write(data)  # and the position stands at the end: all of it is written all the same
        written = tag(store.create_from("k/large", source))
        assert store.get("k/large").data == data
        assert store.stat("k/large").etag == written
        assert store.create_from("k/large", source) == ConditionFailed(written)
        source.truncate(0)
        tag(store.create_from("k/empty", source))
    assert store.get("k/empty").data == b""


def test_a_swap_needs_the_present_tag(store: ObjectStore):  # semantics W2
    first = tag(store.create("head.json", b"1"))
    second = tag(store.replace("head.json", b"2", expected_etag=first))
    assert second != first
    assert store.replace("head.json", b"3", expected_etag=first) == ConditionFailed(second)
    blob = store.get("head.json")
    assert (blob.data, blob.etag) == (b"2", second)


def test_a_swap_on_an_absent_key_is_lost_and_makes_nothing(store: ObjectStore):  # semantics W3
    some = tag(store.create("there", b"x"))
    assert store.replace("absent", b"y", expected_etag=some) == ConditionFailed(None)
    assert store.replace("no/folder/here", b"y", expected_etag=some) == ConditionFailed(None)
    assert keys(store) == ["there"]


def test_a_deleted_key_can_be_created_again_and_not_swapped(store: ObjectStore):
    etag = tag(store.create("a/b", b"x"))
    assert store.delete(["a/b"]) == []
    assert store.replace("a/b", b"y", expected_etag=etag) == ConditionFailed(None)
    assert isinstance(store.create("a/b", b"z"), Written)


def test_an_empty_object_is_an_object(store: ObjectStore):
    tag(store.create("empty", b""))
    assert store.get("empty").data == b""
    assert store.stat("empty").size_bytes == 0
    assert store.read_range("empty", 0, 10) == b""
    assert keys(store) == ["empty"]


def test_a_large_object_comes_back_whole(store: ObjectStore):
    data = bytes(range(256)) * (5 << 12)
    tag(store.create("large", data))
    assert store.get("large", max_bytes=len(data)).data == data
    assert next(store.list("")).size_bytes == len(data)


@pytest.mark.parametrize("key", ["absent", "folder", "folder/absent", "folder/inside/deeper"])
def test_what_is_not_there_is_gone(store: ObjectStore, key: str):
    store.create("folder/inside", b"x")
    verbs = [
        lambda: store.get(key),
        lambda: store.stat(key),
        lambda: store.read_range(key, 0, 1),
        lambda: store.read_range(key, 0, 0),
        lambda: store.copy(key, "target"),
    ]
    for verb in verbs:
        with pytest.raises(GoneError) as raised:
            verb()
        assert raised.value.fields["key"] == key
        assert store.describe() in str(raised.value)
    assert keys(store) == ["folder/inside"]


def test_an_object_over_the_cap_is_refused(store: ObjectStore):  # semantics W5
    tag(store.create("marker", b"x" * 11))
    with pytest.raises(DocumentError) as raised:
        store.get("marker", max_bytes=10)
    assert raised.value.fields["size_bytes"] == 11
    assert store.get("marker", max_bytes=11).data == b"x" * 11


@pytest.mark.parametrize(
    ("start", "length", "expected"),
    [(0, 10, b"0123456789"), (3, 2, b"34"), (8, 10, b"89"), (10, 1, b""), (100, 5, b""), (0, 0, b""), (9, 1, b"9")],
)
def test_a_range_ends_with_the_object(store: ObjectStore, start: int, length: int, expected: bytes):
    tag(store.create("digits", b"0123456789"))
    assert store.read_range("digits", start, length) == expected


@pytest.mark.parametrize(("start", "length"), [(-1, 1), (0, -1)])
def test_a_negative_range_is_refused(store: ObjectStore, start: int, length: int):
    with raises_code("invalid_request"):
        store.read_range("digits", start, length)


def test_a_listing_is_in_key_order_and_starts_after_a_key(store: ObjectStore):  # semantics W1
    names = ["l/a-b", "l/a.b", "l/a/b", "l/a/c/d", "l/a0", "l/b", "l/é", "l/￮", "l/😀"]
    for name in reversed(names):
        tag(store.create(name, name.encode()))
    assert names == sorted(names, key=str.encode)
    assert keys(store) == keys(store, "l/") == names
    for number, name in enumerate(names):
        assert keys(store, "l/", start_after=name) == names[number + 1 :]
    assert keys(store, "l/a/") == ["l/a/b", "l/a/c/d"]
    assert keys(store, "l/", start_after="l/a.c") == names[2:]
    assert keys(store, "l/", start_after="l/a/c") == names[3:]
    assert keys(store, "l/", start_after="k") == names
    assert keys(store, "l/", start_after="m") == []
    assert [found.size_bytes for found in store.list("l/")] == [len(name.encode()) for name in names]


def test_a_prefix_is_a_whole_name(store: ObjectStore):  # semantics W1
    for key in ("job-1/head.json", "job-10/head.json", "job-1.json"):
        tag(store.create(key, b"x"))
    assert keys(store, "job-1/") == ["job-1/head.json"]
    assert keys(store, "job-2/") == []
    for bad in ("job-1", "/", "job-1//", "../", "a\n/"):
        with pytest.raises(InvalidKeyError):
            store.list(bad)
        with pytest.raises(InvalidKeyError):
            store.list_folders(bad)
        with pytest.raises(InvalidKeyError):
            store.uploads(bad)


def test_folders_are_listed_bare_and_once(store: ObjectStore):
    for key in ("j/a/1", "j/a/2", "j/a/x/3", "j/a-b/1", "j/b/1", "j/c/1", "j/d/1", "j/file", "k/1"):
        tag(store.create(key, b""))
    assert list(store.list_folders("j/")) == ["a-b", "a", "b", "c", "d"]
    assert list(store.list_folders("")) == ["j", "k"]
    assert list(store.list_folders("j/b/")) == []
    store.delete(["j/b/1"])
    assert list(store.list_folders("j/")) == ["a-b", "a", "c", "d"]


def test_what_spark_writes_can_be_listed_read_and_deleted(store: ObjectStore):  # semantics W1
    for key in SPARK_KEYS:
        tag(store.create(key, key.encode()))
    assert keys(store, "state/") == sorted(SPARK_KEYS, key=str.encode)
    assert [store.get(key).data.decode() for key in SPARK_KEYS] == SPARK_KEYS
    assert store.delete(keys(store, "state/")) == []
    assert keys(store) == []


def test_a_listing_says_when_an_object_was_written(store: ObjectStore, monkeypatch: pytest.MonkeyPatch):
    """semantics T11: in whatever zone the process is."""
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        tag(store.create("a/1", b"x"))
        (found,) = store.list("")
        assert found.modified_ms is not None
        assert abs(found.modified_ms / 1000 - system_time()) < 600
    finally:
        monkeypatch.undo()
        time.tzset()


def test_deleting_what_is_not_there_is_done(store: ObjectStore):
    tag(store.create("a/1", b""))
    assert store.delete(["a/1", "a/2", "b/c/d", "a/1/deeper"]) == []
    assert store.delete([]) == []
    assert store.delete(iter(["a/1"])) == []
    assert keys(store) == []
    many = [f"many/{number:03}" for number in range(10)]
    for name in (*many, "other"):
        tag(store.create(name, b"x"))
    assert store.delete(many) == [], "over pages"
    assert keys(store) == ["other"]


def test_a_copy_never_overwrites(store: ObjectStore):  # semantics W4
    tag(store.create("from", b"source"))
    copied = tag(store.copy("from", "deep/to"))
    assert store.get("deep/to").data == b"source"
    present = store.stat("deep/to").etag
    store.delete(["from"])
    tag(store.create("from", b"changed"))
    assert store.copy("from", "deep/to") == ConditionFailed(present)
    assert store.get("deep/to").data == b"source"
    assert keys(store) == ["deep/to", "from"]
    assert isinstance(store.replace("deep/to", b"new", expected_etag=copied), Written)


def test_pending_uploads_are_seen_and_aborted(backend: Backend):  # semantics W7
    store = backend.open()
    if backend.begin_upload is None:
        assert list(store.uploads("")) == []
        store.abort_upload(PendingUpload("a", "no-such-upload", 0))
        return
    for key in ("chk-1/a", "chk-1/b", "chk-1/c", "chk-1/d", "chk-10/a"):
        backend.begin_upload(key)
    found = list(store.uploads("chk-1/"))
    assert [upload.key for upload in found] == ["chk-1/a", "chk-1/b", "chk-1/c", "chk-1/d"]
    assert all(upload.initiated_ms > 1_200_000_000_000 for upload in found)
    assert keys(store) == []
    for upload in found:
        store.abort_upload(upload)
        store.abort_upload(upload)
    assert [upload.key for upload in store.uploads("")] == ["chk-10/a"]


def test_hostile_keys_are_refused_by_every_verb(store: ObjectStore):  # semantics W1, W5
    tag(store.create("good", b"x"))
    for key in HOSTILE_KEYS:
        for verb in verbs_for(store, key):
            with pytest.raises(InvalidKeyError):
                verb()
    assert keys(store) == ["good"]


def verbs_for(store: ObjectStore, key: str) -> list[Callable[[], object]]:
    verbs: list[Callable[[], object]] = [
        lambda: store.get(key),
        lambda: store.read_range(key, 0, 1),
        lambda: store.create(key, b"x"),
        lambda: store.create_from(key, io.BytesIO(b"x")),
        lambda: store.replace(key, b"x", expected_etag="x"),
        lambda: store.stat(key),
        lambda: store.copy(key, "target"),
        lambda: store.copy("good", key),
        lambda: store.delete(["good", key]),
        lambda: store.list("", start_after=key),
        lambda: store.abort_upload(PendingUpload(key, "id", 0)),
    ]
    if key:
        verbs.append(lambda: store.spark_url(key))
    return verbs


def test_a_store_says_what_it_is(backend: Backend):
    store = backend.open()
    assert not store.uri.endswith("/")
    assert store.uri in store.describe()
    for secret in ("moto-secret", "cairn-secret-0123456789", "cairn-access"):
        assert secret not in store.describe()
    scheme = {"files": "file://", "gcs": "gs://", "azure": "abfs://"}.get(backend.name, "s3a://")
    assert store.spark_url("") == scheme + store.uri.split("://")[1]
    assert store.spark_url("chk-1/state/") == f"{store.spark_url('')}/chk-1/state/"


def test_moto_still_lacks_what_is_listed_above(moto_url: str):
    client = boto3.client(
        "s3", endpoint_url=moto_url, aws_access_key_id="moto", aws_secret_access_key="moto", region_name="us-east-1"
    )
    client.create_bucket(Bucket="lacking")
    for key in ("from", "to"):
        client.put_object(Bucket="lacking", Key=key, Body=key.encode())
        client.create_multipart_upload(Bucket="lacking", Key=key)
    client.copy_object(Bucket="lacking", Key="to", CopySource={"Bucket": "lacking", "Key": "from"}, IfNoneMatch="*")
    assert client.get_object(Bucket="lacking", Key="to")["Body"].read() == b"from"
    assert len(client.list_multipart_uploads(Bucket="lacking", MaxUploads=1)["Uploads"]) == 2
