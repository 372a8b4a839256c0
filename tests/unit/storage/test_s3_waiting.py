"""An S3 store that refuses for a moment is waited for, with a bound, and the log says so once; what lasts ends."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

from airflow_cairn.checkpoint.reasons import AckAnswer, Reason
from airflow_cairn.storage import (
    CairnError,
    ForbiddenError,
    ObjectStore,
    OutcomeUnknownError,
    S3Options,
    UnavailableError,
    UnsupportedStorageError,
    Written,
    open_store,
)
from airflow_cairn.storage.network.waiting import LONGEST_S, Waiting
from tests.support.errors import raises_code
from tests.support.fake_s3 import FakeS3
from tests.support.narrowing import expect
from tests.support.s3_proxy import Action, Request, Rule, S3Proxy, answer, lose_the_answer
from tests.support.world.world import World

START = 1_000_000.0
BODY = b"what is there"


@dataclass
class Time:
    """A clock that only waits move on."""

    now: float = START
    waits: list[float] = field(default_factory=list)

    def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += seconds

    @property
    def waited(self) -> float:
        return self.now - START


@dataclass
class While(Rule):
    """Answers so to each request as long as something is true."""

    method: str = ""
    key: str = ""
    action: Action = field(default_factory=lambda: answer(403, "AccessDenied"))
    times: int = 1 << 30
    holds: Callable[[Request], bool] = lambda _request: True

    def fits(self, request: Request) -> bool:
        return self.holds(request)


@dataclass
class Lake:
    """A store through a proxy that refuses as it is told to."""

    proxy: S3Proxy
    time: Time
    renewed: list[S3Options] = field(default_factory=list)

    def options(self, access_key: str = "access") -> S3Options:
        return S3Options(self.proxy.url, None, access_key, "secret", max_attempts=2)

    def store(self, *, waits: bool = True, access_key: str = "access") -> ObjectStore:
        waiting = Waiting("the connection lake", lambda: self.renewed[-1] if self.renewed else None) if waits else None
        return open_store(
            "s3://bucket/lake",
            s3=self.options(access_key),
            sleep=self.time.sleep,
            clock=lambda: self.time.now,
            fraction=lambda: 0.5,
            waiting=waiting,
        )

    def refuse(self, status: int, code: str, until_s: float) -> None:
        def holds(request: Request) -> bool:
            # boto3 follows a redirect by HEAD of the bucket, and follows the redirect of that.
            return self.time.waited < until_s and (status != 301 or request.method != "HEAD")

        self.proxy.rules.append(While(action=answer(status, code), holds=holds))


@pytest.fixture
def lake() -> Iterator[Lake]:
    with FakeS3() as server, S3Proxy(server.url) as proxy:
        found = Lake(proxy, Time())
        assert isinstance(found.store().create("there", BODY), Written)
        proxy.requests.clear()
        yield found


VERBS: dict[str, Callable[[ObjectStore], object]] = {
    "get": lambda store: store.get("there").data,
    "range": lambda store: store.read_range("there", 0, 4),
    "stat": lambda store: store.stat("there").size_bytes,
    "list": lambda store: [each.key for each in store.list("")],
    "create": lambda store: type(store.create("new", BODY)),
    "replace": lambda store: type(store.replace("there", BODY, expected_etag=store.at_once().get("there").etag)),
}
PASSING = [
    (403, "RequestTimeTooSkewed"),
    (403, "AccessDenied"),
    (403, "InvalidAccessKeyId"),
    (403, "SignatureDoesNotMatch"),
    (400, "ExpiredToken"),
    (400, "InvalidToken"),
    (503, "SlowDown"),
    (500, "InternalError"),
]


@pytest.mark.parametrize(("status", "code"), PASSING)
@pytest.mark.parametrize("verb", [name for name in VERBS if name != "replace"])
def test_a_refusal_that_passes_is_waited_for_and_said_once(
    lake: Lake, verb: str, status: int, code: str, caplog: pytest.LogCaptureFixture
) -> None:  # semantics W3
    expected = VERBS[verb](lake.store()) if verb != "create" else Written
    lake.refuse(status, code, until_s=60)
    with caplog.at_level(logging.INFO):
        assert VERBS[verb](lake.store()) == expected
    assert 60 <= lake.time.waited <= 80
    said = [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]
    assert len(said) == 1
    # A HEAD has no body: where it is refused GET says why, and where the store fails there is only the number.
    assert re.match(
        rf"Waiting for the store since 13:46:4\d UTC, until 13:51:4\d UTC at most, with the credentials of the "
        rf"connection lake. It said: .*({code}|{status}).*store=`s3://bucket/lake at {lake.proxy.url}`",
        said[0],
    ), said
    assert "The store answers again, after " in caplog.text


@pytest.mark.parametrize(("status", "code"), PASSING)
@pytest.mark.parametrize("verb", [name for name in VERBS if name != "replace"])
def test_a_refusal_that_lasts_ends_with_the_stores_own_words(lake: Lake, verb: str, status: int, code: str) -> None:
    lake.refuse(status, code, until_s=1 << 30)  # semantics W3
    with pytest.raises(UnavailableError if status >= 500 else ForbiddenError, match=f"{code}|{status}"):
        VERBS[verb](lake.store())
    assert LONGEST_S <= lake.time.waited < LONGEST_S + 1


@pytest.mark.parametrize(
    ("status", "code", "error"),
    [
        (404, "NoSuchBucket", "bucket_gone"),
        (301, "PermanentRedirect", "unsupported_storage"),
        (400, "AuthorizationHeaderMalformed", "unsupported_storage"),
        (501, "NotImplemented", "unsupported_storage"),
    ],
)
@pytest.mark.parametrize("verb", ["get", "list", "create"])
def test_what_no_wait_cures_ends_at_once(lake: Lake, verb: str, status: int, code: str, error: str) -> None:
    lake.refuse(status, code, until_s=1 << 30)
    with raises_code(error):
        VERBS[verb](lake.store())
    assert lake.time.waits == []


@pytest.mark.parametrize("what", ["delete", "uploads", "stat of what may be missing", "a role that does not wait"])
def test_what_can_be_done_without_is_not_waited_for(lake: Lake, what: str) -> None:  # semantics W7
    lake.refuse(403, "AccessDenied", until_s=1 << 30)
    if what == "delete":
        (failed,) = lake.store().delete(["there"])
        assert "AccessDenied" in failed.reason
    else:
        store = lake.store(waits=what != "a role that does not wait")
        asked: dict[str, Callable[[], object]] = {
            "uploads": lambda: list(store.uploads("")),
            "stat of what may be missing": lambda: store.at_once().stat("there"),
            "a role that does not wait": lambda: store.get("there"),
        }
        with pytest.raises(ForbiddenError):
            asked[what]()
    assert lake.time.waits == []


def test_nothing_to_sign_with_is_waited_for_too(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """The role of a machine is found by a request of its own, which fails for a moment too."""
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    store = open_store(
        "s3://bucket/lake",
        s3=S3Options(lake.proxy.url),
        sleep=lake.time.sleep,
        clock=lambda: lake.time.now,
        waiting=Waiting("boto3's own chain"),
    )
    with raises_code("no_credentials"):
        store.get("there")
    assert lake.time.waited >= LONGEST_S
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "access")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    assert store.at_once().get("there").data == BODY


def test_keys_that_somebody_renews_are_taken(lake: Lake) -> None:
    def is_old(request: Request) -> bool:
        return "Credential=old/" in request.headers["Authorization"]

    lake.proxy.rules.append(While(action=answer(403, "InvalidAccessKeyId"), holds=is_old))
    store = lake.store(access_key="old")
    lake.renewed.append(lake.options("new"))
    assert store.get("there").data == BODY
    assert lake.time.waits == [1.0]


def test_a_lost_answer_and_then_a_refusal_are_one_write(lake: Lake) -> None:  # semantics W2
    """With another write id the second sending would take the first for another writer's."""
    lake.proxy.rules.append(Rule("PUT", "new", lose_the_answer))
    lake.refuse(403, "AccessDenied", until_s=60)
    written = lake.store().create("new", BODY)
    assert expect(Written, written).etag == lake.store().get("new").etag


