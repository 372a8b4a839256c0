"""Google Cloud Storage and Azure: lost answers, kinds of error, folders, copies, rules, and processes that race."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer
from io import BytesIO
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import requests

from airflow_cairn.checkpoint.answers import EpochCompleted
from airflow_cairn.checkpoint.health.examine import examine_storage
from airflow_cairn.checkpoint.reasons import AckAnswer
from airflow_cairn.storage import (
    AzureOptions,
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
    ensure_probed,
    open_store,
)
from airflow_cairn.storage import azure as azure_store
from airflow_cairn.storage import open as opening
from airflow_cairn.storage.azure import send
from airflow_cairn.storage.clock import Runtime
from airflow_cairn.storage.facts import facts_of
from airflow_cairn.storage.names import order
from airflow_cairn.storage.network.http import request, sending_once
from airflow_cairn.storage.network.waiting import Waiting
from airflow_cairn.storage.open import StoreOptions
from airflow_cairn.storage.port import LifecycleRule, ObjectStat
from scripts.harness.azure_server import HOST, AzureServer
from scripts.harness.gcs_server import GcsServer
from tests.support.s3_proxy import Action, Answer, Forward, Request, Rule, S3Proxy, lose_the_answer, lose_the_request
from tests.support.world.world import World
from tests.unit.storage.test_local_processes import Workers, hear, tell

pytestmark = pytest.mark.s3

CANARY = "canary-secret-0123456789"
SHA = f"sha256:{'ab' * 32}"
AZURE = f"abfss://lake@{HOST}"


@dataclass(frozen=True)
class Cloud:
    """One cloud's emulator behind a proxy."""

    name: str
    root: str
    """URI of an empty bucket."""
    endpoint_url: str
    """URL of the server, without the proxy."""
    proxy: S3Proxy

    def options(self, endpoint_url: str, **settings: Any) -> StoreOptions:
        return (GcsOptions if self.name == "gcs" else AzureOptions)(endpoint_url, **settings)

    def open(self) -> ObjectStore:
        options = self.options(self.proxy.url, max_attempts=3)
        return open_store(f"{self.root}/lake", options=options, sleep=lambda _: None)

    @property
    def write(self) -> tuple[str, str]:
        """The request of a write of `head.json`."""
        return ("POST", "/o") if self.name == "gcs" else ("PUT", "head.json")

    def said(self, status: int, code: str, message: str = "said the proxy", *, after: bool = False) -> Action:
        """Answer as the service does; with `after`, it has done it all the same."""

        def act(request: Request, forward: Forward) -> Answer:
            if after:
                forward(request)
            if self.name == "azure":
                return Answer(status, [("x-ms-error-code", code)], b"")
            error = {"code": status, "message": message, "errors": [{"reason": code, "message": message}]}
            return Answer(status, [("Content-Type", "application/json")], json.dumps({"error": error}).encode())

        return act


@pytest.fixture
def cloud(request: pytest.FixtureRequest) -> Iterator[Cloud]:
    name: str = request.param
    bucket = f"c-{abs(hash(request.node.nodeid)):x}"
    server: GcsServer | AzureServer = request.getfixturevalue(f"{name}_server")
    with S3Proxy(server.endpoint_url) as proxy:
        yield Cloud(name, server.root_of(bucket), server.endpoint_url, proxy)


on_both = pytest.mark.parametrize("cloud", ["gcs", "azure"], indirect=True)
on_google = pytest.mark.parametrize("cloud", ["gcs"], indirect=True)
on_azure = pytest.mark.parametrize("cloud", ["azure"], indirect=True)


def tag(answer: object) -> str:
    assert isinstance(answer, Written)
    return answer.etag


