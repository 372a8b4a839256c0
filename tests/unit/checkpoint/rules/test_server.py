"""Who may start a server that a job's stages share (semantics V1)."""

from dataclasses import replace

from airflow_cairn.checkpoint.documents.server_record import MAX_SERVERS, ServersDocument, ServerState
from airflow_cairn.checkpoint.rules.server import (
    LEASE_MS,
    ClaimAnswer,
    StartIt,
    TakeIt,
    WaitForIt,
    claim,
    come_up,
    renew,
    retire,
)

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
