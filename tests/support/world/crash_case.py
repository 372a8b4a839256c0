"""Crash cases: a fault at one write of an operation, and another process that may come then."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from _pytest.mark import ParameterSet

from tests.support.covering import as_parameters, covering, told_apart
from tests.support.world.operation import Operation, forked, kind_of, writes_of
from tests.support.world.places import CLOUDS, MEMORY
from tests.support.world.world import World
from tests.support.wrapped_stores import Fault, FaultyStore

Others = Mapping[str, Callable[[World], object]]
"""Acts of other processes during the struck one, by who does them."""


@dataclass(frozen=True)
class CrashCase:
    """A fault at one write, and who comes right after it."""

    operation: Operation
    at: int
    write: str
    fault: Fault
    other: str | None = None

    def __str__(self) -> str:
        """Name the write by its key, without the first folder."""
        _, _, name = self.write.removeprefix("create ").partition("/")
        return f"{self.operation.name}, write {self.at} ({name}): {self.fault}" + (
            f", then {self.other}" if self.other else ""
        )

    def shows(self) -> Iterator[Hashable]:
        """Yield what has to be seen once: each write struck, each operation and each kind of write with each fault."""
        yield self.operation.name, self.at
        yield self.operation.name, self.fault
        yield kind_of(self.write), self.fault, self.other

    def faulty(self, world: World, others: Others) -> FaultyStore:
        """Give the world's store with the fault in it."""
        other = others[self.other] if self.other else None
        return FaultyStore(world.store, self.at, self.fault, (lambda: other(world)) if other else None)


def crash_cases(operations: tuple[Operation, ...], others: Others) -> Iterator[CrashCase]:
    """Give every fault at every write, and at each write whose answer is lost everybody else."""
    for operation in operations:
        for at, write in enumerate(writes_of(operation)):
            yield from (CrashCase(operation, at, write, fault) for fault in Fault)
            yield from (CrashCase(operation, at, write, Fault.ANSWER_LOST, other) for other in others)


class Struck(Protocol):
    """Case of a crash point, as any test of them sees it."""

    @property
    def write(self) -> str:
        """The write that is struck."""

    @property
    def fault(self) -> Fault | None:
        """Fault at the write."""

    @property
    def other(self) -> str | None:
        """Process that acts during the fault."""

    def shows(self) -> Iterator[Hashable]:
        """Yield what has to be seen once."""


class Placed(NamedTuple):
    """A case on a cloud."""

    cloud: str
    case: Struck

    def __str__(self) -> str:
        return f"{self.cloud}: {self.case}"


def in_each_place(cases: Iterable[Struck]) -> list[ParameterSet]:
    """Give each case in memory, and on each cloud each fault at each write, beside what `make test` runs in memory.

    Of those with a swap that another process wins `make test` has one on each cloud: tests/unit/storage/ holds each
    cloud's store to the contract of all stores, with races.

    Args:
        cases: with texts that differ.
    """
    given = [*told_apart(cases, lambda case: case.shows())]
    there = [Placed(cloud, case) for case, new in given if new or not case.other for cloud in CLOUDS]

    def shows(placed: Placed) -> Iterator[Hashable]:
        if placed.case.fault is None and placed.case.write.startswith("replace"):
            yield placed.cloud

    here = as_parameters(((MEMORY, case), new) for case, new in given)
    return [*here, *covering(there, shows)]


def assert_a_lost_answer_changes_no_answer(operation: Operation) -> None:
    """Lose the answer of one write after the other; what the operation gives must be the same."""
    expected = _outcome(operation, None)
    for at, write in enumerate(writes_of(operation)):
        if not write.startswith("delete"):
            assert _outcome(operation, at) == expected, write


def _outcome(operation: Operation, at: int | None) -> object:
    with operation.limited():
        world, run = forked(operation)
        return run(world, world.store if at is None else FaultyStore(world.store, at, Fault.ANSWER_LOST))
