"""Events of a swap: each once, as the head counts it."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta

import pytest

from airflow_cairn.checkpoint import Coordinator, Runtime
from airflow_cairn.checkpoint.documents import head
from airflow_cairn.checkpoint.documents.head import Head
from airflow_cairn.checkpoint.reasons import Reason, Status
from airflow_cairn.checkpoint.rules import history
from airflow_cairn.storage import UnavailableError
from airflow_cairn.storage.port import ObjectStore
from airflow_cairn.tasks.metrics import Happened, changes_between
from tests.support.world.world import CONFIG, JOB, TIMEOUT, World
from tests.support.wrapped_stores import Fault, FaultyStore


class Watched(World):
    """A world whose coordinators keep what their swaps have changed."""

    def __init__(self) -> None:
        super().__init__(config=replace(CONFIG, tolerable_failed_checkpoints=3))
        self.found: list[Happened] = []

    def coordinator(self, store: ObjectStore | None = None) -> Coordinator:
        """Open a process of its own."""
        runtime = Runtime(self.clock, self.new_token)
        return Coordinator(store or self.store, JOB, runtime, after_swap=self._keep)

    def _keep(self, old: Head, new: Head) -> None:
        self.found.append(changes_between(old, new))

    def since(self) -> Iterator[Happened]:
        """Give what has happened since the last call."""
        found, self.found = self.found, []
        return iter(found)


@pytest.fixture
def world(parsed_documents: None) -> Watched:
    return Watched()


def test_a_swap_that_ends_nothing_says_nothing(world: Watched) -> None:
    world.coordinator().pause()
    nothing = Happened(0, (), (), (), 0, (), ())
    assert [*world.since()] == [nothing, nothing], "the job's first version, and that with the pause"


def test_a_failed_stage_is_a_failover_once(world: Watched) -> None:  # semantics F2, D1
    """A waiting task that sees the decline first ends the attempt in one swap; the next begins later."""
    world.trigger("a")
    handover = world.submit("a", "clean", "try").handover
    world.decline(handover, "boom")
    list(world.since())
    world.coordinator().progress("a")
    (ended,) = world.since()
    assert ([each.reason for each in ended.failed], ended.failovers) == ([Reason.CHECKPOINT_DECLINED], 0)
    world.trigger("a")
    assert [(each.triggered, each.failovers) for each in world.since()] == [(1, 1)]


def test_an_attempt_after_a_timeout_is_no_failover(world: Watched) -> None:  # semantics D2
    world.trigger("a")
    world.clock.advance(TIMEOUT)
    list(world.since())
    world.coordinator().progress("a")
    world.trigger("a")
    found = list(world.since())
    assert [reason.reason for each in found for reason in each.failed] == [Reason.CHECKPOINT_EXPIRED]
    assert sum(each.failovers for each in found) == 0


def test_a_trigger_that_fails_without_an_id_has_its_reason(world: Watched) -> None:  # semantics O1, T1
    world.run_epoch("a")
    list(world.since())
    with pytest.raises(UnavailableError):
        world.trigger("b", FaultyStore(world.store, 0, Fault.FAILS))
    (found,) = world.since()
    assert (found.triggered, found.failed, found.failed_triggers) == (1, (), (Reason.IO_EXCEPTION,))


def test_a_restore_is_told_with_its_time(world: Watched) -> None:  # semantics R5
    world.run_epoch("a")
    list(world.since())
    world.coordinator().restore_latest()
    assert [restore.checkpoint for each in world.since() for restore in each.restores] == [1]


def test_what_the_history_forgets_is_not_told_again(
    world: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:  # semantics O1
    for module in (head, history):
        monkeypatch.setattr(module, "MAX_HISTORY", 4)
    for number in range(9):
        world.run_epoch(f"e{number:03}")
        world.clock.advance(timedelta(seconds=1))
    completed = [entry.id for each in world.since() for entry in each.completed]
    assert completed == list(range(1, 10))
    assert all(entry.status is Status.COMPLETED for entry in world.coordinator().head().history)
