"""Peculiarities of S3: kinds of error, folder markers, copies, and bounds."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from airflow_cairn.storage import (
    ConditionFailed,
    DeleteFailure,
    DocumentError,
    ForbiddenError,
    GoneError,
    InvalidKeyError,
    ObjectStore,
    OutcomeUnknownError,
    S3Options,
    UnavailableError,
    UnsupportedStorageError,
    Written,
    open_store,
    probe,
)
from airflow_cairn.storage.s3.store import S3Store
from scripts.harness.ports import free_port
from scripts.harness.s3_server import S3Server
from tests.support.errors import raises_code
from tests.support.fake_s3 import GIGABYTE, FakeS3, Held
from tests.support.narrowing import expect, known
from tests.support.s3_proxy import Answer, Forward, Request, Rule, S3Proxy, answer

CANARY = "canary-secret-0123456789"


def verbs(store: ObjectStore) -> dict[str, Callable[[], object]]:
    return {
        "get": lambda: store.get("a"),
        "range": lambda: store.read_range("a", 0, 1),
        "stat": lambda: store.stat("a"),
        "create": lambda: store.create("a", b"x"),
        "replace": lambda: store.replace("a", b"x", expected_etag='"x"'),
        "copy": lambda: store.copy("a", "b"),
        "delete": lambda: store.delete(["a"]),
        "list": lambda: list(store.list("")),
        "list_folders": lambda: list(store.list_folders("")),
        "uploads": lambda: list(store.uploads("")),
    }


@pytest.fixture
def lake(s3_bucket: str, s3_options: S3Options) -> ObjectStore:
    return open_store(f"s3://{s3_bucket}/lake", s3=s3_options)


def fake_store(fake: FakeS3, **more: object) -> ObjectStore:
    return open_store("s3://bucket/lake", s3=S3Options(fake.url, None, "access", "secret", **more))  # type: ignore[arg-type]


@pytest.mark.s3
def test_a_bucket_that_does_not_exist_is_named(s3_options: S3Options):
    store = open_store("s3://no-such-bucket/lake", s3=s3_options)
    for name, verb in verbs(store).items():
        expected = "gone" if name in ("stat", "copy") else "bucket_gone"
        with raises_code(expected) as raised:
            verb()
        assert "s3://no-such-bucket/lake" in str(raised.value), name
        assert expected == "gone" or "bucket does not exist. Create it" in str(raised.value), name


@pytest.mark.s3
def test_wrong_credentials_are_forbidden_and_shown_nowhere(lake: ObjectStore, s3_server: S3Server):
    wrong = S3Options(s3_server.endpoint_url, None, s3_server.access_key, CANARY)
    store = open_store(lake.uri, s3=wrong)
    for verb in verbs(store).values():
        with pytest.raises(ForbiddenError) as raised:
            verb()
        chain: BaseException | None = raised.value
        while chain:
            assert CANARY not in f"{chain!s} {chain!r}"
            chain = chain.__cause__
    assert CANARY not in store.describe()
    assert list(lake.list("")) == []


def test_no_credentials_at_all_are_told_from_refused_ones():
    store = open_store("s3://bucket/lake", s3=S3Options("http://127.0.0.1:9"))
    with raises_code("no_credentials", match="no credentials were found, so nothing was asked of the store"):
        store.get("a")


def test_an_unreachable_endpoint_is_unavailable_after_some_tries():
    waits: list[float] = []
    options = S3Options(f"http://127.0.0.1:{free_port()}", None, "access", "secret", max_attempts=5)
    store = open_store("s3://bucket/lake", s3=options, sleep=waits.append, fraction=lambda: 0.5)
    for name, verb in verbs(store).items():
        waits.clear()
        with pytest.raises(UnavailableError, match="did not answer") as raised:
            verb()
        # Nothing was ever sent, so nothing can have landed.
        assert not isinstance(raised.value, OutcomeUnknownError), name
        assert waits == [0.1, 0.2, 0.4, 0.8], name
        assert options.endpoint_url
        assert options.endpoint_url in str(raised.value)


def test_waits_are_jittered_and_capped():
    waits: list[float] = []
    draws = iter([0.0, 0.25, 0.5, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0])
    options = S3Options(f"http://127.0.0.1:{free_port()}", None, "access", "secret", max_attempts=9)
    store = open_store("s3://bucket", s3=options, sleep=waits.append, fraction=lambda: next(draws))
    with pytest.raises(UnavailableError):
        store.get("a")
    assert waits == [0.0, 0.1, 0.4, pytest.approx(1.2), 3.2, 5.0, 5.0, 5.0]


@pytest.mark.s3
@pytest.mark.parametrize(
    ("status", "code", "error", "says"),
    [
        (403, "AccessDenied", "missing_right", "nothing is known about what exists"),
        (400, "ExpiredToken", "forbidden", "ExpiredToken"),
        (403, "RequestTimeTooSkewed", "clock_skew", "RequestTimeTooSkewed"),
        (301, "PermanentRedirect", "unsupported_storage", "another region"),
        (400, "AuthorizationHeaderMalformed", "unsupported_storage", "Set the region"),
        (501, "NotImplemented", "unsupported_storage", "refuses a request that Cairn needs"),
        (400, "KeyTooLongError", "invalid_key", "refuses this name"),
        (404, "NoSuchBucket", "bucket_gone", "bucket does not exist"),
        (404, "NoSuchKey", "gone", "no such object"),
        (503, "SlowDown", "unavailable", "throttled"),
        (400, "RequestTimeout", "unavailable", "throttled"),
        (429, "TooManyRequests", "unavailable", "throttled"),
    ],
)
def test_each_refusal_has_its_kind(s3_server: S3Server, s3_bucket: str, status: int, code: str, error: str, says: str):
    with S3Proxy(s3_server.endpoint_url) as proxy:
        proxy.rules.append(Rule("GET", "a", answer(status, code), times=100))
        options = S3Options(proxy.url, None, s3_server.access_key, s3_server.secret_key, max_attempts=2)
        store = open_store(f"s3://{s3_bucket}", s3=options, sleep=lambda seconds: None)
        with raises_code(error, match=says) as raised:
            store.get("a")
        assert raised.value.fields["key"] == "a"
        # botocore repeats nothing by itself, except that it follows the bucket to its region once: a 301 did nothing.
        assert proxy.count("GET", "a") == (2 if error == "unavailable" or status == 301 else 1)


@pytest.mark.s3
@pytest.mark.parametrize("verb", ["get", "stat", "list"])
def test_a_server_that_answers_everything_by_301_is_named(s3_server: S3Server, s3_bucket: str, verb: str):
    """A captive portal, a wrong address: boto3 asks it for the bucket's region once, and not without end."""
    with S3Proxy(s3_server.endpoint_url) as proxy:
        proxy.rules += [Rule(method, "", answer(301, "PermanentRedirect"), times=100) for method in ("GET", "HEAD")]
        options = S3Options(proxy.url, None, s3_server.access_key, s3_server.secret_key, max_attempts=1)
        store = open_store(f"s3://{s3_bucket}", s3=options)
        acts = {"get": lambda: store.get("a"), "stat": lambda: store.stat("a"), "list": lambda: list(store.list(""))}
        with pytest.raises(UnsupportedStorageError, match=r"another region .* or correct its endpoint"):
            acts[verb]()
        assert len(proxy.requests) <= 3


