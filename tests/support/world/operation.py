"""Target of a crash-point test: one operation of the protocol, and the world in which it is due."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

from airflow_cairn.storage.port import ObjectStore
from tests.support.memory_store import MemoryStore
from tests.support.parsed_once import parsed_once
from tests.support.world.places import can_fork
from tests.support.world.world import World
from tests.support.wrapped_stores import RecordingStore

EPOCH = "e2"
"""The epoch under way; e1 has completed, so that there is something to restore."""

Run = Callable[[World, ObjectStore], object]


@dataclass(frozen=True)
class Operation:
    """One operation: `prepare` brings a world to where it is due and gives what runs it on a fork of that world."""

    name: str
    prepare: Callable[[World], Run]
    limits: tuple[tuple[Any, str, float], ...] = ()
    """Constants that are smaller for as long as the operation is looked at: module, name, value."""
    epochs: tuple[str, ...] = ("e1", EPOCH, "e3")
    """Epochs that have to complete in the end, whatever happened."""

    @contextmanager
    def limited(self) -> Iterator[None]:
        """Set the constants."""
        with ExitStack() as stack:
            for where, name, value in self.limits:
                stack.callback(setattr, where, name, getattr(where, name))
                setattr(where, name, value)
            yield


@cache
def prepared(operation: Operation) -> tuple[World, Run]:
    """Give the world in which the operation is due, to be forked and never changed, and what runs it."""
    world = World(MemoryStore())
    return world, operation.prepare(world)


def forked(operation: Operation) -> tuple[World, Run]:
    """Give such a world of one's own."""
    if can_fork():
        world, run = prepared(operation)
        return world.fork(), run
    world = World()
    return world, operation.prepare(world)


@cache
def writes_of(operation: Operation) -> list[str]:
    """Run an operation once and give its writes, as they were recorded."""
    with parsed_once(), operation.limited():
        world, run = forked(operation)
        recording = RecordingStore(world.store)
        run(world, recording)
    return [str(write) for write in recording.writes]


def kind_of(write: str) -> str:
    """Give a write without what only its own epoch, stage or moment has: `replace head.json`, `create _metadata`."""
    verb, _, key = write.partition(" ")
    return f"{verb} {re.sub(r'[0-9a-f]{6,}|[0-9]+', '', key.rpartition('/')[2])}"
