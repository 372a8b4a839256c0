"""Right to start a server that a job's stages share, and the end of that server (semantics V1)."""

from dataclasses import replace

import pytest

from airflow_cairn.checkpoint.documents.entries import Stopped
from airflow_cairn.checkpoint.documents.head import Head
from airflow_cairn.checkpoint.documents.server_record import MAX_SERVERS, ServerEntry, ServersDocument, ServerState
from airflow_cairn.checkpoint.rules.server import (
    LEASE_MS,
    Activity,
    ClaimAnswer,
    Limits,
    StartIt,
    TakeIt,
    WaitForIt,
    claim,
    come_up,
    renew,
    retire,
    why_end,
)
from tests.support.world.world import World

NOW = 1_700_000_000_000
EMPTY = ServersDocument("flights")


def ask(
    record: ServersDocument,
    nonce: str,
    *,
    now_ms: int = NOW,
    use: str | None = None,
    machine: str = "here",
    gone: str = "",
) -> tuple[ClaimAnswer, ServersDocument]:
    return claim(record, use=use, machine=machine, nonce=nonce, now_ms=now_ms, gone=gone)


def started(nonce: str = "first", **options: str) -> ServersDocument:
    """A record with one server that is starting."""
    return ask(EMPTY, nonce, **options)[1]  # type: ignore[arg-type]


def up(nonce: str = "first") -> ServersDocument:
    return come_up(started(nonce), nonce, 15002, NOW)


def test_the_first_stage_starts_it_and_the_second_waits_for_it() -> None:
    answer, record = ask(EMPTY, "first")
    assert isinstance(answer, StartIt)
    again, same = ask(record, "first")
    assert isinstance(again, StartIt), "the same stage, whose answer was lost"
    assert same == record
    second, same = ask(record, "second")
    assert second == WaitForIt(answer.entry)
    assert same == record


def test_one_that_is_up_is_taken() -> None:
    answer, record = ask(up(), "second")
    assert isinstance(answer, TakeIt)
    assert (answer.entry.nonce, answer.entry.port) == ("first", 15002)
    assert record == up()


def test_a_starter_that_died_holds_nobody_up_longer_than_its_lease() -> None:
    waits, _ = ask(started(), "second", now_ms=NOW + LEASE_MS - 1)
    assert isinstance(waits, WaitForIt)
    starts, record = ask(started(), "second", now_ms=NOW + LEASE_MS)
    assert isinstance(starts, StartIt)
    assert [each.nonce for each in record.servers] == ["second"]


def test_a_renewed_lease_counts_from_then_on() -> None:
    record = renew(up(), "first", NOW + LEASE_MS - 1)
    assert isinstance(ask(record, "second", now_ms=NOW + LEASE_MS + 1)[0], TakeIt)
    assert isinstance(ask(up(), "second", now_ms=NOW + LEASE_MS)[0], StartIt)


def test_one_that_a_stage_found_gone_is_replaced_at_once_and_only_that_one() -> None:
    answer, record = ask(up(), "second", gone="first")
    assert isinstance(answer, StartIt)
    assert record.find("first") is None
    late, same = ask(record, "third", gone="first")
    assert isinstance(late, WaitForIt), "another stage has replaced it already"
    assert same == record


def test_a_server_that_was_replaced_changes_nothing() -> None:
    _, record = ask(up(), "second", gone="first")
    for after in (renew(record, "first", NOW), come_up(record, "first", 1, NOW), retire(record, "first")):
        assert after == record


def test_machines_and_epochs_have_servers_of_their_own() -> None:
    record = up()
    for place in ({"machine": "there"}, {"use": "e1"}):
        answer, record = ask(record, f"of-{len(record.servers)}", **place)  # type: ignore[arg-type]
        assert isinstance(answer, StartIt)
    assert len(record.servers) == 3