@pytest.mark.s3
def test_object_and_folder_of_one_name_are_refused(lake: ObjectStore):
    lake.create("a/b", b"x")
    for key in ("a", "a/b/c"):
        with pytest.raises(InvalidKeyError, match="object and a folder of one name"):
            lake.create(key, b"x")


@pytest.mark.s3
def test_folder_markers_are_listed_and_can_be_deleted(lake: ObjectStore, s3_bucket: str, s3_server: S3Server):
    """Folder markers are what s3a makes for empty folders; the cleaner has to see them and to delete them."""
    for key in ("lake/", "lake/chk-1/", "lake/chk-1/state/"):
        s3_server.client().put_object(Bucket=s3_bucket, Key=key, Body=b"")
    lake.create("chk-1/state/x", b"x")
    found = [each.key for each in lake.list("")]
    assert found == ["chk-1/", "chk-1/state/", "chk-1/state/x"]
    assert list(lake.list_folders("")) == ["chk-1"]
    assert lake.delete(found) == []
    assert list(lake.list("")) == []


@pytest.mark.s3
def test_the_root_of_the_bucket_is_a_store_too(s3_bucket: str, s3_options: S3Options):
    root = open_store(f"s3://{s3_bucket}", s3=s3_options)
    inner = open_store(f"s3a://{s3_bucket}/lake/", s3=s3_options)
    assert isinstance(root.create("lake/a", b"x"), Written)
    assert inner.get("a").data == b"x"
    assert inner.uri == f"s3://{s3_bucket}/lake"
    assert [found.key for found in root.list("")] == ["lake/a"]
    assert [found.key for found in inner.list("")] == ["a"]


