"""A driver that enters its block asks whether it is wanted, and reads what it restores at the same time."""

from __future__ import annotations

from collections.abc import Callable
from threading import Barrier
from typing import TypeVar

import pytest

from airflow_cairn.checkpoint.documents.attempt import RestorePointer
from airflow_cairn.checkpoint.errors import FencedError
from airflow_cairn.spark import Epoch
from airflow_cairn.storage import ObjectStore
from airflow_cairn.storage.clock import Runtime
from tests.support.narrowing import expect
from tests.support.world.world import World
from tests.support.wrapped_stores import WrappedStore

T = TypeVar("T")


class Meeting(WrappedStore):
    """Answers for neither the head nor the metadata before it has been asked for both."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner)
        self._both = Barrier(2, timeout=60)
        self._met = set[str]()

    def _read(self, verb: str, key: str, call: Callable[[], T]) -> T:
        kind = next((kind for kind in ("head.json", "_metadata") if kind in key), None)
        if kind is not None and kind not in self._met:
            self._met.add(kind)
            self._both.wait()
        return call()


def test_it_reads_both_at_once(world: World) -> None:
    world.run_epoch("a")
    world.trigger("b")
    handover = world.submit("b", "clean").handover
    runtime = Runtime(world.clock, world.new_token)
    with Epoch(None, Meeting(world.store), handover, runtime):  # type: ignore[arg-type]  # no DataFrames, no session
        pass


def test_a_driver_that_is_not_wanted_hears_that(world: World) -> None:  # semantics F3
    """The checkpoint that it restores may be gone by then."""
    world.run_epoch("a")
    world.trigger("b")
    first = world.submit("b", "clean").handover
    world.submit("b", "clean")
    files = world.coordinator().files
    files.delete([expect(RestorePointer, first.restore).metadata.key])
    with pytest.raises(FencedError, match="attempt 2, checkpoint 3, runs the stage now"):
        Epoch(None, world.store, first, Runtime(world.clock, world.new_token)).__enter__()  # type: ignore[arg-type]
