"""A job that reads a folder of any number of files, which need not exist to be listed."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from airflow_cairn.checkpoint.answers import Triggered
from airflow_cairn.checkpoint.documents import metadata
from airflow_cairn.checkpoint.reasons import Reason
from airflow_cairn.checkpoint.source import RunFacts
from airflow_cairn.checkpoint.sources.files import FileSource, files_in
from airflow_cairn.checkpoint.store import source_lists
from airflow_cairn.storage import ObjectStat, ObjectStore
from tests.support.memory_store import MemoryStore
from tests.support.world.world import World
from tests.support.wrapped_stores import WrappedStore

NAME = "year=2026/month=01/part-{:07d}-5f0c1d3e.snappy.parquet"


class Listed(WrappedStore):
    """A folder of so many files, which need not exist to be listed."""

    def __init__(self, count: int) -> None:
        super().__init__(MemoryStore("in"))
        self.names: Callable[[], Iterator[str]] = lambda: (NAME.format(each) for each in range(count))
        self.listings = 0

    def list(self, prefix: str, *, start_after: str | None = None) -> Iterator[ObjectStat]:
        self.listings += 1
        return (ObjectStat(name, 1000, f"{zlib.crc32(name.encode()):032x}") for name in self.names())

    def add(self, *names: str) -> None:
        before = self.names
        self.names = lambda: iter(sorted([*before(), *names]))


class Job:
    """A job that reads such a folder."""

    def __init__(self, count: int, store: ObjectStore | None = None, **options: Any) -> None:
        self.world = World(store)
        self.folder = Listed(count)
        self.source = FileSource("s3://input", **options)

    def fork(self) -> Job:
        twin = Job(0)
        twin.world, twin.folder.names = self.world.fork(), self.folder.names
        return twin

    def trigger(self, epoch: str, store: ObjectStore | None = None) -> Any:
        facts = RunFacts(epoch, open_store=lambda *_: self.folder)
        request = replace(self.world.request(epoch), sources=(self.source,), run=facts)
        return self.world.coordinator(store).trigger(request)

    def names(self, answer: Any) -> list[str]:
        assert isinstance(answer, Triggered), answer
        part = (answer.pending.slice.sources or {})[self.source.name]
        return [
            str(file["key"]) for file in files_in(part, lambda shelved: source_lists.read(self.world.files, shelved))
        ]

    def run(self, epoch: str) -> list[str]:
        names = self.names(self.trigger(epoch))
        self.world.run_epoch(epoch)
        return names

    def run_if_it_may(self, epoch: str) -> None:
        if isinstance(self.trigger(epoch), Triggered):
            self.world.run_epoch(epoch)

    def give_up(self, epoch: str) -> None:
        self.world.coordinator().abort(self.world.pending_id(epoch), Reason.JOB_FAILURE, "by hand")

    def lists(self) -> set[str]:
        return {found.key for found in self.world.files.listing("epoch-lists/")}

    def pieces(self) -> set[str]:
        return {key for key in self.world.standing() if "/positions/" in key}

    def named(self) -> set[str]:
        """Keys that the positions of the retained checkpoints name."""
        found = self.world.coordinator().verify()
        every = [each for v in found if v.slice for each in metadata.referred(v.slice.positions)]
        return {each.key for each in every}