@pytest.mark.s3
def test_a_key_and_its_prefix_fit_into_what_s3_takes(s3_bucket: str, s3_options: S3Options):
    store = open_store(f"s3://{s3_bucket}/{'p' * 100}", s3=s3_options)
    with pytest.raises(InvalidKeyError, match="more than 1024 bytes"):
        store.get("k" * 1000)


def test_a_store_that_lists_out_of_order_is_refused():  # semantics W6
    with FakeS3(unordered=True) as fake:
        store = fake_store(fake)
        for key in ("a", "b", "c"):
            store.create(key, b"")
        with pytest.raises(UnsupportedStorageError, match="out of order"):
            list(store.list(""))


def test_what_cannot_be_deleted_is_reported():  # semantics W7
    with FakeS3(undeletable=("locked",)) as fake:
        store = fake_store(fake)
        for key in ("a", "locked", "z"):
            store.create(key, b"")
        assert store.delete(["a", "locked", "z"]) == [DeleteFailure("locked", "AccessDenied: locked")]
        assert [found.key for found in store.list("")] == ["locked"]


def test_what_fails_to_be_deleted_in_passing_is_tried_again_with_an_end():
    waits: list[float] = []
    with FakeS3() as fake:
        options = S3Options(fake.url, None, "access", "secret", max_attempts=3)
        store = open_store("s3://bucket", s3=options, sleep=waits.append, fraction=lambda: 1.0)
        for key in ("a", "busy", "stuck"):
            store.create(key, b"")
        fake.busy = {"busy": 2, "stuck": 3}
        assert store.delete(["a", "busy", "stuck"]) == [DeleteFailure("stuck", "InternalError: busy")]
        assert sorted(fake.objects) == ["stuck"]
    assert waits == [0.2, 0.4]


def test_a_copy_stays_on_the_server_where_the_server_copies_once():
    with FakeS3() as fake:
        store = fake_store(fake)
        store.create("from", b"x")
        assert isinstance(store.copy("from", "to"), Written)
        assert isinstance(store.copy("from", "to"), ConditionFailed)
        assert fake.copies == 8 + 2
        assert sorted(fake.objects) == ["lake/from", "lake/to"]
        with pytest.raises(GoneError) as raised:
            store.copy("absent", "other")
        assert raised.value.fields["key"] == "absent"


def test_a_server_whose_copies_race_is_not_trusted_with_them():
    with FakeS3(racing=True) as fake:
        store = fake_store(fake)
        store.create("from", b"x")
        assert isinstance(store.copy("from", "to"), Written)
        assert fake.copies == 8
        assert fake.objects["lake/to"].body == b"x"


def test_racing_copies_have_one_winner():
    with FakeS3() as fake:
        store = fake_store(fake)
        for number in range(8):
            store.create(f"from-{number}", str(number).encode())
        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda number: store.copy(f"from-{number}", "to"), range(8)))
        winners = [number for number, got in enumerate(answers) if isinstance(got, Written)]
        assert [str(number).encode() for number in winners] == [store.get("to").data]