def test_a_retired_server_is_passed_over_and_stays_in_the_record() -> None:
    answer, record = ask(retire(up(), "first"), "second")
    assert isinstance(answer, StartIt)
    assert [each.state for each in record.servers] == [ServerState.ENDING, ServerState.STARTING]


def test_the_record_is_bounded_and_forgets_what_ended_without_a_word() -> None:
    entry = replace(up().servers[0], machine="another", lease_until_ms=NOW)
    record = replace(EMPTY, servers=(entry,))
    assert [each.nonce for each in ask(record, "second")[1].servers] == ["second"]
    record = EMPTY
    for number in range(MAX_SERVERS + 5):
        record = ask(record, f"n{number}", machine=f"m{number}")[1]
    assert len(record.servers) == MAX_SERVERS
    assert record.servers[-1].nonce == f"n{MAX_SERVERS + 4}"


ENTRY = ServerEntry("first", "here", ServerState.UP, 0, 60_000, port=15002)
LIMITS = Limits(idle_ms=600_000, max_age_ms=3_600_000, max_sessions=10, max_memory_bytes=2**30)
BUSY = Activity(open_sessions=1, sessions=1, quiet_ms=0, age_ms=0, memory_bytes=0)
IDLE = replace(BUSY, open_sessions=0)
HEAD = Head("flights", revision=1)


@pytest.fixture
def pending(world: World) -> Head:
    """A head with one epoch pending."""
    world.trigger("e1")
    head: Head = world.coordinator().head()
    assert [each.epoch for each in head.pending] == ["e1"]
    return head


@pytest.mark.parametrize(
    ("entry", "head", "activity", "why"),
    [
        (None, HEAD, BUSY, "another server has replaced it"),
        (ENTRY, None, BUSY, "its job is not there any more"),
        (ENTRY, replace(HEAD, stopped=Stopped.SHUTDOWN), BUSY, "its job was drained or stopped"),
        (replace(ENTRY, use="e1"), HEAD, BUSY, "its epoch has ended"),
        (ENTRY, HEAD, replace(IDLE, quiet_ms=600_000), "no stage has used it for 600 seconds"),
        (ENTRY, HEAD, replace(IDLE, age_ms=3_600_000), "it is 60 minutes old"),
        (ENTRY, HEAD, replace(BUSY, sessions=10), "it has had 10 sessions"),
        (ENTRY, HEAD, replace(BUSY, memory_bytes=2**30), "it takes 1024 MiB of memory"),
        (ENTRY, HEAD, BUSY, None),
        (ENTRY, HEAD, replace(IDLE, quiet_ms=599_999), None),
        (ENTRY, replace(HEAD, stopped=Stopped.PAUSED), IDLE, None),
    ],
)
def test_what_ends_it(entry: ServerEntry | None, head: Head | None, activity: Activity, why: str | None) -> None:
    assert why_end(entry, head, activity, LIMITS) == why


def test_one_that_is_worn_lasts_until_the_epoch_has_ended_or_twice_as_long(pending: Head) -> None:
    old = replace(IDLE, age_ms=3_600_000)
    assert why_end(ENTRY, pending, old, LIMITS) is None
    assert why_end(ENTRY, pending, replace(old, age_ms=7_200_000), LIMITS) == "it is 120 minutes old"
    assert why_end(ENTRY, pending, replace(IDLE, sessions=20), LIMITS) == "it has had 20 sessions"
    assert why_end(ENTRY, pending, replace(IDLE, memory_bytes=2**31 - 1), LIMITS) is None
    assert why_end(ENTRY, pending, replace(IDLE, memory_bytes=2**31), LIMITS) == "it takes 2048 MiB of memory"


def test_the_server_of_an_epoch_lasts_as_long_as_that_is_pending(pending: Head) -> None:
    assert why_end(replace(ENTRY, use="e1"), pending, IDLE, LIMITS) is None
    assert why_end(replace(ENTRY, use="e2"), pending, IDLE, LIMITS) == "its epoch has ended"
