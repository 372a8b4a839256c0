"""A broken note of a completed epoch holds nobody up, and loses nothing (semantics T9, C5)."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import pytest

from airflow_cairn.checkpoint import completion_notes, decisions, layout
from airflow_cairn.storage import UnavailableError
from airflow_cairn.storage.errors import DocumentError, NewerFormatError
from tests.checkpoint.world import CONFIG, World
from tests.support.wrapped_stores import Crashed, Fault, FaultyStore, InterleavingStore

NOTE = layout.epoch_completed("e1")
NEWER = b'{"checkpoint":1,"epoch":"e1","format":2,"job":"flights","kind":"cairn.epoch-completed"}'
BROKEN = {
    "half of it": b'{"checkpoint":1,"epo',
    "nothing": b"",
    "of another job": NEWER.replace(b"flights", b"ships").replace(b'"format":2', b'"format":1'),
    "of another kind": NEWER.replace(b"epoch-completed", b"ack").replace(b'"format":2', b'"format":1'),
    "too large": b" " * (1024 * 1024 + 1),
}


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """The head is about to forget e1."""
    monkeypatch.setattr(decisions, "MAX_HISTORY", 2)
    world = World(config=replace(CONFIG, retained=1))
    for epoch in ("e1", "e2"):
        world.run_epoch(epoch)
    return world


@pytest.mark.parametrize("body", BROKEN.values(), ids=BROKEN)
def test_a_broken_note_holds_nobody_up(world: World, body: bytes) -> None:  # semantics T9
    world.store.create(f"flights/{NOTE}", body)
    assert world.run_epoch("e3") == 3
    assert "e1" not in world.coordinator().head().completions(), "forgotten"
    assert completion_notes.read(world.files, "e1") == 1
    assert world.run_epoch("e1") == 1, "it is not folded in twice"


@pytest.mark.parametrize("fault", Fault)
def test_whatever_goes_wrong_at_its_write_the_next_finds_it(world: World, fault: Fault) -> None:  # semantics T9
    world.store.create(f"flights/{NOTE}", BROKEN["half of it"])
    faulty = FaultyStore(world.store, 1, fault)  # after the create that finds the broken one
    with suppress(Crashed, UnavailableError):
        completion_notes.note(world.coordinator(faulty).files, "e1", 1)
    assert faulty.struck
    assert world.run_epoch("e3") == 3
    assert completion_notes.read(world.files, "e1") == 1


def test_one_of_a_newer_format_is_refused_and_left(world: World) -> None:  # semantics C5
    world.store.create(f"flights/{NOTE}", NEWER)
    with pytest.raises(NewerFormatError, match="written by a newer Cairn"):
        world.run_epoch("e3")
    assert world.files.get(NOTE, max_bytes=1000).data == NEWER


def test_the_note_of_what_was_rewound_is_not_brought_back() -> None:  # semantics T9
    """A finisher that stood still from before the rewind finds the later note broken."""
    world = World(config=replace(CONFIG, retained=3))
    for epoch in ("e1", "e2"):
        world.run_epoch(epoch)
    world.coordinator().rewind(1)
    assert world.run_epoch("e2") == 3
    key = layout.epoch_completed("e2")
    world.store.create(f"flights/{key}", b"{")
    completion_notes.note(world.files, "e2", 2)
    with pytest.raises(DocumentError):
        completion_notes.read(world.files, "e2")
    completion_notes.note(world.files, "e2", 3)
    assert completion_notes.read(world.files, "e2") == 3


def test_nor_where_the_rewind_comes_in_between() -> None:
    world = World(config=replace(CONFIG, retained=3))
    for epoch in ("e1", "e2"):
        world.run_epoch(epoch)
    key = layout.epoch_completed("e2")
    world.store.create(f"flights/{key}", b"{")

    def meanwhile() -> None:
        world.coordinator().rewind(1)
        assert world.run_epoch("e2") == 3
        completion_notes.note(world.files, "e2", 3)

    between = InterleavingStore(world.store, "replace", 0, meanwhile, suffix=key)
    completion_notes.note(world.coordinator(between).files, "e2", 2)
    assert completion_notes.read(world.files, "e2") == 3