@pytest.mark.parametrize(
    ("cloud", "lost", "lands"),
    [
        ("gcs", lose_the_answer, True),
        ("azure", lose_the_answer, True),
        ("gcs", (503, "backendError", True), True),
        ("azure", (503, "ServerBusy", True), True),
        ("gcs", lose_the_request, False),
        ("azure", lose_the_request, False),
        ("gcs", (429, "rateLimitExceeded", False), False),
    ],
    indirect=["cloud"],
)
def test_a_write_whose_answer_is_lost_is_made_once(cloud: Cloud, lost: Any, lands: bool) -> None:  # semantics W2, W3
    store, proxy = cloud.open(), cloud.proxy
    lose = Rule(*cloud.write, cloud.said(lost[0], lost[1], after=lost[2]) if isinstance(lost, tuple) else lost)
    proxy.rules.append(lose)
    first = tag(store.create("head.json", b"1"))
    proxy.rules.append(Rule(*cloud.write, lose.action))
    second = tag(store.replace("head.json", b"2", expected_etag=first))
    assert (store.get("head.json").data, store.get("head.json").etag) == (b"2", second)
    assert proxy.count(*cloud.write) == (2 if lands else 4)
    proxy.rules.append(Rule(*cloud.write, lose.action))
    assert store.create("head.json", b"3") == ConditionFailed(second)


@on_google
def test_a_name_that_is_busy_all_the_time_is_no_lost_answer(cloud: Cloud) -> None:
    cloud.proxy.rules.append(Rule("POST", "/o", cloud.said(429, "rateLimitExceeded"), times=9))
    with pytest.raises(UnavailableError, match="rateLimitExceeded") as raised:
        cloud.open().create("head.json", b"1")
    assert raised.value.code == "unavailable", "not an unknown outcome: nothing landed"


@pytest.mark.parametrize(
    ("cloud", "status", "code", "message", "error", "text"),
    [
        ("gcs", 401, "authError", "Invalid Credentials", ForbiddenError, "refuses these credentials"),
        ("gcs", 403, "forbidden", "x does not have it", ForbiddenError, "this takes storage.objects.get"),
        ("gcs", 403, "rateLimitExceeded", "slow", UnavailableError, "throttled"),
        ("gcs", 404, "notFound", "The specified bucket does not exist.", GoneError, "bucket does not exist"),
        ("gcs", 404, "notFound", "No such object: b/lake/a", GoneError, "no such object"),
        ("gcs", 500, "backendError", "oops", UnavailableError, "fails or is throttled"),
        ("gcs", 501, "notImplemented", "no", UnsupportedStorageError, "a request that Cairn needs"),
        ("azure", 401, "InvalidAuthenticationInfo", "", ForbiddenError, "refuses these credentials"),
        ("azure", 403, "AuthorizationPermissionMismatch", "", ForbiddenError, "this takes Microsoft.Storage"),
        ("azure", 404, "ContainerNotFound", "", GoneError, "container does not exist"),
        ("azure", 404, "BlobNotFound", "", GoneError, "no such object"),
        ("azure", 409, "ContainerBeingDeleted", "", GoneError, "container does not exist"),
        ("azure", 503, "ServerBusy", "", UnavailableError, "fails or is throttled"),
        ("azure", 501, "NotImplemented", "", UnsupportedStorageError, "a request that Cairn needs"),
    ],
    indirect=["cloud"],
)
def test_each_refusal_has_its_kind(
    cloud: Cloud, status: int, code: str, message: str, error: type[StorageError], text: str
) -> None:  # semantics W3
    store = cloud.open()
    for method in ("GET", "HEAD"):
        cloud.proxy.rules.append(Rule(method, "a", cloud.said(status, code, message), times=9))
    for call in (store.get, store.stat, lambda key: store.read_range(key, 0, 1)):
        with pytest.raises(error, match=text) as raised:
            call("a")
        assert raised.value.fields["key"] == "a"


