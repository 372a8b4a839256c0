"""Places of worlds: in memory, or each in a bucket of its own on a cloud's emulator, over the network."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from airflow_cairn.storage.port import ObjectStore
from tests.support.memory_store import MemoryStore

MEMORY = "memory"
CLOUDS = ("gcs", "azure")

_opened: list[Callable[[], ObjectStore]] = [MemoryStore]


def new_store() -> ObjectStore:
    """Give an empty store where worlds lie now."""
    return _opened[-1]()


def can_fork() -> bool:
    """Tell whether a world that lies there can be copied: the tags of a bucket's objects cannot."""
    return _opened[-1] is MemoryStore


@contextmanager
def lying_in(opened: Callable[[], ObjectStore]) -> Iterator[None]:
    """Let worlds that are made inside the block lie in stores that this opens."""
    _opened.append(opened)
    try:
        yield
    finally:
        _opened.pop()
