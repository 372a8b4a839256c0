"""Explores every interleaving, breadth first, and audits every state."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.protocol.model.actors import RETRY, UNKNOWN, Program, asker, cleaner, driver, finisher, opener
from tests.protocol.model.state import HEAD, Exec, Head, Meta, World, kept, live, meta_key

Make = Callable[[str], Program]
"""Makes an actor, with the mistake that is planted in it; empty: none."""
LOSABLE = ("create", "swap")


class ViolationError(AssertionError):
    """A property does not hold; the text says which, and the shortest way there."""


@dataclass(frozen=True)
class Scenario:
    """Start of the world, its actors, and the number of answers of conditional writes that may be lost."""

    name: str
    begin: Callable[[], World]
    actors: tuple[tuple[str, Make], ...]
    losses: int = 1


@dataclass(frozen=True)
class Explored:
    """Size of an exploration."""

    name: str
    states: int
    transitions: int
    seconds: float

    def __str__(self) -> str:
        return f"{self.name}: {self.states} states, {self.transitions} transitions, {self.seconds:.1f} s"


def apply(world: World, call: tuple[Any, ...]) -> tuple[World, Any]:
    """Carry out one storage call."""
    objects = dict(world.objects)
    match call:
        case ("get", key):
            return world, objects.get(key)
        case ("list",):
            return world, world.objects
        case ("delete", key):
            objects.pop(key, None)
            return world._replace(objects=frozenset(objects.items())), None
        case ("discard", execution):
            return world._replace(discarded=world.discarded | {execution}), None
        case ("create", key, value):
            if key in objects:
                return world, False
            objects[key] = value
            return world._replace(objects=frozenset(objects.items())), True
        case ("swap", rev, value) | ("put", Head(rev=rev) as value):
            if call[0] == "swap" and objects[HEAD].rev != rev:
                return world, False
            objects[HEAD] = value
            return audit_head(world._replace(objects=frozenset(objects.items())), value), True
    raise ValueError(call)


def audit_head(world: World, new: Head) -> World:
    """Check what must hold between one version of the head and the next (D3, T5, C1)."""
    old, objects = world.head, dict(world.objects)
    issued = world.issued | {(e.id, e.token) for e in new.pending}
    if len({i for i, _ in issued}) != len(issued) or new.next_id < old.next_id:
        raise ViolationError(f"an id was used twice (T5): {sorted(issued)}")
    outcomes = world.outcomes | {(e.id, e.status) for e in new.history}
    if len({i for i, _ in outcomes}) != len(outcomes):
        raise ViolationError(f"a checkpoint has two outcomes (D3): {sorted(outcomes)}")
    ended, pending = {i for i, _ in outcomes}, {e.id for e in new.pending}
    if ended & pending:
        raise ViolationError(f"a checkpoint that had ended is pending again (D3): {sorted(ended & pending)}")
    if any(i not in ended | pending for i, _ in issued):
        raise ViolationError("a checkpoint is neither pending nor ended")
    was = {e.id for e in old.completed}
    epochs = [e.epoch for e in new.history if e.status == "completed"]
    for entry in new.completed:
        if entry.id in was:
            continue
        if entry.base != (old.completed[-1].id if old.completed else 0):
            raise ViolationError(f"checkpoint {entry.id} completed on another base than its own")
        meta = objects.get(meta_key(entry), Meta(()))
        for file in meta.files:
            if list(objects.get(file, ())) != epochs:
                raise ViolationError(f"an epoch is lost or folded in twice: {file}, not {epochs}")
        if entry.left_out != bool(meta.owed):
            raise ViolationError(f"the head and the metadata differ in who is left out: {entry}, {meta}")
        if entry.left_out and [*objects.get(meta.lent, ()), *meta.owed] != epochs:
            raise ViolationError(f"an epoch is lost or owed twice: {meta}, not {epochs}")
        if len(meta.in_flight) != len(meta.owed):
            raise ViolationError(f"what B owes is not in flight: {meta}")
        if meta.hooks is not None and meta.hooks not in objects:
            raise ViolationError(f"checkpoint {entry.id} completed without its answers: {meta.hooks}")
        if meta.hooks in world.discarded:
            raise ViolationError(f"checkpoint {entry.id} holds answers that were withdrawn: {meta.hooks}")
    return world._replace(head=new, issued=issued, outcomes=outcomes)


def audit_world(world: World) -> None:
    """Check what must hold in every state: nothing that counts refers to what is missing or was given up."""
    objects = dict(world.objects)
    alive = live(world.head, objects)
    if alive is None:
        raise ViolationError("the head refers to a document or metadata that is missing (dangling)")
    for entry in world.head.completed:
        meta = objects[meta_key(entry)]
        for file in sorted(meta.keys):
            if file not in objects:
                raise ViolationError(f"checkpoint {entry.id} refers to a missing file: {file} (dangling)")
            if file[2] in world.discarded:
                raise ViolationError(f"checkpoint {entry.id} holds what was answered DISCARDED: {file}")
    for key, value in objects.items():
        if key[0] == "ack" and key[2] in alive[1] and value not in objects:
            raise ViolationError(f"an acknowledgement that counts names a missing file: {value} (dangling)")


def audit_answer(world: World, answer: Any) -> None:
    """Check that a party that returns learnt the truth (D3, A2)."""
    match answer:
        case ("outcome", int(checkpoint), said):
            if (checkpoint, said) not in world.outcomes:
                raise ViolationError(f"told that checkpoint {checkpoint} {said}; the head says otherwise")
        case ("success", execution):
            if not counts(world, world.head, execution):
                raise ViolationError(f"told SUCCESS for an execution that does not count: {execution}")
        case ("left", str(who)):
            docs = [value for key, value in world.objects if key[0] == "pending"]
            if not any(who in doc.restarted for doc in docs):
                raise ViolationError(f"a try has ended, and nobody clears its task: {who}")
        case ("seen", head, execution):
            if not counts(world, head, execution) and execution in world.discarded:
                raise ViolationError(f"told both SUCCESS and DISCARDED: {execution}")


def counts(world: World, head: Head, execution: Exec) -> bool:
    objects = dict(world.objects)
    docs = [objects.get(("pending", e.id, e.token)) for e in head.pending]
    metas = [objects.get(meta_key(e), Meta(())) for e in head.completed]
    return any(d and execution in d.execs for d in docs) or any(f[2] == execution for m in metas for f in m.files)


def alone(world: World, program: Program) -> World:
    """Run one party to its end while nobody else acts."""
    answer = None
    try:
        while True:
            world, answer = apply(world, program.send(answer))
    except StopIteration as stop:
        audit_answer(world, stop.value)
        return world


def audit_end(world: World, mutation: str) -> None:
    """Suppose that everyone has crashed: cleaning, and the next process, must settle it (C1, C3, D4)."""
    world = alone(world, cleaner(mutation, "janitor"))
    audit_clean(world)
    for epoch in sorted({e.epoch for e in (*world.head.pending, *world.head.history)}):
        world = recover(world, epoch, mutation)
    world = alone(world, cleaner(mutation, "last"))
    audit_clean(world)


def recover(world: World, epoch: str, mutation: str) -> World:
    """Trigger, run what has not acknowledged, complete: again until the epoch has completed."""
    for number in range(3):
        world = alone(world, opener(mutation, f"next{number}", epoch, None))
        entry = next((e for e in world.head.pending if e.epoch == epoch), None)
        if entry is not None:
            doc = dict(world.objects)["pending", entry.id, entry.token]
            world = alone(world, asker(mutation, f"asks{number}", doc))
            for execution in doc.execs:
                if ("ack", execution.home, execution) not in dict(world.objects):
                    world = alone(world, driver(mutation, "rerun", epoch, doc.folded, execution))
            world = alone(world, finisher(mutation, f"settler{number}", entry.id))
        if any(e.epoch == epoch and e.status == "completed" for e in world.head.history):
            return world
    raise ViolationError(f"nobody can complete epoch {epoch} any more")


def audit_clean(world: World) -> None:
    """Check that a cleaning has left exactly what something refers to."""
    audit_world(world)
    alive = live(world.head, dict(world.objects))
    assert alive is not None
    left = [key for key, _ in world.objects if key != HEAD and key[1] < world.head.next_id and not kept(key, alive)]
    if left:
        raise ViolationError(f"left over after the last cleaning (leak): {left}")


class Explorer:
    """Breadth-first search over (store, what each party has been told, requests still under way)."""

    def __init__(self, scenario: Scenario, mutation: str = "") -> None:
        self._scenario = scenario
        self._mutation = mutation
        self._ids: dict[Any, int] = {}
        self._things: list[Any] = []
        self._steps: dict[tuple[int, int, int, bool], list[tuple[int, int, int]]] = {}
        self._calls: dict[tuple[int, int], Any] = {}

    def run(self, limit: int = 5_000_000) -> Explored:
        """Visit every state.

        Raises:
            ViolationError: a property does not hold, with the shortest trace.
        """
        begun = time.perf_counter()
        parties = len(self._scenario.actors)
        start = (self._id(self._scenario.begin()), *[self._id(())] * parties, *[-1] * self._scenario.losses)
        parent: dict[tuple[int, ...], tuple[tuple[int, ...], int] | None] = {start: None}
        frontier, transitions = [start], 0
        audited: set[int] = set()
        while frontier:
            following = []
            for state in frontier:
                if len(parent) > limit:
                    raise AssertionError(f"{self._scenario.name}: more than {limit} states; shrink the scenario")
                for who in range(1, len(state)):
                    if state[who] < 0:
                        continue
                    free = next((i for i in range(parties + 1, len(state)) if state[i] == -1), 0)
                    try:
                        steps = self._step(state[0], who if who <= parties else 0, state[who], bool(free))
                        for world, _, _ in steps:
                            if world not in audited:
                                audited.add(world)
                                audit_world(self._things[world])
                                audit_end(self._things[world], self._mutation)
                    except ViolationError as error:
                        raise ViolationError(f"{error}\n{self._trace(parent, state, who)}") from None
                    for world, local, message in steps:
                        changed = list(state)
                        changed[0], changed[who] = world, local
                        if message >= 0:
                            changed[free] = message
                        new = tuple(changed)
                        transitions += 1
                        if new not in parent:
                            parent[new] = (state, who)
                            following.append(new)
            frontier = following
        return Explored(self._scenario.name, len(parent), transitions, time.perf_counter() - begun)

    def _id(self, thing: Any) -> int:
        if thing not in self._ids:
            self._ids[thing] = len(self._things)
            self._things.append(thing)
        return self._ids[thing]

    def _call(self, who: int, local: int) -> Any:
        """Give a party's next call; its place is what it has been told since it last began."""
        if (who, local) not in self._calls:
            program = self._scenario.actors[who - 1][1](self._mutation)
            try:
                call = program.send(None)
                for answer in self._things[local]:
                    call = program.send(answer)
                self._calls[who, local] = call
            except StopIteration as stop:
                self._calls[who, local] = ("return", stop.value)
        return self._calls[who, local]

    def _step(self, at: int, who: int, local: int, may_lose: bool) -> list[tuple[int, int, int]]:
        key = (at, who, local, may_lose)
        if key not in self._steps:
            self._steps[key] = self._work_out(self._things[at], who, local, may_lose)
        return self._steps[key]

    def _work_out(self, before: World, who: int, local: int, may_lose: bool) -> list[tuple[int, int, int]]:
        if who == 0:  # a request that was still under way lands
            return [(self._id(apply(before, self._things[local])[0]), -2, -1)]
        call = self._call(who, local)
        world, answer = apply(before, call)
        found = [(self._id(world), self._told(world, who, local, answer), -1)]
        if may_lose and call[0] in LOSABLE:
            # The call's answer is lost. The write may land at any later moment or never; at once is one of these.
            found.append((self._id(before), self._told(before, who, local, UNKNOWN), self._id(call)))
        return found

    def _told(self, world: World, who: int, local: int, answer: Any) -> int:
        told = self._id((*self._things[local], answer))
        call = self._call(who, told)
        if call[0] != "return":
            return told
        if call[1] is RETRY:
            return self._id(())
        audit_answer(world, call[1])
        return -2

    def _trace(self, parent: dict[Any, Any], state: tuple[int, ...], who: int) -> str:
        lines: list[str] = []
        step: tuple[tuple[int, ...], int] | None = (state, who)
        while step is not None:
            state, who = step
            if who <= len(self._scenario.actors):
                lines.append(f"{self._scenario.actors[who - 1][0]}: {str(self._call(who, state[who]))[:160]}")
            else:
                lines.append(f"lands late: {str(self._things[state[who]])[:160]}")
            step = parent[state]
        return "\n".join(reversed(lines))