@pytest.mark.parametrize(
    ("cloud", "status", "code"),
    [
        ("gcs", 403, "retentionPolicyNotMet"),
        ("azure", 409, "BlobImmutableDueToPolicy"),
        ("azure", 409, "LeaseIdMissing"),
    ],
    indirect=["cloud"],
)
def test_what_may_not_be_deleted_is_reported(cloud: Cloud, status: int, code: str) -> None:  # semantics W7
    store = cloud.open()
    for key in ("a", "b"):
        store.create(key, b"x")
    cloud.proxy.rules.append(Rule("DELETE", "a", cloud.said(status, code)))
    [failure] = store.delete(["a", "b"])
    assert isinstance(failure, DeleteFailure) and failure.key == "a" and code in failure.reason
    assert [each.key for each in store.list("")] == ["a"]


@pytest.mark.parametrize(
    ("cloud", "refusal"),
    [("gcs", (403, "retentionPolicyNotMet")), ("azure", (409, "BlobImmutableDueToPolicy"))],
    indirect=["cloud"],
)
def test_a_locked_bucket_refuses_a_swap_and_says_so(cloud: Cloud, refusal: tuple[int, str]) -> None:  # semantics W3
    store = cloud.open()
    etag = tag(store.create("head.json", b"1"))
    cloud.proxy.rules.append(Rule(*cloud.write, cloud.said(*refusal)))
    with pytest.raises(ForbiddenError, match=refusal[1]):
        store.replace("head.json", b"2", expected_etag=etag)
    assert store.get("head.json").data == b"1"


@on_google
def test_a_versioned_bucket_shows_what_is_live(cloud: Cloud) -> None:  # semantics W2, W7
    versioned: Any = {"name": "versioned", "versioning": {"enabled": True}}
    requests.post(f"{cloud.endpoint_url}/storage/v1/b?project=tests", json=versioned, timeout=30).raise_for_status()
    store = open_store("gs://versioned/lake", options=cloud.options(cloud.endpoint_url))
    second = tag(store.replace("a", b"2", expected_etag=tag(store.create("a", b"1"))))
    assert [(each.key, each.etag) for each in store.list("")] == [("a", second)]
    assert store.delete(["a"]) == []
    assert list(store.list("")) == []
    with pytest.raises(GoneError):
        store.get("a")
    assert tag(store.create("a", b"3")) != second
    rules = store.bucket_rules()
    assert rules is not None and rules.versioned


@on_both
def test_an_upload_that_a_killed_driver_left_is_no_object(cloud: Cloud) -> None:  # semantics W1, W7
    """Google's session of an upload, or Azure's blocks that nobody has committed: the service ends them by itself."""
    store, bucket = cloud.open(), cloud.root.partition("://")[2].partition("@")[0]
    if cloud.name == "gcs":
        where = f"{cloud.endpoint_url}/upload/storage/v1/b/{bucket}/o?uploadType=resumable&name=lake/a"
        begun = requests.post(where, json={}, timeout=30)
        begun.raise_for_status()
        assert "upload_id=" in begun.headers["Location"]
    else:
        block = {"comp": "block", "blockid": "MDAwMQ=="}
        send(AzureOptions(cloud.endpoint_url), HOST, "PUT", f"/{bucket}/lake/a", block, {}, BytesIO(b"half")).body()
    assert (list(store.list("")), list(store.uploads(""))) == ([], [])
    with pytest.raises(GoneError):
        store.get("a")
    assert store.delete(["a"]) == []


STORAGE = Path(__file__).parents[3] / "docs" / "reference" / "storage.md"


def documented(cloud: str) -> dict[str, frozenset[str]]:
    """By role, the rights in the table of the documentation."""
    _, _, rest = STORAGE.read_text().partition("<!-- tested: rights of clouds -->\n")
    rows = [line.strip("| \n").split(" | ") for line in rest.partition("\n\n")[0].splitlines()[2:]]
    column = 1 if cloud == "gcs" else 2
    return {role: frozenset(re.findall(r"`(\w+)`", row[column])) for row in rows for role in row[0].split(", ")}


