"""Documents of attempts that the head holds while they are pending and small (semantics A6, C3, D5, F2, W5)."""

from dataclasses import replace
from typing import Any

import pytest

from airflow_cairn.checkpoint.documents import layout
from airflow_cairn.checkpoint.documents.attempt import PendingDocument
from airflow_cairn.checkpoint.documents.codec import MAX_DEPTH
from airflow_cairn.checkpoint.documents.entries import PendingEntry, WaitingRequest
from airflow_cairn.checkpoint.documents.head import MAX_HISTORY, MAX_WAITING, WRITE_LOG
from airflow_cairn.checkpoint.reasons import Reason, RequestKind
from airflow_cairn.checkpoint.store import attempt_documents
from airflow_cairn.checkpoint.store.attempt_documents import MAX_HELD, MAX_HELD_BYTES
from airflow_cairn.checkpoint.store.job_files import encode
from airflow_cairn.storage import DocumentError
from tests.support.narrowing import known
from tests.support.world.world import World
from tests.support.wrapped_stores import RecordingStore


def trigger(world: World, epoch: str, detail: dict[str, Any]) -> PendingDocument:
    request = world.request(epoch)
    answer = world.coordinator().trigger(replace(request, slice=replace(request.slice, detail=detail)))
    document: PendingDocument = answer.pending  # type: ignore[union-attr]
    return document


def entry_of(world: World, epoch: str) -> PendingEntry:
    return known(world.coordinator().head().pending_of_epoch(epoch))


def objects(world: World) -> set[str]:
    return {key for key in world.standing() if "/pending-" in key}


def test_a_small_one_is_in_the_head_and_nowhere_else(world: World) -> None:  # semantics A6
    pending = world.trigger("a").pending
    assert entry_of(world, "a").document == pending
    world.run_stage("a")
    world.coordinator().complete(1)
    assert objects(world) == set()
    assert b'"document"' not in encode(world.coordinator().head()), "it goes with the entry"


@pytest.mark.parametrize("above", [0, 1])
def test_one_that_is_too_large_is_an_object(world: World, above: int) -> None:  # semantics W5
    empty = len(encode(trigger(world.fork(), "a", {"bulk": ""})))
    pending = trigger(world, "a", {"bulk": "x" * (MAX_HELD_BYTES - empty + above)})
    assert len(encode(pending)) == MAX_HELD_BYTES + above
    entry = entry_of(world, "a")
    assert entry.document == (None if above else pending)
    assert attempt_documents.read(world.files, entry) == pending
    assert objects(world) == ({layout.pending(1, entry.token)} if above else set())
    world.run_epoch("a")
    world.audit("a")


@pytest.mark.parametrize("levels", [MAX_DEPTH - 6, MAX_DEPTH - 5])
def test_one_that_is_too_deep_below_the_head_is_an_object(world: World, levels: int) -> None:  # semantics W5
    deep: object = 1
    for _ in range(levels):
        deep = [deep]
    pending = trigger(world, "a", {"deep": deep})
    assert (entry_of(world, "a").document is None) == (levels > MAX_DEPTH - 6)
    assert attempt_documents.read(world.files, entry_of(world, "a")) == pending
    world.run_epoch("a")
    world.audit("a")


def test_no_swap_carries_more_than_a_few(world: World) -> None:  # semantics W5
    world.config = replace(world.config, max_concurrent_checkpoints=MAX_HELD + 2)
    for number in range(MAX_HELD + 2):
        world.trigger(f"e{number}")
    assert [entry.document is not None for entry in world.coordinator().head().pending] == [True] * MAX_HELD + [
        False
    ] * 2
    assert len(objects(world)) == 2
    world.coordinator().abort(1, Reason.JOB_FAILURE, "by hand")
    world.trigger("more")
    assert entry_of(world, "more").document is not None, "a place is free again"


