"""One thread, many processes: each is a greenlet that gives the baton back at every call of the store.

The seed decides who goes on, and with the plan of faults it decides everything: a run is a function of its plan.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NoReturn

from greenlet import greenlet

from tests.protocol.simulation.accounts import Asking
from tests.protocol.simulation.kinds import Kind, kind_of
from tests.support.wrapped_stores import Crashed


class Fault(StrEnum):
    """Fault at one call of the store."""

    CRASH_BEFORE = "crash before"
    CRASH_AFTER = "crash after"
    LOST = "it lands, the answer is lost"
    NOT_LANDED = "it does not land, the answer is lost"
    LATE = "the answer is lost, it lands later"
    UNAVAILABLE = "unavailable"
    STALL = "stall"
    CLOCK = "the clock jumps"


@dataclass(frozen=True)
class Plan:
    """All that decides a run."""

    seed: int
    steps: int = 10_000
    width: int = 6
    """Processes at once."""
    faults: dict[int, Fault] = field(default_factory=dict)
    """Faults by step."""

    @property
    def kind(self) -> Kind:
        """Features of the job."""
        return kind_of(self.seed)

    @property
    def held(self) -> int:
        """Number of documents of pending attempts that the head holds at once; further ones are objects."""
        return (4, 4, 1, 4, 1, 0, 0)[self.seed % 7]


def plan(seed: int, steps: int = 10_000) -> Plan:
    """Draw the plan of a seed: one step in 50, in 200 or in 1000 has a fault."""
    rng = random.Random(f"faults {seed}")
    kinds = list(Fault)
    rate = rng.choice((0.02, 0.005, 0.001))
    faults = {step: rng.choice(kinds) for step in range(steps) if rng.random() < rate}
    return Plan(seed, steps, rng.randint(3, 9), faults)


class Actor:
    """One process."""

    def __init__(self, name: str, body: Callable[[], None], ended: Callable[[BaseException | None], None]) -> None:
        self.name = name
        self.wakes_at = 0
        self.crashed = False
        self.run: str | None = None
        """The driver's own token, if it is a driver: what it may delete."""
        self.asking: Asking | None = None
        """Request of a trigger; None for any other process."""
        self._body, self._ended = body, ended
        self.greenlet = greenlet(self._main)

    def _main(self) -> None:
        error: BaseException | None = None
        try:
            self._body()
        except Crashed as crash:
            error = crash
        self._ended(error)


class Hub:
    """Runs the actors, one step at a time.

    Args:
        plan: what decides.
        trace: takes a line for each step.
    """

    def __init__(self, plan: Plan, trace: Callable[[str], None]) -> None:
        self.plan = plan
        self.rng = random.Random(f"order {plan.seed}")
        self.now_ms = 1_700_000_000_000
        self.step = 0
        self.faulty = True
        self.actors: list[Actor] = []
        self.current: Actor | None = None
        self.run: str | None = None
        """The token of the driver that runs while there are no processes: what it may delete."""
        self.late: list[tuple[int, Callable[[], object]]] = []
        self.trace = trace

    def spawn(self, name: str, body: Callable[[], None], ended: Callable[[BaseException | None], None]) -> Actor:
        """Start a process; it comes to its first call when its turn comes."""
        actor = Actor(name, body, ended)
        self.actors.append(actor)
        return actor

    def turn(self) -> None:
        """Let one process go on to its next call."""
        awake = [actor for actor in self.actors if actor.wakes_at <= self.step] or self.actors
        actor = self.rng.choice(awake)
        self.current = actor
        actor.greenlet.switch()
        self.current = None
        if actor.greenlet.dead:
            self.actors.remove(actor)
        for due in [each for each in self.late if each[0] <= self.step]:
            self.late.remove(due)
            due[1]()

    def pause(self, verb: str, key: str) -> Fault | None:
        """Give the baton back before a call of the store, and say what goes wrong at it."""
        actor = self.current
        if actor is None:
            return None  # the auditor, or the test itself
        assert actor.greenlet.parent is not None
        if actor.crashed:
            raise Crashed(verb, key)  # its own clearing up is not done: a process that has died does nothing
        actor.greenlet.parent.switch()
        fault = self._next(actor)
        self.trace(f"{self.step} {self.now_ms} {actor.name} {verb} {key} {fault or ''}")
        if fault is Fault.STALL:
            actor.wakes_at = self.step + self.rng.choice((20, 200, 1000))
            actor.greenlet.parent.switch()
            fault = None
        if fault is Fault.CLOCK:
            self.now_ms += self.rng.choice((60_000, 400_000, 700_000))
            fault = None
        if fault is Fault.CRASH_BEFORE:
            self.crash(verb, key)
        return fault

    def crash(self, verb: str, key: str) -> NoReturn:
        """Let the process that has the baton die."""
        assert self.current is not None
        self.current.crashed = True
        raise Crashed(verb, key)

    def _next(self, actor: Actor) -> Fault | None:
        self.step += 1
        self.now_ms += 20
        return self.plan.faults.get(self.step) if self.faulty else None

    def drain(self) -> None:
        """Let every process come to its end, with nothing going wrong any more."""
        self.faulty = False
        for _, land in self.late:
            land()
        self.late.clear()
        while self.actors:
            for actor in self.actors:
                actor.wakes_at = 0
            self.turn()
