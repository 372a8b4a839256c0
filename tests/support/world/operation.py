"""Target of a crash-point test: one operation of the protocol, and the world in which it is due."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

from airflow_cairn.checkpoint import Coordinator
from airflow_cairn.checkpoint.documents.attempt import Handover
from airflow_cairn.storage.port import ObjectStore
from tests.support.memory_store import MemoryStore
from tests.support.parsed_once import parsed_once
from tests.support.world.places import can_fork
from tests.support.world.world import TIMEOUT, World
from tests.support.wrapped_stores import RecordingStore

EPOCH = "e2"
"""The epoch under way; e1 has completed, so that there is something to restore."""

Run = Callable[[World, ObjectStore], object]
Prepare = Callable[[World], Run]
Step = Callable[[World], object]


@dataclass(frozen=True)
class Operation:
    """One operation: `prepare` brings a world to where it is due and gives what runs it on a fork of that world."""

    name: str
    prepare: Prepare
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


# Steps that bring a world to where an operation is due.


def after(*steps: Callable[[World], Any]) -> Callable[[World], Any]:
    """Take steps, and give what the last one gives: it mostly prepares the operation."""
    return lambda world: [step(world) for step in steps][-1]


def done(prepare: Prepare) -> Step:
    """Have an operation come to its end."""
    return lambda world: prepare(world)(world, world.store)


def completed(*epochs: str) -> Step:
    return lambda world: world.run_epoch(*epochs)


def under_way(*stages: str) -> Step:
    """Have e1 complete, trigger the epoch, and let these stages acknowledge."""
    return after(completed("e1"), lambda world: world.trigger(EPOCH), *map(acknowledged, stages))


def claimed(stage: str) -> Step:
    """Have a try claim a stage; nothing more is heard of it."""
    return lambda world: world.submit(EPOCH, stage)


def wrote(stage: str) -> Step:
    """Have a driver of a stage die once it has written."""
    return lambda world: world.write(world.submit(EPOCH, stage).handover)


def acknowledged(stage: str) -> Step:
    return lambda world: world.run_stage(EPOCH, stage)


def ran(world: World) -> None:
    """Run all stages of the epoch."""
    world.run_stages(EPOCH)


def expired(world: World) -> None:
    world.clock.advance(TIMEOUT)


# Operations.


def by(act: Callable[[Coordinator], object]) -> Prepare:
    """Give what a process does by its coordinator."""
    return lambda _: lambda world, store: act(world.coordinator(store))


def begins(stage: str, **how: Any) -> Prepare:
    """Let a new try of a stage begin."""

    def prepare(world: World) -> Run:
        claimant = world.new_claimant()
        return lambda world, store: world.coordinator(store).begin(EPOCH, stage, claimant, **how)

    return prepare


def drives(stage: str, meanwhile: Callable[[World, Handover], object] = lambda *_: None) -> Prepare:
    """Let the driver of a stage write and acknowledge; something may happen after its start."""

    def prepare(world: World) -> Run:
        handover = world.submit(EPOCH, stage).handover
        meanwhile(world, handover)
        run = world.new_token()
        return lambda world, store: world.coordinator(store).acknowledge(world.write(handover, run=run, store=store))

    return prepare


def acknowledges(stage: str, meanwhile: Step = lambda _: None) -> Prepare:
    """Let the driver of a stage that has written acknowledge; something may happen in between."""

    def prepare(world: World) -> Run:
        ack = world.write(world.submit(EPOCH, stage).handover)
        meanwhile(world)
        return lambda world, store: world.coordinator(store).acknowledge(ack)

    return prepare


def declines(stage: str) -> Prepare:
    def prepare(world: World) -> Run:
        handover = world.submit(EPOCH, stage).handover
        return lambda world, store: world.decline(handover, store=store)

    return prepare


def fails(stage: str, *, has_written: bool = True) -> Prepare:
    """Report that the try of a stage was killed before it acknowledged."""

    def prepare(world: World) -> Run:
        handover = world.submit(EPOCH, stage).handover
        if has_written:
            world.write(handover)
        return lambda world, store: world.coordinator(store).fail(EPOCH, stage, handover.claimant, "killed")

    return prepare


def completes(world: World) -> Run:
    pending = world.pending_id(EPOCH)
    return lambda world, store: world.coordinator(store).complete(pending)


cleans = by(lambda it: it.clean())
looks = by(lambda it: it.progress(EPOCH))
