"""A conditional write whose answer is lost is settled by its write id (semantics W2, W3), against the real server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from airflow_cairn.checkpoint.store.job_files import JobFiles
from airflow_cairn.storage import (
    ConditionFailed,
    ConflictError,
    ForbiddenError,
    ObjectStore,
    OutcomeUnknownError,
    S3Options,
    UnavailableError,
    Written,
    open_store,
)
from scripts.harness.s3_server import S3Server
from tests.support.s3_proxy import (
    Action,
    Answer,
    Forward,
    Request,
    Rule,
    S3Proxy,
    answer,
    cut_the_body,
    lose_the_answer,
    lose_the_request,
    replay,
    signer,
    then,
    without,
)

pytestmark = pytest.mark.s3

DONE_BUT_UNHEARD = [
    pytest.param(lose_the_answer, id="connection cut"),
    pytest.param(answer(500, "InternalError", after=True), id="500"),
    pytest.param(answer(503, "SlowDown", after=True), id="503"),
    pytest.param(answer(504, "GatewayTimeout", after=True), id="504"),
]


class Waits(list[float]):
    """Records how long it was asked to wait, and does not."""

    def __call__(self, seconds: float) -> None:
        self.append(seconds)


@pytest.fixture
def waits() -> Waits:
    return Waits()


@pytest.fixture
def proxy(s3_server: S3Server) -> Iterator[S3Proxy]:
    with S3Proxy(s3_server.endpoint_url) as running:
        yield running


@pytest.fixture
def direct(s3_bucket: str, s3_options: S3Options) -> ObjectStore:
    """The way of everybody else: not through the proxy."""
    return open_store(f"s3://{s3_bucket}/lake", s3=s3_options)


@pytest.fixture
def store(s3_bucket: str, s3_options: S3Options, proxy: S3Proxy, waits: Waits) -> ObjectStore:
    through = replace(s3_options, endpoint_url=proxy.url, max_attempts=4)
    return open_store(f"s3://{s3_bucket}/lake", s3=through, sleep=waits, fraction=lambda: 1.0)


def tag(result: object) -> str:
    assert isinstance(result, Written)
    return result.etag


@pytest.mark.parametrize("lost", DONE_BUT_UNHEARD)
def test_what_was_won_unheard_is_won_with_one_put(store: ObjectStore, proxy: S3Proxy, lost: Action):
    proxy.rules.append(Rule("PUT", "head.json", lost))
    first = tag(store.create("head.json", b"1"))
    assert store.get("head.json").etag == first
    assert proxy.count("PUT", "head.json") == 1
    assert proxy.count("HEAD", "head.json") == 1
    proxy.rules.append(Rule("PUT", "head.json", lost))
    second = tag(store.replace("head.json", b"2", expected_etag=first))
    assert store.get("head.json").data == b"2"
    assert store.get("head.json").etag == second
    assert proxy.count("PUT", "head.json") == 2


def test_a_lost_request_is_sent_again_under_its_write_id(store: ObjectStore, proxy: S3Proxy, waits: Waits):
    proxy.rules.append(Rule("PUT", "head.json", lose_the_request))
    first = tag(store.create("head.json", b"1"))
    proxy.rules.append(Rule("PUT", "head.json", lose_the_request))
    tag(store.replace("head.json", b"2", expected_etag=first))
    puts = [seen for seen in proxy.requests if seen.method == "PUT"]
    ids = [seen.headers["x-amz-meta-cairn-write-id"] for seen in puts]
    assert len(puts) == 4
    assert ids[0] == ids[1] != ids[2] == ids[3]
    assert waits == [0.2, 0.2]


def test_a_replayed_create_is_not_taken_for_somebody_elses(store: ObjectStore, proxy: S3Proxy):
    """A middlebox or SDK that replays turns a create that was won into a 412."""
    proxy.rules.append(Rule("PUT", "head.json", replay))
    tag(store.create("head.json", b"1"))
    first = store.get("head.json")
    proxy.rules.append(Rule("PUT", "head.json", replay))
    tag(store.replace("head.json", b"2", expected_etag=first.etag))
    assert store.get("head.json").data == b"2"


def test_a_lost_create_tells_who_stands_there(store: ObjectStore, direct: ObjectStore, proxy: S3Proxy):
    theirs = tag(direct.create("head.json", b"theirs"))
    proxy.rules.append(Rule("PUT", "head.json", lose_the_answer))
    assert store.create("head.json", b"ours") == ConditionFailed(theirs)
    assert store.get("head.json").data == b"theirs"


@pytest.mark.parametrize("swaps", [0, 1, 2, 5, 32])
@pytest.mark.parametrize("lost", DONE_BUT_UNHEARD)
def test_a_lost_swap_followed_by_others_is_never_answered_wrongly(
    store: ObjectStore, direct: ObjectStore, proxy: S3Proxy, lost: Action, swaps: int
):
    first = tag(direct.create("head.json", b"0"))

    def others() -> None:
        for number in range(swaps):
            blob = direct.get("head.json")
            tag(direct.replace("head.json", blob.data + b"x", expected_etag=blob.etag))
            assert number < swaps

    proxy.rules.append(Rule("PUT", "head.json", then(others, lost)))
    if swaps == 0:
        tag(store.replace("head.json", b"ours", expected_etag=first))
    else:
        with pytest.raises(OutcomeUnknownError) as raised:
            store.replace("head.json", b"ours", expected_etag=first)
        sent = next(seen for seen in proxy.requests if seen.method == "PUT" and seen.body == b"ours")
        assert raised.value.fields["write_id"] == sent.headers["x-amz-meta-cairn-write-id"]
    assert direct.get("head.json").data == b"ours" + b"x" * swaps
    assert proxy.count("PUT", "head.json") == 1


@pytest.mark.parametrize("gone", [False, True], ids=["never arrived, and another won", "somebody deletes the object"])
def test_a_swap_of_which_nothing_can_be_known_is_unknown(
    store: ObjectStore, direct: ObjectStore, proxy: S3Proxy, gone: bool
):
    first = tag(direct.create("head.json", b"0"))

    def other_wins(request: object, forward: object) -> None:
        tag(direct.replace("head.json", b"theirs", expected_etag=first))

    deleted = then(lambda: direct.delete(["head.json"]), lose_the_answer)
    proxy.rules.append(Rule("PUT", "head.json", deleted if gone else other_wins))
    with pytest.raises(OutcomeUnknownError):
        store.replace("head.json", b"ours", expected_etag=first)


def test_a_clean_refusal_of_a_swap_is_lost_not_unknown(store: ObjectStore, direct: ObjectStore):
    first = tag(direct.create("head.json", b"0"))
    second = tag(direct.replace("head.json", b"1", expected_etag=first))
    assert store.replace("head.json", b"ours", expected_etag=first) == ConditionFailed(second)


def test_a_409_is_sent_again_and_nothing_is_looked_up(store: ObjectStore, proxy: S3Proxy, waits: Waits):
    conflict = answer(409, "ConditionalRequestConflict")
    proxy.rules.append(Rule("PUT", "head.json", conflict, times=3))
    tag(store.create("head.json", b"1"))
    assert (proxy.count("PUT", "head.json"), proxy.count("HEAD", "head.json")) == (4, 0)
    assert waits == [0.2, 0.4, 0.8]
    first = store.get("head.json").etag
    proxy.rules.append(Rule("PUT", "head.json", conflict, times=3))
    tag(store.replace("head.json", b"2", expected_etag=first))


def create(store: ObjectStore) -> object:
    return store.create("head.json", b"1")


def swap(store: ObjectStore) -> object:
    return store.replace("head.json", b"1", expected_etag='"x"')


@pytest.mark.parametrize("verb", [create, swap])
def test_409_without_end_is_a_conflict(store: ObjectStore, proxy: S3Proxy, verb: Callable[[ObjectStore], object]):
    proxy.rules.append(Rule("PUT", "head.json", answer(409, "ConditionalRequestConflict"), times=100))
    with pytest.raises(ConflictError) as raised:
        verb(store)
    assert proxy.count("PUT", "head.json") == 4
    assert raised.value.fields["key"] == "head.json"


def test_403_is_never_absence(store: ObjectStore, direct: ObjectStore, proxy: S3Proxy):
    direct.create("head.json", b"1")
    denied = answer(403, "AccessDenied")
    for method in ("GET", "HEAD", "PUT", "POST"):
        proxy.rules.append(Rule(method, "", denied, times=100))
    verbs = [
        lambda: store.get("head.json"),
        lambda: store.stat("head.json"),
        lambda: store.read_range("head.json", 0, 1),
        lambda: store.create("head.json", b"2"),
        lambda: store.replace("head.json", b"2", expected_etag='"x"'),
        lambda: store.copy("head.json", "other"),
        lambda: list(store.list("")),
        lambda: list(store.list_folders("")),
        lambda: list(store.uploads("")),
    ]
    for verb in verbs:
        with pytest.raises(ForbiddenError, match=r"refuses these credentials.*nothing is known"):
            verb()
    # Nothing is sent twice; two of the verbs look by HEAD, and by GET where that is refused.
    assert len(proxy.requests) == len(verbs) + 2
    # A refused deletion is reported (semantics W7).
    (failure,) = store.delete(["head.json"])
    assert "AccessDenied" in str(failure)


def test_a_refused_look_after_a_lost_answer_is_unknown(store: ObjectStore, proxy: S3Proxy):
    proxy.rules.append(Rule("PUT", "head.json", lose_the_answer))
    for method in ("HEAD", "GET"):
        proxy.rules.append(Rule(method, "head.json", answer(403, "AccessDenied"), times=100))
    with pytest.raises(OutcomeUnknownError, match="Delete nothing"):
        store.create("head.json", b"1")


def test_a_store_that_fails_without_end_leaves_the_outcome_open(store: ObjectStore, proxy: S3Proxy, waits: Waits):
    proxy.rules.append(Rule("PUT", "head.json", answer(503, "SlowDown"), times=100))
    with pytest.raises(OutcomeUnknownError):
        store.create("head.json", b"1")
    assert proxy.count("PUT", "head.json") == 4
    assert len(waits) == 3


def test_reads_are_repeated_with_growing_pauses_and_an_end(
    store: ObjectStore, direct: ObjectStore, proxy: S3Proxy, waits: Waits
):
    direct.create("a", b"0123456789")
    for fault in (answer(503, "SlowDown"), lose_the_answer, answer(429, "TooManyRequestsException")):
        proxy.rules.append(Rule("GET", "a", fault))
    assert store.get("a").data == b"0123456789"
    assert waits == [0.2, 0.4, 0.8]
    proxy.rules.append(Rule("GET", "a", answer(503, "SlowDown"), times=100))
    with pytest.raises(UnavailableError, match="SlowDown") as raised:
        store.get("a")
    assert not isinstance(raised.value, OutcomeUnknownError)


def test_a_body_cut_in_the_middle_is_read_again(store: ObjectStore, direct: ObjectStore, proxy: S3Proxy):
    data = bytes(range(256)) * 8192
    direct.create("a", data)
    proxy.rules.append(Rule("GET", "a", cut_the_body, times=2))
    assert store.get("a").data == data
    assert proxy.count("GET", "a") == 3
    proxy.rules.append(Rule("GET", "a", cut_the_body, times=1))
    assert store.read_range("a", 0, len(data)) == data


def test_a_delete_that_was_done_unheard_is_done(store: ObjectStore, direct: ObjectStore, proxy: S3Proxy):
    direct.create("a", b"")
    proxy.rules.append(Rule("POST", "", lose_the_answer))
    assert store.delete(["a", "b"]) == []
    assert list(direct.list("")) == []


@pytest.mark.parametrize("lost", DONE_BUT_UNHEARD)
def test_a_copy_that_was_won_unheard_is_won(store: ObjectStore, direct: ObjectStore, proxy: S3Proxy, lost: Action):
    direct.create("from", b"x")
    store.copy("from", "first")
    proxy.rules.append(Rule("PUT", "lake/to", lost))
    tag(store.copy("from", "to"))
    assert direct.get("to").data == b"x"
    assert proxy.count("PUT", "lake/to") == 1


def test_what_somebody_else_deleted_first_is_deleted(store: ObjectStore, direct: ObjectStore, proxy: S3Proxy):
    """Some servers answer `NoSuchKey` where two cleaners meet on one object; it is gone all the same (semantics W7)."""
    body = b"<DeleteResult><Error><Key>lake/a</Key><Code>NoSuchKey</Code><Message>gone</Message></Error></DeleteResult>"
    proxy.rules.append(Rule("POST", "", lambda *_: Answer(200, [("Content-Type", "application/xml")], body)))
    assert store.delete(["a"]) == []
    assert proxy.count("POST", "") == 1, "and not asked again"


@pytest.mark.parametrize("verb", ["the store", "the job's files"])
def test_a_create_is_not_lost_behind_a_gateway_without_metadata(
    store: ObjectStore, proxy: S3Proxy, s3_server: S3Server, verb: str
) -> None:
    resign = signer(s3_server.access_key, s3_server.secret_key, s3_server.region)
    strip = without("x-amz-meta-cairn-write-id", resign=resign)

    def lose(request: Request, forward: Forward) -> None:
        assert strip(request, forward)

    proxy.rules.append(Rule("PUT", "head.json", lose))
    if verb == "the store":
        with pytest.raises(OutcomeUnknownError, match="carries no write id"):
            store.create("flights/head.json", b"mine")
    else:  # which know by the content what came of it
        assert isinstance(JobFiles(store, "flights").create_bytes("head.json", b"mine"), Written)