def test_a_swap_waits_too(lake: Lake) -> None:
    etag = lake.store().get("there").etag
    lake.refuse(403, "AccessDenied", until_s=60)
    assert isinstance(lake.store().replace("there", b"next", expected_etag=etag), Written)
    assert lake.store().get("there").data == b"next"


@pytest.mark.parametrize("refused", [["PUT"], ["HEAD", "GET"]], ids=["sending", "look"])
def test_a_refusal_after_a_lost_answer_does_not_say_that_nothing_landed(
    lake: Lake, refused: list[str]
) -> None:  # semantics W2
    """The first sending may land later, whether the store refuses the second one or the look between them."""
    etag = lake.store().get("there").etag
    lake.proxy.rules += [Rule("PUT", "there", answer(500, "InternalError"))]
    lake.proxy.rules += [Rule(each, "there", answer(403, "AccessDenied")) for each in refused]
    with pytest.raises(OutcomeUnknownError, match=r"and the store cannot be asked: .*AccessDenied"):
        lake.store(waits=False).replace("there", b"next", expected_etag=etag)


@pytest.mark.parametrize(
    ("status", "code", "error"),
    [
        (400, "ExpiredToken", ForbiddenError),
        (400, "InvalidToken", ForbiddenError),
        (403, "RequestTimeTooSkewed", ForbiddenError),
        (400, "AuthorizationHeaderMalformed", UnsupportedStorageError),
        (400, "RequestTimeout", UnavailableError),
    ],
)
def test_a_head_without_a_body_is_asked_again_by_get(
    lake: Lake, status: int, code: str, error: type[CairnError]
) -> None:  # semantics W3
    lake.refuse(status, code, until_s=1 << 30)
    with pytest.raises(error, match=code):
        lake.store(waits=False).stat("there")
    assert lake.proxy.count("GET", "there") >= 1


def test_a_read_only_driver_waits_for_no_right_to_write(lake: Lake) -> None:  # semantics A2, W3
    world = World(lake.store(waits=False))
    world.trigger("e1")
    clean = world.submit("e1", "clean").handover
    world.coordinator().abort(clean.checkpoint, Reason.CHECKPOINT_DECLINED, "another stage")
    lake.proxy.rules.append(While(holds=lambda request: request.method == "PUT" and "head.json" in request.key))
    assert world.drive(clean, store=lake.store()) is AckAnswer.SUCCESS
    assert any(each.method == "PUT" and "head.json" in each.key for each in lake.proxy.requests), "it has tried"
    assert lake.time.waits == []
