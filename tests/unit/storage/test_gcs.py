"""What is particular to Google Cloud Storage: lost answers, kinds of error, copies, rules, and processes that race."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from airflow_cairn.storage import (
    ConditionFailed,
    DeleteFailure,
    ForbiddenError,
    GcsOptions,
    GoneError,
    ObjectStore,
    StorageError,
    UnavailableError,
    UnsupportedStorageError,
    Written,
    open_store,
)
from airflow_cairn.storage import open as opening
from airflow_cairn.storage.network.waiting import Waiting
from airflow_cairn.storage.port import LifecycleRule
from scripts.harness.gcs_server import GcsServer
from tests.support.s3_proxy import Action, Answer, Forward, Request, Rule, S3Proxy, lose_the_answer, lose_the_request
from tests.unit.storage.test_local_processes import Workers, hear, tell

pytestmark = pytest.mark.s3

CANARY = "canary-secret-0123456789"
SHA = f"sha256:{'ab' * 32}"


def said(status: int, reason: str, message: str = "said the proxy", *, after: bool = False) -> Action:
    """Answer as the service does; with `after`, it has done it all the same."""

    def act(request: Request, forward: Forward) -> Answer:
        if after:
            forward(request)
        error = {"code": status, "message": message, "errors": [{"reason": reason, "message": message}]}
        return Answer(status, [("Content-Type", "application/json")], json.dumps({"error": error}).encode())

    return act


@pytest.fixture
def proxy(gcs_server: GcsServer) -> Iterator[S3Proxy]:
    with S3Proxy(gcs_server.endpoint_url) as running:
        yield running


@pytest.fixture
def bucket(gcs_server: GcsServer, request: pytest.FixtureRequest) -> str:
    return gcs_server.create_bucket(f"g-{abs(hash(request.node.nodeid)):x}")


@pytest.fixture
def store(proxy: S3Proxy, bucket: str) -> ObjectStore:
    options = GcsOptions(proxy.url, max_attempts=3)
    return open_store(f"gs://{bucket}/lake", gcs=options, sleep=lambda _: None)


def tag(answer: object) -> str:
    assert isinstance(answer, Written)
    return answer.etag


@pytest.mark.parametrize(
    ("lost", "lands"),
    [
        pytest.param(lose_the_answer, True, id="connection cut"),
        pytest.param(said(503, "backendError", after=True), True, id="503"),
        pytest.param(lose_the_request, False, id="never arrived"),
        pytest.param(said(429, "rateLimitExceeded"), False, id="429"),
    ],
)
def test_a_write_whose_answer_is_lost_is_made_once(
    store: ObjectStore, proxy: S3Proxy, lost: Action, lands: bool
) -> None:  # semantics W2, W3
    proxy.rules.append(Rule("POST", "/o", lost))
    first = tag(store.create("head.json", b"1"))
    proxy.rules.append(Rule("POST", "/o", lost))
    second = tag(store.replace("head.json", b"2", expected_etag=first))
    assert (store.get("head.json").data, store.get("head.json").etag) == (b"2", second)
    assert proxy.count("POST", "/o") == (2 if lands else 4)
    proxy.rules.append(Rule("POST", "/o", lost))
    assert store.create("head.json", b"3") == ConditionFailed(second)


def test_a_name_that_is_busy_all_the_time_is_no_lost_answer(store: ObjectStore, proxy: S3Proxy) -> None:
    proxy.rules.append(Rule("POST", "/o", said(429, "rateLimitExceeded"), times=9))
    with pytest.raises(UnavailableError, match="rateLimitExceeded") as raised:
        store.create("head.json", b"1")
    assert raised.value.code == "unavailable", "not an unknown outcome: nothing landed"


@pytest.mark.parametrize(
    ("status", "reason", "message", "error", "text"),
    [
        (401, "authError", "Invalid Credentials", ForbiddenError, "refuses these credentials"),
        (403, "forbidden", "x does not have storage.objects.get", ForbiddenError, "this takes storage.objects.get"),
        (403, "rateLimitExceeded", "slow", UnavailableError, "throttled"),
        (404, "notFound", "The specified bucket does not exist.", GoneError, "bucket does not exist"),
        (404, "notFound", "No such object: b/lake/a", GoneError, "no such object"),
        (500, "backendError", "oops", UnavailableError, "fails or is throttled"),
        (501, "notImplemented", "no", UnsupportedStorageError, "a request that Cairn needs"),
    ],
)
def test_each_refusal_has_its_kind(
    store: ObjectStore, proxy: S3Proxy, status: int, reason: str, message: str, error: type[StorageError], text: str
) -> None:  # semantics W3
    proxy.rules.append(Rule("GET", "a", said(status, reason, message), times=9))
    for verb in (store.get, store.stat, lambda key: store.read_range(key, 0, 1)):
        with pytest.raises(error, match=text) as raised:
            verb("a")
        assert raised.value.fields["key"] == "a"


def test_what_may_not_be_deleted_is_reported(store: ObjectStore, proxy: S3Proxy) -> None:  # semantics W7
    for key in ("a", "b"):
        store.create(key, b"x")
    proxy.rules.append(Rule("DELETE", "a", said(403, "retentionPolicyNotMet", "kept")))
    [failure] = store.delete(["a", "b"])
    assert isinstance(failure, DeleteFailure) and failure.key == "a" and "retentionPolicyNotMet" in failure.reason
    assert [each.key for each in store.list("")] == ["a"]


def test_the_server_copies_what_the_generation_vouches_for(store: ObjectStore, proxy: S3Proxy) -> None:  # semantics W9
    etag = tag(store.create("a", b"content"))
    target = store.below("kept")
    assert target.copy_from(store, "a", "b", etag=etag, content=SHA) == (SHA,)
    assert not [seen for seen in proxy.requests if "alt=media" in seen.target]
    assert target.get("b").data == b"content"
    assert target.copy_from(store, "a", "c", etag="1", content=SHA) is None, "another generation"
    assert target.copy_from(store, "a", "c", etag=etag) is None, "no checksum that anybody has computed"
    proxy.rules.append(Rule("POST", "kept/c", lambda _, forward: _other_crc(forward(_))))
    assert target.copy_from(store, "a", "c", etag=etag, content=SHA) is None, "the copy differs from its source"
    with pytest.raises(GoneError):
        target.copy_from(store, "absent", "c", etag=etag, content=SHA)


def _other_crc(answer: Answer) -> Answer:
    body = json.loads(answer.body)
    body["resource"]["crc32c"] = "AAAAAA=="
    headers = [(name, value) for name, value in answer.headers if name.lower() != "content-length"]
    return Answer(answer.status, headers, json.dumps(body).encode())


def test_rules_of_a_bucket(store: ObjectStore, proxy: S3Proxy, bucket: str) -> None:
    rules = [
        {"action": {"type": "Delete"}, "condition": {"age": 30, "matchesPrefix": ["lake/", "logs/"]}},
        {"action": {"type": "Delete"}, "condition": {"daysSinceNoncurrentTime": 7}},
        {"action": {"type": "SetStorageClass", "storageClass": "ARCHIVE"}, "condition": {"age": 1}},
    ]
    found = {"lifecycle": {"rule": rules}, "versioning": {"enabled": True}, "retentionPolicy": {"retentionPeriod": "9"}}
    proxy.rules.append(Rule("GET", bucket, lambda *_: Answer(200, [], json.dumps(found).encode())))
    read = store.bucket_rules()
    assert read is not None
    assert read.lifecycle == (
        LifecycleRule("number 1", "lake/", expires="after 30 days"),
        LifecycleRule("number 2", "", ends_old_versions=True),
    )
    assert (read.versioned, read.retention, read.unknown) == (True, "retention policy, 9 seconds", {})
    proxy.rules.append(Rule("GET", bucket, said(403, "forbidden")))
    read = store.bucket_rules()
    assert read is not None and "storage.buckets.get" in read.unknown["lifecycle"]


@pytest.mark.parametrize("broken", ["absent", "no JSON", "no key"])
def test_credentials_that_cannot_be_used_are_named_and_shown_nowhere(tmp_path: Path, broken: str) -> None:
    file = tmp_path / "key.json"
    if broken != "absent":
        file.write_text(json.dumps({"private_key": CANARY}) if broken == "no key" else f"{{{CANARY}")
    store = open_store("gs://lake/x", gcs=GcsOptions("https://127.0.0.1:9", key_path=str(file)))
    with pytest.raises(ForbiddenError) as raised:
        store.get("a")
    assert raised.value.code == "no_credentials"
    assert str(file) in str(raised.value) and CANARY not in str(raised.value)


def test_a_connection_that_is_mended_meanwhile_is_taken(gcs_server: GcsServer, bucket: str) -> None:
    right = GcsOptions(gcs_server.endpoint_url)
    open_store(f"gs://{bucket}/lake", gcs=right).create("a", b"1")
    wrong, now = GcsOptions("https://127.0.0.1:9", key_path="/absent/key.json"), [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    waiting = Waiting("the connection google", lambda: right)
    store = open_store(f"gs://{bucket}/lake", gcs=wrong, sleep=sleep, clock=lambda: now[0], waiting=waiting)
    assert store.get("a").data == b"1"
    assert now[0] == 1.0


def test_options_that_cannot_work() -> None:
    for endpoint in (f"http://user:{CANARY}@host", f"https://host?sig={CANARY}", "host:1"):
        with pytest.raises(StorageError, match="no URL") as raised:
            GcsOptions(endpoint)
        assert CANARY not in str(raised.value)
    with pytest.raises(StorageError, match="above 0"):
        GcsOptions(max_attempts=0)


def test_without_the_packages_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "find_spec", lambda name: None if name == "google.auth" else name)
    opening.check_packages("s3://lake/x")
    for attempt in (opening.check_packages, open_store):
        with pytest.raises(UnsupportedStorageError, match=r"airflow-cairn\[gcs\]"):
            attempt("gs://lake/x")


@pytest.fixture
def workers(gcs_server: GcsServer, bucket: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Workers]:
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", gcs_server.endpoint_url)
    running = Workers(f"gs://{bucket}/race")
    yield running
    running.end()


def test_of_sixteen_processes_one_wins_each_round(workers: Workers) -> None:  # semantics W2, W6
    racers = [workers.start("race", "job/x", "20") for _ in range(16)]
    every: Callable[[], list[str]] = lambda: [hear(racer) for racer in racers]  # noqa: E731
    assert set(every()) == {"ready"}
    for number, racer in enumerate(racers):
        tell(racer, str(number))
    assert set(every()) == {"ready"}
    for racer in racers:
        tell(racer)
    won = [one for racer in racers for one in json.loads(hear(racer))]
    assert sorted(won) == sorted(f"{verb} {n}" for verb in ("create", "swap") for n in range(20))


def test_no_swap_of_sixteen_processes_is_lost(workers: Workers) -> None:  # semantics W2
    store = open_store(workers.where)
    store.create("n", b"0")
    counters = [workers.start("count", "n", "4") for _ in range(16)]
    assert {hear(counter) for counter in counters} == {"ready"}
    for counter in counters:
        tell(counter)
    assert {hear(counter) for counter in counters} == {"done"}
    assert store.get("n").data == b"64"
