"""Rights of each role, as docs/reference/storage.md says them: a proxy answers 403 to all else (semantics W3, W7)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from airflow_cairn.checkpoint import CheckpointConfig
from airflow_cairn.checkpoint.answers import EpochCompleted, Failed, Ready
from airflow_cairn.checkpoint.config import RegionalCheckpoints
from airflow_cairn.checkpoint.errors import CheckpointFailedError
from airflow_cairn.checkpoint.health.examine import examine_storage
from airflow_cairn.checkpoint.reasons import AckAnswer, Reason, Status
from airflow_cairn.cli.main import main
from airflow_cairn.storage import ConditionFailed, ForbiddenError, ensure_probed, probe
from airflow_cairn.storage.clock import Runtime
from airflow_cairn.storage.s3.store import S3Store
from scripts.harness.s3_server import S3Server
from tests.support.s3_proxy import Denied, Request, Rule, S3Proxy, answer
from tests.support.world.world import JOB, TIMEOUT, World

pytestmark = [pytest.mark.s3, pytest.mark.large]

May = Callable[[str, Request], bool]
STORAGE = Path(__file__).parents[3] / "docs" / "reference" / "storage.md"


def documented() -> dict[str, frozenset[str]]:
    """By role, the rights in the table of the documentation."""
    _, _, rest = STORAGE.read_text().partition("<!-- tested: rights -->\n")
    rows = [line.strip("| \n").split(" | ") for line in rest.partition("\n\n")[0].splitlines()[2:]]
    return {role: frozenset(re.findall(r"`s3:(\w+)`", rights)) for role, rights, _ in rows}


def may(role: str) -> May:
    rights = documented()[role]

    def allowed(right: str, request: Request) -> bool:
        if role == "driver" and right == "PutObject":
            return "/chk-" in request.key  # not head.json, which it only reads, nor what triggers write
        return right in rights

    return allowed


Open = Callable[..., S3Store]


@pytest.fixture
def through(s3_server: S3Server, s3_bucket: str) -> Iterator[Open]:
    """Open the storage through a proxy that lets only some requests pass."""
    with ExitStack() as stack:

        def opened(allowed: May, *rules: Rule) -> S3Store:
            proxy = stack.enter_context(S3Proxy(s3_server.endpoint_url))
            proxy.rules += [*rules, Denied(may=allowed)]
            options = replace(s3_server.options, endpoint_url=proxy.url, max_attempts=2, connect_timeout_s=10)
            return S3Store(f"s3://{s3_bucket}/cairn", options)

        yield opened


def test_the_roles_are_documented() -> None:
    everything = {"GetObject", "PutObject", "DeleteObject", "AbortMultipartUpload", "ListBucket"}
    everything.add("ListBucketMultipartUploads")
    assert documented() == {
        "worker": everything,
        "driver": everything,
        "triggerer": {"GetObject", "PutObject", "ListBucket"},
        "reader": {"GetObject", "ListBucket"},
    }
    policy = re.search(r"```json\n(\{\s*\"Version\".*?)```", STORAGE.read_text(), re.DOTALL)
    assert policy is not None
    allowed = [action for each in json.loads(policy[1])["Statement"] for action in each["Action"]]
    assert sorted(allowed) == sorted(f"s3:{right}" for right in everything), "the policy to copy is the table's"


def test_each_role_does_its_work_with_its_rights(
    through: Open, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:  # semantics W3
    world = World(through(may("worker")))
    ensure_probed(world.store, nonce="n")
    driver, triggerer, reader = (through(may(role)) for role in ("driver", "triggerer", "reader"))
    for epoch in ("e1", "e2"):
        world.trigger(epoch)
        for stage in world.stages:
            assert world.drive(world.submit(epoch, stage.uid).handover, store=driver) is AckAnswer.SUCCESS
        checkpoint = world.pending_id(epoch)
        assert isinstance(world.coordinator(triggerer).go_on(epoch), Ready)
        assert world.coordinator(triggerer).complete(checkpoint) == EpochCompleted(epoch, checkpoint)
        assert world.coordinator().clean().failures == ()
    world.audit("e1", "e2")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3_server.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3_server.secret_key)
    where = ["--storage", reader.uri, "--endpoint-url", reader.describe().rpartition(" at ")[2]]
    for command in (["jobs"], ["checkpoints", JOB], ["show", JOB, "2"], ["stats", JOB], ["verify", JOB, "--deep"]):
        assert main([*command, *where]) == 0, capsys.readouterr().err


def test_the_doctor_names_each_right_that_is_missing(through: Open) -> None:
    """On a real server: all rights are healthy, and each one alone is missed by its name."""
    world = World(through(may("worker")))
    for epoch in ("e1", "e2"):
        world.run_epoch(epoch)
    runtime = Runtime(world.clock, world.new_token)

    def found(allowed: May) -> set[tuple[str, str]]:
        findings = examine_storage(through(allowed), runtime).findings
        return {(each.name, each.subject) for each in findings if each.name != "clock-skew"}

    assert found(may("worker")) == set(), "but for the clock, which stands still in this world"
    for missing in sorted(documented()["worker"]):

        def allowed(right: str, _request: Request, missing: str = missing) -> bool:
            return right != missing

        assert found(allowed) == {("right-missing", f"s3:{missing}")}, missing


def _begun(through: Open, config: CheckpointConfig | None = None) -> World:
    world = World(through(may("worker")), config or CheckpointConfig(timeout=TIMEOUT, retained=2))
    world.trigger("e1")
    return world


@pytest.mark.parametrize("ended", ["expired", "declined"])
def test_a_driver_that_may_not_write_the_head_acknowledges_late_too(through: Open, ended: str) -> None:
    """Without the right a driver only reads the head; after its attempt's end others note its outcome there (A2)."""
    world = _begun(through)
    driver = through(may("driver"))
    clean = world.submit("e1", "clean").handover
    if ended == "expired":
        world.clock.advance(TIMEOUT + timedelta(seconds=1))
    else:
        world.coordinator().abort(clean.checkpoint, Reason.CHECKPOINT_DECLINED, "another stage")
    before = world.coordinator().head()
    assert world.drive(clean, store=driver) is AckAnswer.SUCCESS
    assert world.coordinator().head() == before
    world.run_epoch("e1")
    world.audit("e1")