def test_a_full_head_stays_small(world: World) -> None:  # semantics T2, W5
    """All that is bounded is at its bound; of each swap's bytes the documents are the smaller part."""
    world.config = replace(world.config, max_concurrent_checkpoints=MAX_HELD)
    empty = len(encode(trigger(world, "e0", {"bulk": ""})))
    world.run_epoch("e0")
    for number in range(1, MAX_HELD + 1):
        trigger(world, f"e{number}", {"bulk": "x" * (MAX_HELD_BYTES - empty - 400)})
    head = world.coordinator().head()
    assert all(entry.document for entry in head.pending)
    bare = replace(head, pending=tuple(replace(entry, document=None) for entry in head.pending))
    full = replace(
        bare,
        history=tuple(replace(head.history[0], checkpoint=number + 1) for number in range(MAX_HISTORY)),
        waiting=tuple(
            WaitingRequest(f"scheduled__2026-01-01T00.3a00.3a00.2b00.3a00-{number}", RequestKind.PERIODIC, 1)
            for number in range(MAX_WAITING)
        ),
        writes=tuple(f"{number:016x}" for number in range(WRITE_LOG)),
    )
    documents, rest = len(encode(head)) - len(encode(bare)), len(encode(full))
    print(f"\na full head: {rest} bytes without documents, {documents} bytes of documents")
    assert documents <= MAX_HELD * MAX_HELD_BYTES
    assert documents < rest < 200 * 1024


def test_one_whose_attempt_ends_is_set_aside_first(world: World) -> None:  # semantics D5, F2
    world.run_epoch("z")
    pending = world.trigger("a").pending
    world.run_stage("a", "clean")
    recording = RecordingStore(world.store)
    world.coordinator(recording).abort(2, Reason.JOB_FAILURE, "by hand")
    assert [write.key.split("/")[-1] for write in recording.writes] == [f"pending-{pending.token}.json", "head.json"]
    ended = world.coordinator().head().history[-1]
    assert attempt_documents.read(world.files, ended) == pending
    world.coordinator().clean()
    assert objects(world) == {layout.pending(2, pending.token)}, "the next attempt is made from it"
    assert world.trigger("a").pending.executions["clean"].home == 2
    world.run_epoch("a")
    world.audit("z", "a")


def test_one_attempt_ends_and_the_next_begins_in_one_swap(world: World) -> None:  # semantics D2, F2
    """The next process ends the attempt by the same swap, so nobody has set its document aside before."""
    world.trigger("a")
    world.run_stage("a", "clean")
    world.clock.now_ms = entry_of(world, "a").expires_at_ms
    recording = RecordingStore(world.store)
    answer = world.coordinator(recording).begin("a", "routes", "try-1")
    assert answer.handover.upstream["clean"].home == 1  # type: ignore[union-attr]
    swaps = [write for write in recording.writes if write.key.endswith("head.json")]
    assert len(swaps) == 1
    world.run_epoch("a")
    world.audit("a")


def test_one_of_another_checkpoint_is_refused(world: World) -> None:  # semantics W4, W5
    world.trigger("a")
    entry = entry_of(world, "a")
    assert entry.document is not None
    for wrong in ({"checkpoint": 2}, {"token": "0" * 16}, {"epoch": "b"}, {"job": "weather"}):
        with pytest.raises(DocumentError, match="describes another checkpoint"):
            attempt_documents.read(world.files, replace(entry, document=replace(entry.document, **wrong)))


def test_two_threads_may_ask_one_coordinator() -> None:
    """The watch over a write asks while the application acknowledges; each puts aside the document that it has read."""

    class Forgetful(dict[str, PendingDocument]):
        """Another thread comes right after a look."""

        def __contains__(self, token: object) -> bool:
            found = super().__contains__(token)
            self.clear()
            return found

    world = World()
    world.trigger("a")
    documents = world.coordinator()._documents
    (entry,) = world.coordinator().head().pending
    documents._last = Forgetful({entry.token: documents.of(entry)})
    assert documents.of(entry).checkpoint == 1