@dataclass
class Without(Rule):
    """Refuses what takes another right than these; who may read the bucket's rules is not asked."""

    rights: frozenset[str] = frozenset()

    def fits(self, request: Request) -> bool:
        return not _rights_of(request) <= self.rights


def _rights_of(request: Request) -> set[str]:
    path, query = urlsplit(request.target).path, parse_qs(urlsplit(request.target).query)
    if not path.startswith(("/storage/", "/upload/")):
        if path.count("/") < 3 and "list" not in query.get("comp", []):
            return set()
        return {{"PUT": "write", "DELETE": "delete"}.get(request.method, "read")}
    if request.method == "POST":
        return {"create"} if query["ifGenerationMatch"] == ["0"] else {"create", "delete"}
    if request.method == "DELETE":
        return {"delete"}
    _, _, below = path.partition("/o")
    return {"get"} if below else {"list"} if path.endswith("/o") else set()


@on_both
def test_each_role_works_with_its_rights_and_the_doctor_names_missing_ones(cloud: Cloud) -> None:
    """semantics W3, W7"""
    with ExitStack() as ends:

        def through(rights: frozenset[str]) -> ObjectStore:
            proxy = ends.enter_context(S3Proxy(cloud.endpoint_url))
            refusal = (403, "forbidden" if cloud.name == "gcs" else "AuthorizationPermissionMismatch")
            proxy.rules.append(Without("", "", cloud.said(*refusal), 1 << 30, rights))
            options = cloud.options(proxy.url, max_attempts=2)
            return open_store(f"{cloud.root}/rights", options=options, sleep=lambda _: None)

        rights = documented(cloud.name)
        worker, driver, triggerer, reader = (
            through(rights[role]) for role in ("worker", "driver", "triggerer", "reader")
        )
        world = World(worker)
        ensure_probed(worker, nonce="n")
        for epoch in ("e1", "e2"):
            world.trigger(epoch)
            for stage in world.stages:
                assert world.drive(world.submit(epoch, stage.uid).handover, store=driver) is AckAnswer.SUCCESS
            checkpoint = world.pending_id(epoch)
            assert world.coordinator(triggerer).complete(checkpoint) == EpochCompleted(epoch, checkpoint)
            assert world.coordinator().clean().failures == ()
        world.audit("e1", "e2")
        assert all(found.whole for found in world.coordinator(reader).verify(deep=True))
        facts = facts_of(cloud.root)
        for missing in rights["worker"]:
            examined = examine_storage(through(rights["worker"] - {missing}), Runtime(world.clock, world.new_token))
            found = {(each.name, each.subject) for each in examined.findings if each.name != "clock-skew"}
            [(name, right)] = found
            assert (name, right.rpartition(".")[2].rpartition("/")[2]) == ("right-missing", missing)
            assert right in (facts.get, facts.put, facts.list, facts.delete)


@on_azure
def test_sparks_folders_are_markers_in_their_place(cloud: Cloud) -> None:
    store, proxy = cloud.open(), cloud.proxy
    container = cloud.root.partition("://")[2].partition("@")[0]
    folder = {"x-ms-blob-type": "BlockBlob", "x-ms-meta-hdi_isfolder": "true"}
    for name in ("x", "x/y"):
        send(AzureOptions(proxy.url), HOST, "PUT", f"/{container}/lake/{name}", {}, folder).body()
    for key in ("x-1", "x/y/z", "x0"):
        store.create(key, b"1")
    assert [each.key for each in store.list("")] == ["x-1", "x/", "x/y/", "x/y/z", "x0"]
    assert [each.key for each in store.list("", start_after="x/")] == ["x/y/", "x/y/z", "x0"]
    for call in (store.get, store.stat, lambda key: store.read_range(key, 0, 1), store.keeps_write_ids):
        with pytest.raises(GoneError):
            call("x")
    before = len(proxy.requests)
    assert store.delete(["x/", "x/y/", "x/y/z"]) == []
    assert [seen.target.split("lake/")[1] for seen in proxy.requests[before:]] == ["x/y/z", "x/y", "x"]
    assert [each.key for each in store.list("")] == ["x-1", "x0"]