def test_a_head_request_that_is_refused_is_asked_as_a_get(through: Open) -> None:  # semantics W2, W3
    store = through(lambda _right, request: request.method != "HEAD")
    probe(store, nonce="n")
    store.create("a", b"first")
    assert isinstance(store.create("a", b"second"), ConditionFailed), "what settles a refused create"
    assert store.stat("a").size_bytes == len(b"first")
    store.create("empty", b"")
    assert store.stat("empty").size_bytes == 0


def test_without_the_right_to_delete_cleaning_reports(through: Open) -> None:  # semantics W7
    world = World(through(lambda right, request: right != "DeleteObject"))
    for epoch in ("e1", "e2", "e3"):
        world.run_epoch(epoch)  # cleans after each
    report = world.coordinator().clean()
    assert report.deleted == 0
    assert report.failures
    assert all("s3:DeleteObject" in failure.reason for failure in report.failures)


@pytest.mark.parametrize("config", ["all stages", "an expired regional one"])
def test_metadata_that_may_not_be_written_ends_the_checkpoint(through: Open, config: str) -> None:  # semantics C6
    regional = config != "all stages"
    settings = CheckpointConfig(timeout=TIMEOUT, retained=2)
    if regional:
        settings = CheckpointConfig(timeout=TIMEOUT, retained=2, regional=RegionalCheckpoints(max_failure_ratio=0.9))
    world = World(through(may("worker")), settings)
    world.run_epoch("e0")
    world.trigger("e1")
    for stage in world.stages[: 1 if regional else None]:
        world.drive(world.submit("e1", stage.uid).handover)
    checkpoint = world.pending_id("e1")
    denied = through(lambda right, request: right != "PutObject" or "_metadata" not in request.key)
    if regional:
        world.clock.advance(TIMEOUT + timedelta(seconds=1))
        found = world.coordinator(denied).progress("e1")
    else:
        assert isinstance(world.coordinator(denied).progress("e1"), Ready)
        with pytest.raises(CheckpointFailedError, match="FINALIZE_CHECKPOINT_FAILURE"):
            world.coordinator(denied).complete(checkpoint)
        found = world.coordinator(denied).progress("e1")
    assert isinstance(found, Failed)
    entry = world.coordinator().head().ended_by_id(checkpoint)
    assert entry is not None
    assert (entry.status, entry.reason) == (Status.FAILED, Reason.FINALIZE_CHECKPOINT_FAILURE)
    assert "s3:PutObject" in (entry.detail or "")


@pytest.mark.parametrize(
    ("verb", "right"),
    [
        (lambda store: store.get("a"), "s3:GetObject (and s3:ListBucket on the bucket"),
        (lambda store: store.stat("a"), "s3:GetObject (and s3:ListBucket on the bucket"),
        (lambda store: store.create("b", b""), "s3:PutObject"),
        (lambda store: list(store.list("")), "s3:ListBucket"),
        (lambda store: list(store.uploads("")), "s3:ListBucketMultipartUploads"),
    ],
)
def test_a_refusal_names_the_right(through: Open, verb: Callable[[S3Store], object], right: str) -> None:
    store = through(lambda _right, _request: False)  # semantics W3
    with pytest.raises(ForbiddenError, match=re.escape(f"this takes {right}")):
        verb(store)


def test_an_absent_key_that_answers_403_is_not_missing(through: Open) -> None:  # semantics W3
    store = through(lambda right, request: True, Rule("GET", "absent", answer(403, "AccessDenied"), times=9))
    with pytest.raises(ForbiddenError, match="without it an object that does not exist is answered by 403 too"):
        store.get("absent")