def test_a_copy_between_prefixes_without_a_checksum_is_not_relied_on():
    with FakeS3() as fake:
        source, target = fake_store(fake), fake_store(fake)
        source.create("from", b"x")
        assert target.copy_from(source, "from", "to", etag=fake.objects["lake/from"].etag) is None
        assert fake.copies == 1
        assert target.copy_from(source, "from", "to", etag=fake.objects["lake/from"].etag) is None, "it stands there"
        with pytest.raises(GoneError) as raised:
            target.copy_from(source, "absent", "to", etag="?")
        assert raised.value.fields["key"] == "absent"


def test_an_object_over_five_gib_is_not_copied():
    with FakeS3() as fake:
        store = fake_store(fake)
        fake.objects["lake/huge"] = Held(b"x")
        fake.sizes["lake/huge"] = 5 * 1024**3 + 1
        with raises_code("invalid_request", match="more than 5 GiB"):
            store.copy("huge", "to")
        assert "lake/to" not in fake.objects


def test_a_store_is_opened_without_a_request():
    store = open_store("s3://bucket/lake", s3=S3Options(f"http://127.0.0.1:{free_port()}", None, "a", "b"))
    assert expect(S3Store, store).spark_url("chk-1/state/x") == "s3a://bucket/lake/chk-1/state/x"
    with pytest.raises(UnsupportedStorageError, match="Use s3://bucket/prefix"):
        S3Store("file:///data")


def test_the_settings_of_the_process_are_used_where_none_are_given(monkeypatch: pytest.MonkeyPatch):
    with FakeS3() as fake:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", fake.url)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "access")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", CANARY)
        store = open_store("s3://bucket/lake")
        assert store.describe() == f"s3://bucket/lake at {fake.url}"
        probe(store, nonce="n")


@pytest.mark.parametrize("announced", [True, False], ids=["announced", "sent in pieces"])
def test_a_gigabyte_where_little_is_expected_is_never_read_into_memory(announced: bool):  # semantics W5
    with FakeS3() as fake:
        store = fake_store(fake)
        fake.endless["lake/huge"] = announced
        tracemalloc.start()
        try:
            with pytest.raises(DocumentError, match="larger than it may be") as refused:
                store.get("huge", max_bytes=1 << 20)
            assert store.read_range("huge", 0, 1 << 20) == b" " * (1 << 20)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert refused.value.fields["key"] == "huge"
        assert peak < 16 << 20
        assert fake.sent_bytes < GIGABYTE // 4, "it hung up"


@pytest.mark.s3
def test_an_unchanged_object_is_one_request_without_a_body(s3_server: S3Server, lake: ObjectStore):
    written = lake.create("head.json", b"x" * 1000)
    assert isinstance(written, Written)
    statuses: list[tuple[int, int]] = []

    def noted(request: Request, forward: Forward) -> Answer:
        given = forward(request)
        statuses.append((given.status, len(given.body)))
        return given

    with S3Proxy(s3_server.endpoint_url) as proxy:
        proxy.rules.append(Rule("GET", "head.json", noted))
        options = S3Options(proxy.url, None, s3_server.access_key, s3_server.secret_key)
        assert open_store(lake.uri, s3=options).get_if_changed("head.json", written.etag) is None
        assert statuses == [(304, 0)]
        assert len(proxy.requests) == 1


def test_a_store_that_ignores_the_condition_says_the_same():
    with FakeS3() as fake:
        store = fake_store(fake)
        fake.objects["lake/head.json"] = Held(b"1")
        before = store.get("head.json").etag
        assert store.get_if_changed("head.json", before) is None
        fake.objects["lake/head.json"] = Held(b"2")
        found = store.get_if_changed("head.json", before)
        assert known(found).data == b"2"


def test_a_store_that_ignores_ranges_is_refused_by_name():
    with FakeS3() as fake:
        store = fake_store(fake)
        fake.endless["lake/huge"] = True
        with pytest.raises(UnsupportedStorageError, match="ignores ranges") as refused:
            store.read_range("huge", 5, 10)
        assert fake.url in str(refused.value)
        fake.objects["lake/small"] = Held(b"0123456789")
        assert [store.read_range("small", *each) for each in ((5, 10), (10, 1), (0, 3))] == [b"56789", b"", b"012"]