@on_both
def test_the_server_copies_what_the_tag_vouches_for(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    store, proxy = cloud.open(), cloud.proxy  # semantics W9
    etag = tag(store.create("a", b"content"))
    target = store.below("kept")
    assert target.copy_from(store, "a", "b", etag=etag, content=SHA) == (SHA,)
    content = "alt=media" if cloud.name == "gcs" else "/lake/"
    assert not [seen for seen in proxy.requests if seen.method == "GET" and content in seen.target]
    assert target.get("b").data == b"content"
    assert target.copy_from(store, "a", "c", etag="1", content=SHA) is None, "another tag"
    assert target.copy_from(store, "a", "c", etag=etag) is None, "no checksum that anybody has computed"
    if cloud.name == "gcs":
        proxy.rules.append(Rule("POST", "kept/c", lambda request, forward: _other_crc(forward(request))))
        assert target.copy_from(store, "a", "c", etag=etag, content=SHA) is None, "the copy differs from its source"
    else:
        monkeypatch.setattr(azure_store, "system_sleep", lambda _: None)
        for states, ended in ((["pending", "pending", "success"], (SHA,)), (["pending", "aborted"], None)):
            proxy.rules.append(Rule("HEAD", "kept/c", partial(_in_the_state, states), len(states)))
            assert target.copy_from(store, "a", "c", etag=etag, content=SHA) == ended
            assert ("c" in {each.key for each in target.list("")}) is (ended is not None), (
                "what is not whole is deleted"
            )
            assert states == []
    with pytest.raises(GoneError):
        target.copy_from(store, "absent", "c", etag=etag, content=SHA)

    def changed_meanwhile(request: Request, forward: Forward) -> Answer:
        store.replace("a", b"another", expected_etag=etag)
        return forward(request)

    proxy.rules.append(Rule(cloud.write[0], "kept/d", changed_meanwhile))
    assert target.copy_from(store, "a", "d", etag=etag, content=SHA) is None


def _in_the_state(states: list[str], request: Request, forward: Forward) -> Answer:
    """Answer about a copy as if it were in the next of these states."""
    found = forward(request)
    headers = [(name, value) for name, value in found.headers if name.lower() != "x-ms-copy-status"]
    return Answer(found.status, [*headers, ("x-ms-copy-status", states.pop(0))], found.body)


@pytest.mark.parametrize("sort", [order, lambda key: key.replace("/", "\0"), lambda key: key.encode("utf-16-be")])
def test_keys_are_in_the_order_of_bytes_however_azure_sorts(sort: Callable[[str], Any]) -> None:
    """Azure sorts by bytes, with the slash before all else (a hierarchical namespace), or by UTF-16 (Azurite)."""
    keys = ["job/a/x", "job/a/y/z", "job/a-b/x", "job/a-b/y", "job/ab", "job/a!", "job/\uffee", "job/\U0001f600/x"]
    keys += [f"{each}/" for each in ("job/a", "job/a/y", "job/a-b")]
    listed = sorted(keys, key=lambda key: sort(key.removesuffix("/")))
    found = azure_store._in_place((ObjectStat(key, 1, "1") for key in listed), "job/")
    assert [each.key for each in found] == sorted(keys, key=order)


def test_a_token_of_azure_is_used_until_shortly_before_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s, given = [0.0], iter(("first", "second"))

    class Identity:
        def get_token(self, _scope: str) -> SimpleNamespace:
            return SimpleNamespace(token=next(given), expires_on=now_s[0] + 3600)

    monkeypatch.setattr(azure_store, "_tokens", {})
    monkeypatch.setattr(azure_store, "_credentials", {(None, None): Identity()})
    monkeypatch.setattr(azure_store, "system_time", lambda: now_s[0])
    for now_s[0], token in ((0, "first"), (3290, "first"), (3310, "second")):
        assert azure_store._authorization(AzureOptions(), HOST, "GET", "/", {}, {}) == f"Bearer {token}"


def test_a_password_for_the_host_is_no_credential(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """requests takes one of `~/.netrc` where a session has no `auth`"""
    (tmp_path / "netrc").write_text("default login ada password canary\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    session = sending_once(requests.Session())
    request = requests.Request("GET", "http://127.0.0.1/", headers={"Authorization": "Bearer of-the-request"})
    prepared = session.prepare_request(request)
    assert prepared.headers["Authorization"] == "Bearer of-the-request"


def test_the_proxy_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    class Proxy(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(204)
            self.end_headers()

    with HTTPServer(("127.0.0.1", 0), Proxy) as server:
        Thread(target=server.serve_forever).start()
        monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{server.server_port}")
        session, wanted = sending_once(requests.Session()), f"http://storage.example:{server.server_port}/bucket/key"
        try:
            assert request(session, "GET", wanted, GcsOptions(), {}, None, {"a": "b"}).status == 204
        finally:
            server.shutdown()
    assert asked == [f"{wanted}?a=b"]


def _other_crc(answer: Answer) -> Answer:
    body = json.loads(answer.body)
    body["resource"]["crc32c"] = "AAAAAA=="
    headers = [(name, value) for name, value in answer.headers if name.lower() != "content-length"]
    return Answer(answer.status, headers, json.dumps(body).encode())


@on_google
def test_rules_of_a_bucket(cloud: Cloud) -> None:
    store, bucket = cloud.open(), cloud.root.removeprefix("gs://")
    rules = [
        {"action": {"type": "Delete"}, "condition": {"age": 30, "matchesPrefix": ["lake/", "logs/"]}},
        {"action": {"type": "Delete"}, "condition": {"daysSinceNoncurrentTime": 7}},
        {"action": {"type": "SetStorageClass", "storageClass": "ARCHIVE"}, "condition": {"age": 1}},
    ]
    kept = {"retentionPolicy": {"retentionPeriod": "9"}, "softDeletePolicy": {"retentionDurationSeconds": "604800"}}
    found = {"lifecycle": {"rule": rules}, "versioning": {"enabled": True}, **kept}
    cloud.proxy.rules.append(Rule("GET", bucket, lambda *_: Answer(200, [], json.dumps(found).encode())))
    read = store.bucket_rules()
    assert read is not None
    assert read.lifecycle == (
        LifecycleRule("number 1", "lake/", expires="after 30 days"),
        LifecycleRule("number 2", "", ends_old_versions=True),
    )
    assert (read.versioned, read.retention, read.unknown) == (True, "retention policy, 9 seconds", {})
    assert read.kept_for == "soft delete, 7 days"
    cloud.proxy.rules.append(Rule("GET", bucket, cloud.said(403, "forbidden")))
    read = store.bucket_rules()
    assert read is not None and "storage.buckets.get" in read.unknown["lifecycle"]


@on_azure
def test_rules_of_a_container(cloud: Cloud) -> None:
    store = cloud.open()
    kept = b"<P><DeleteRetentionPolicy><Enabled>true</Enabled><Days>7</Days></DeleteRetentionPolicy></P>"
    cloud.proxy.rules += [
        Rule("HEAD", "", lambda *_: Answer(200, [("x-ms-has-legal-hold", "true")], b"")),
        Rule("GET", "", lambda *_: Answer(200, [], kept)),
        Rule("HEAD", "", cloud.said(403, "AuthorizationFailure")),
        Rule("GET", "", cloud.said(403, "AuthorizationFailure")),
    ]
    read = store.bucket_rules()
    assert read is not None
    assert (read.kept_for, read.retention, [*read.unknown]) == ("soft delete, 7 days", "legal hold", ["lifecycle"])
    read = store.bucket_rules()
    assert read is not None and "this takes Microsoft.Storage" in read.unknown["versioning"]
    assert "this takes Microsoft.Storage" in read.unknown["object-lock"]


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


@on_google
def test_a_connection_that_somebody_mends_is_taken(cloud: Cloud) -> None:
    right = GcsOptions(cloud.endpoint_url)
    open_store(f"{cloud.root}/lake", gcs=right).create("a", b"1")
    wrong, now = GcsOptions("https://127.0.0.1:9", key_path="/absent/key.json"), [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    waiting = Waiting("the connection google", lambda: right)
    store = open_store(f"{cloud.root}/lake", gcs=wrong, sleep=sleep, clock=lambda: now[0], waiting=waiting)
    assert store.get("a").data == b"1"
    assert now[0] == 1.0


@pytest.mark.parametrize("kind", [GcsOptions, AzureOptions])
def test_options_that_cannot_work(kind: type[StoreOptions]) -> None:
    for endpoint in (f"http://user:{CANARY}@host", f"https://host?sig={CANARY}", "host:1"):
        with pytest.raises(StorageError, match="not a URL") as raised:
            kind(endpoint)
        assert CANARY not in str(raised.value)
    with pytest.raises(StorageError, match="above 0"):
        kind(max_attempts=0)


def test_options_of_azure_that_cannot_work() -> None:
    with pytest.raises(UnsupportedStorageError, match="leave the endpoint out"):
        open_store(AZURE, azure=AzureOptions("https://private.example.com"))
    with pytest.raises(StorageError, match="a tenant and a client"):
        AzureOptions(tenant_id="t")
    with pytest.raises(UnsupportedStorageError, match="another account than the storage's"):
        open_store(AZURE, azure=AzureOptions(account="account1"))
    assert open_store(f"{AZURE}/x").spark_url("a") == f"{AZURE}/x/a", "by TLS, but to an emulator"


@pytest.mark.parametrize(
    ("package", "extra", "uri"), [("google.auth", "gcs", "gs://lake"), ("azure.identity", "azure", AZURE)]
)
def test_without_the_packages_the_extra_is_named(
    monkeypatch: pytest.MonkeyPatch, package: str, extra: str, uri: str
) -> None:
    monkeypatch.setattr(opening, "find_spec", lambda name: None if name == package else name)
    opening.check_packages("s3://lake/x")
    for attempt in (opening.check_packages, open_store):
        with pytest.raises(UnsupportedStorageError, match=rf"airflow-cairn\[{extra}\]"):
            attempt(uri)


@pytest.fixture
def workers(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> Iterator[Workers]:
    name = {"gcs": "STORAGE_EMULATOR_HOST", "azure": "CAIRN_AZURE_EMULATOR"}[cloud.name]
    monkeypatch.setenv(name, cloud.endpoint_url)
    running = Workers(f"{cloud.root}/race")
    yield running
    running.end()


@on_both
def test_of_eight_processes_one_wins_each_round_and_no_swap_is_lost(cloud: Cloud, workers: Workers) -> None:
    """semantics W2, W6"""
    racers = [workers.start("race", "job/x", "20") for _ in range(8)]
    every: Callable[[], list[str]] = lambda: [hear(racer) for racer in racers]  # noqa: E731
    assert set(every()) == {"ready"}
    for number, racer in enumerate(racers):
        tell(racer, str(number))
    assert set(every()) == {"ready"}
    for racer in racers:
        tell(racer)
    won = [one for racer in racers for one in json.loads(hear(racer))]
    assert sorted(won) == sorted(f"{verb} {n}" for verb in ("create", "swap") for n in range(20))
    store = open_store(workers.where, options=cloud.options(cloud.endpoint_url))
    store.create("n", b"0")
    racers[:] = [workers.start("count", "n", "8") for _ in range(8)]
    assert set(every()) == {"ready"}
    for racer in racers:
        tell(racer)
    assert set(every()) == {"done"}
    assert store.get("n").data == b"64"
