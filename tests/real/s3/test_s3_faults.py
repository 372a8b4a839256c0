"""Trigger, ack, complete, abort and clean while the S3 server misbehaves (semantics D3, W2, W3).

A fault that passes is not noticed. One that lasts is an error that says what to do, and nothing is deleted; once the
server is well again, the next process finds one outcome and loses nothing. Here each operation and each fault comes
once; `make soak` has each operation under each fault.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import product

import pytest
from botocore.auth import SIGV4_TIMESTAMP, S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from airflow_cairn.checkpoint.documents.attempt import StageSpec
from airflow_cairn.checkpoint.reasons import Reason
from airflow_cairn.storage import CairnError, ForbiddenError, ObjectStore, S3Options, open_store
from airflow_cairn.storage.errors import ErrorKind
from scripts.harness.s3_server import REGION, S3Server
from tests.support.covering import covering
from tests.support.s3_proxy import Action, Answer, Forward, Request, Rule, S3Proxy, answer, cut_the_body
from tests.support.world.world import World

pytestmark = pytest.mark.s3

STAGES = (StageSpec("clean"), StageSpec("routes", upstream=("clean",)))
TIMEOUT_S = 0.3
"""Seconds that the client waits where the fault is that answers come late."""
PATIENCE_S = 300.0
"""Seconds that it waits elsewhere: on a busy machine a good answer can take longer than a late one does."""
ATTEMPTS = 4
MANY_ATTEMPTS = 20
"""For a fault that passes and whose client waits for so short a time that good answers, too, may come late."""
WAY_OUT = ("try again", "Try again", "Delete nothing", "Set this machine's clock")

Run = Callable[[World, ObjectStore], object]


@dataclass
class EachFirst(Rule):
    """Strikes the first `struck` requests of each method and target."""

    struck: int = 1
    seen: dict[tuple[str, str], int] = field(default_factory=dict)
    times: int = 1 << 30
    among: Callable[[Request], bool] = lambda _: True

    def fits(self, request: Request) -> bool:
        if not self.among(request):
            return False
        name = (request.method, request.target)
        self.seen[name] = self.seen.get(name, 0) + 1
        return self.seen[name] <= self.struck


def late(request: Request, forward: Forward) -> Answer:
    """Do it, and answer when the client has long given up."""
    given = forward(request)
    threading.Event().wait(2 * TIMEOUT_S)
    return given


def everything(_request: Request) -> bool:
    return True


FAULTS: dict[str, tuple[Callable[[Request], bool], Action]] = {
    "503 SlowDown": (everything, answer(503, "SlowDown")),
    "500 after success": (lambda asked: asked.method in ("PUT", "POST"), answer(500, "InternalError", after=True)),
    "reset mid-body": (lambda asked: asked.method == "GET", cut_the_body),
    "409": (lambda asked: asked.method == "PUT", answer(409, "ConditionalRequestConflict")),
    "stalled listing": (lambda asked: asked.method == "GET" and "list-type=2" in asked.target, late),
    "latency": (everything, late),
}


def _trigger(world: World) -> Run:
    return lambda world, store: world.trigger("b", store)


def _ack(world: World) -> Run:
    world.trigger("b")
    ack = world.write(world.submit("b", "clean").handover)
    return lambda world, store: world.coordinator(store).acknowledge(ack)


def _complete(world: World) -> Run:
    world.run_stages("b")
    checkpoint = world.pending_id("b")
    return lambda world, store: world.coordinator(store).complete(checkpoint)


def _abort(world: World) -> Run:
    checkpoint = world.trigger("b").pending.checkpoint
    return lambda world, store: world.coordinator(store).abort(checkpoint, Reason.JOB_FAILURE, "by hand")


def _clean(world: World) -> Run:
    _complete(world)(world, world.store)
    return lambda world, store: world.coordinator(store).clean()


OPERATIONS = {each.__name__[1:]: each for each in (_trigger, _ack, _complete, _abort, _clean)}


@pytest.fixture
def proxy(s3_server: S3Server) -> Iterator[S3Proxy]:
    with S3Proxy(s3_server.endpoint_url) as running:
        yield running


@pytest.fixture
def world(s3_bucket: str, s3_options: S3Options) -> World:
    found = World(open_store(f"s3://{s3_bucket}/lake", s3=s3_options), stages=STAGES)
    found.run_epoch("a")
    return found


def through(proxy: S3Proxy, options: S3Options, bucket: str, timeout_s: float, attempts: int = ATTEMPTS) -> ObjectStore:
    seen = replace(options, endpoint_url=proxy.url, read_timeout_s=timeout_s, max_attempts=attempts)
    return open_store(f"s3://{bucket}/lake", s3=seen, sleep=lambda _: None)


@pytest.fixture
def store(s3_bucket: str, s3_options: S3Options, proxy: S3Proxy) -> ObjectStore:
    return through(proxy, s3_options, s3_bucket, PATIENCE_S)


@pytest.mark.parametrize(("operation", "fault"), covering(product(OPERATIONS, FAULTS), iter))
def test_a_fault_that_passes_is_not_noticed(
    world: World, s3_options: S3Options, s3_bucket: str, proxy: S3Proxy, operation: str, fault: str
) -> None:  # semantics W2, W3
    run = OPERATIONS[operation](world)
    among, action = FAULTS[fault]
    patience = (TIMEOUT_S, MANY_ATTEMPTS) if action is late else (PATIENCE_S, ATTEMPTS)
    store = through(proxy, s3_options, s3_bucket, *patience)
    proxy.rules.append(EachFirst("", "", action, struck=1, among=among))
    run(world, store)
    proxy.rules.clear()
    world.run_epoch("b")
    world.audit("a", "b")


@pytest.mark.parametrize(("fault", "operation"), covering(product(FAULTS, OPERATIONS), iter))
def test_a_fault_that_lasts_says_what_to_do_and_loses_nothing(
    world: World, s3_options: S3Options, s3_bucket: str, proxy: S3Proxy, operation: str, fault: str
) -> None:  # semantics D3, W2, W3
    run = OPERATIONS[operation](world)
    among, action = FAULTS[fault]
    store = through(proxy, s3_options, s3_bucket, TIMEOUT_S if action is late else PATIENCE_S)
    before = world.standing()
    proxy.rules.append(EachFirst("", "", action, struck=1 << 30, among=among))
    error: CairnError | None = None
    try:
        run(world, store)
    except CairnError as raised:
        error = raised
    proxy.rules.clear()
    assert error is not None or among is not everything, "the process that cannot be served hears so"
    if error is not None:
        assert error.kind in (ErrorKind.UNAVAILABLE, ErrorKind.CONFLICT)
        assert any(words in str(error) for words in WAY_OUT), str(error)
    if operation != "clean":
        assert before <= world.standing(), "nobody deletes what may count"
    world.run_epoch("b")
    world.audit("a", "b")


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_clock_that_is_refused_is_named_and_nothing_is_taken_for_gone(
    world: World, store: ObjectStore, proxy: S3Proxy, operation: str
) -> None:  # semantics W3
    run = OPERATIONS[operation](world)
    before = world.standing()
    proxy.rules.append(EachFirst("", "", answer(403, "RequestTimeTooSkewed"), struck=1 << 30))
    with pytest.raises(ForbiddenError):
        run(world, store)
    assert world.standing() == before
    proxy.rules.clear()
    world.run_epoch("b")
    world.audit("a", "b")


class _SkewedAuth(S3SigV4Auth):
    """Signs as a client does whose clock is wrong."""

    def __init__(self, credentials: Credentials, skew: timedelta) -> None:
        super().__init__(credentials, "s3", REGION)
        self._skew = skew

    def add_auth(self, request: AWSRequest) -> None:
        stamp = datetime.now(UTC) + self._skew  # noqa: TID251 - the server's clock is the real one
        request.context["timestamp"] = stamp.strftime(SIGV4_TIMESTAMP)
        self._modify_request_before_signing(request)  # type: ignore[attr-defined]
        canonical = self.canonical_request(request)
        signature = self.signature(self.string_to_sign(request, canonical), request)
        self._inject_signature_to_request(request, signature)  # type: ignore[attr-defined]


def _skewed(server: S3Server, skew: timedelta) -> Action:
    def act(request: Request, forward: Forward) -> Answer:
        left_out = ("authorization", "x-amz-date", "content-length", "expect", "connection")
        headers = {name: value for name, value in request.headers.items() if name.lower() not in left_out}
        asked = AWSRequest(request.method, f"http://{headers['Host']}{request.target}", headers, request.body)
        _SkewedAuth(Credentials(server.access_key, server.secret_key), skew).add_auth(asked)
        return forward(replace(request, headers=dict(asked.headers.items())))

    return act


@pytest.mark.parametrize("minutes", [-1, 1])
def test_a_minute_of_clock_skew_changes_nothing(
    world: World, store: ObjectStore, proxy: S3Proxy, s3_server: S3Server, minutes: int
) -> None:  # semantics D3
    skew = timedelta(minutes=minutes)
    proxy.rules.append(EachFirst("", "", _skewed(s3_server, skew), struck=1 << 30))
    world.clock.advance(skew)
    world.trigger("b", store)
    world.clock.advance(-2 * skew)
    world.run_stages("b")
    assert world.coordinator(store).complete(world.pending_id("b")).epoch == "b"
    world.coordinator(store).clean()
    assert proxy.requests
    world.audit("a", "b")


def test_a_wrong_clock_is_refused_by_the_real_server_and_named(
    world: World, store: ObjectStore, proxy: S3Proxy, s3_server: S3Server
) -> None:  # semantics W3
    proxy.rules.append(EachFirst("", "", _skewed(s3_server, timedelta(minutes=20)), struck=1 << 30))
    with pytest.raises(ForbiddenError, match=r"RequestTimeTooSkewed.*Set this machine's clock"):
        store.get("flights/head.json")


def test_the_default_patience_has_an_end() -> None:
    """30 s of latency and no answer at all: the longest that one read can take, and one conditional write."""
    options = S3Options()
    pauses = sum(min(5.0, 0.2 * 2**number) for number in range(options.max_attempts - 1))
    read = options.max_attempts * (options.connect_timeout_s + options.read_timeout_s) + pauses
    assert read <= 217, "seconds"
    write = options.max_attempts * (options.connect_timeout_s + options.read_timeout_s + read) + pauses
    assert write <= 1520, "seconds: each send may be followed by a look"
