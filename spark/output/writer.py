"""Writes one output: by Spark's own writer into a folder of its own, then one listing says what is there (A5, A6).

Order: choose the committer, write, list once, delete what is no data, and describe the files. Nothing refers to any of
it before the acknowledgement; a crash in between leaves files for the cleaner. Never through Python workers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from ...checkpoint.documents import layout
from ...checkpoint.documents.acknowledgement import Appended, Output, StateHandle
from ...checkpoint.documents.attempt import Handover
from ...checkpoint.documents.schemas import stored_schema
from ...checkpoint.errors import InvalidStateError
from ...checkpoint.store.job_files import JobFiles
from ...storage.checksums import SHA256, checksum_of, is_checksum
from ...storage.errors import CairnError, UnsupportedStorageError
from ...storage.names import order
from ...storage.port import ConditionFailed, ObjectStat
from ..appending import manifests, partitions, small_files
from ..appending.manifests import Before, Listing
from ..stored import key_groups
from ..stored.local_state import LocalState, run_of
from ..stored.outputs import File, Stored, rows_of_files
from . import committer, empty_files, local_first, row_count
from .data_files import part_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger("airflow_cairn")

_SUCCESS = "_SUCCESS"
_AT_ONCE = 8
"""Files that are described at once: a thousand took 1.45 s on a local S3 server."""


@dataclass(slots=True)
class Times:
    """Where the time went, in milliseconds (semantics A1)."""

    sync_ms: int = 0
    """The application waited."""
    async_ms: int = 0
    """Listing, checksums, deleting what is no data; and all of what was written in the background."""


Merge = Callable[[Output, Sequence[StateHandle]], Sequence[StateHandle] | None]
"""Writes the rows of some files of a table anew, as fewer files; None: that failed, and the files stay."""


@dataclass(frozen=True, slots=True)
class Planned:
    """A DataFrame that is about to be written."""

    output: Output
    url: str
    df: DataFrame
    in_force: committer.InForce
    run: int = 0
    """Of a run: its number (semantics K1)."""

    def write_to(self, url: str) -> None:
        """Have Spark write it."""
        appended = self.output.appended
        with self.in_force.write() as options:
            writer = self.df.write.mode("error").options(**options)
            if appended is not None and appended.partition_by:
                writer = writer.partitionBy(partitions.COLUMN)
            writer.parquet(url)


class Writer:
    """Writes the outputs of one driver, whose own token `run` keeps it apart from another of the same execution.

    With `local`, states are kept beside the Spark server too (semantics V3).
    """

    def __init__(
        self,
        files: JobFiles,
        handover: Handover,
        run: str,
        now_ms: Callable[[], int],
        local: LocalState | None = None,
    ) -> None:
        self._files = files
        self._handover = handover
        self._run = run
        self._now_ms = now_ms
        self._local = local
        self._lock = Lock()
        self.key_groups = key_groups.number_of(handover, ())
        """Into how many key groups keyed state is divided; the restored checkpoint may know better."""
        self._in_force: list[tuple[SparkSession, committer.InForce]] = []
        self._touched: list[str] = []
        self.times = Times()

    @property
    def run_folder(self) -> str:
        """The folder below which everything lies that this driver writes; relative to the job's prefix."""
        at = self._handover
        return f"{layout.execution_folder(at.checkpoint, at.stage, at.attempt, at.token)}{self._run}/"

    def folder_of(self, output_id: str) -> str:
        """Give the folder of one output of this driver, which is about to be written; relative to the job's prefix."""
        at = self._handover
        folder = layout.output_folder(at.checkpoint, at.stage, at.attempt, at.token, self._run, output_id)
        self._touched.append(folder)
        return folder

    def create(self, output: Output, name: str, data: bytes) -> Stored:
        """Write a small file as all of an output.

        Raises:
            InvalidStateError: another process writes in the name of this driver.
        """
        path = output.folder + name
        with self.waiting():
            answer = self._files.create_bytes(path, data)
        if isinstance(answer, ConditionFailed):
            raise InvalidStateError("a file with this driver's own name is there already", key=self._files.full(path))
        content = None if is_checksum(answer.etag) else checksum_of(data)
        handle = StateHandle(output.id, path, len(data), answer.etag, content)
        if self._local is not None:
            local_first.keep(self._local, handle, name, data)
        return Stored(output, [File(0, handle)])

    def write_files(
        self, output: Output, sizes: Mapping[str, int], copy: Callable[[Mapping[str, Path]], None]
    ) -> list[StateHandle] | None:
        """Write raw files beside the server and upload them; None where that is not done.

        Args:
            output: what they are; its folder is this driver's own.
            sizes: bytes of each, by its path below that folder.
            copy: copies each file to the path that it is given.

        Raises:
            InvalidStateError: another process writes in the name of this driver.
        """
        if self._local is None:
            return None
        with self.waiting():
            return local_first.write_files(self._files, self._local, output, sizes, copy, self._handle)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Count the time in which the application waits for state to be written."""
        began = self._now_ms()
        yield
        with self._lock:
            self.times.sync_ms += max(0, self._now_ms() - began)

    def plan(
        self,
        kind: str,
        name: str,
        df: DataFrame,
        key: Sequence[str],
        merge: Mapping[str, str] | None = None,
        appended: Appended | None = None,
    ) -> Planned:
        """Do the short part of writing a DataFrame as one output: nothing is computed and nothing written yet.

        Args:
            kind: `state`, `table` or `exchange`.
            name: the output's name.
            df: what to write.
            key: key columns; rows are written by key group, then (semantics R4).
            merge: of a state that is aggregated (semantics K5).
            appended: of a table that grows.

        Raises:
            InvalidConfigError: the output committer in use cannot be trusted.
            InvalidNameError: the name is too long.
            InvalidStateError: such a key does not identify rows, or a column is of a user-defined type (W5).
        """
        output_id = f"{kind}.{name}"
        groups = self.key_groups if key else None
        if groups:
            key_groups.check_key(output_id, df, key)
        folder = self.folder_of(output_id)
        schema = schema_of(output_id, df)
        output = Output(kind, name, folder, schema, tuple(key), key_groups=groups, merge=dict(merge or {}))
        output = replace(output, appended=appended)
        with self.waiting():
            url = self._files.spark_url(folder)
            # The frame's own session writes it, which need not be the one that the epoch found.
            in_force = self._committer_of(df.sparkSession, url)
            df = self._distributed(df, key)
            if appended is not None and appended.partition_by:
                df = partitions.told_apart(df, appended.partition_by)
            return Planned(output, url, df, in_force)

    def plan_base(
        self, output: Output, rows: DataFrame, made: Callable[[DataFrame], DataFrame], *, is_small: bool
    ) -> Planned:
        """Do the short part of writing a keyed state whole (semantics K3).

        Args:
            output: the state as it is to be; its files go into a folder of their own.
            rows: of which the state is made.
            made: makes it of the rows, once they are placed by their key group.
            is_small: whether the state was small so far, so that it needs no file for each subtask.

        Raises:
            InvalidConfigError: the output committer in use cannot be trusted.
        """
        folder = self.folder_of(output.id)
        with self.waiting():
            url = self._files.spark_url(folder)
            in_force = self._committer_of(rows.sparkSession, url)
            parallelism = self._handover.parallelism
            placed = key_groups.placed(rows, output.key, self.key_groups, parallelism, is_small=is_small)
            df = key_groups.in_order(made(placed), output.key)
            return Planned(replace(output, folder=folder, key_groups=self.key_groups), url, df, in_force)

    def plan_run(
        self,
        output: Output,
        rows: DataFrame,
        number: int,
        made: Callable[[DataFrame], DataFrame] = lambda placed: placed,
        *,
        merged: bool = False,
    ) -> Planned:
        """Do the short part of writing a run of a keyed state (semantics K2).

        Args:
            output: the state as it is; the run's files go into a folder of their own.
            rows: what changed, with the columns of a run.
            number: the run's.
            made: makes the run of the rows, once they are placed by their key group.
            merged: whether the rows are those of several runs, the one of this epoch among them.

        Raises:
            InvalidConfigError: the output committer in use cannot be trusted.
        """
        folder = self.folder_of(f"{'merged' if merged else 'run'}.{output.name}")
        with self.waiting():
            url = self._files.spark_url(folder)
            in_force = self._committer_of(rows.sparkSession, url)
            # Not a file for each subtask: a run is small, and each of its files is one more to read (semantics K2).
            df = key_groups.in_order(made(key_groups.gathered(rows, output.key, self.key_groups)), output.key)
            return Planned(replace(output, folder=folder), url, df, in_force, number)

    def plan_merged(self, output: Output, small: Sequence[StateHandle], spark: SparkSession) -> Planned:
        """Do the short part of writing small files of a table that grows as one for each partition.

        Args:
            output: the table; what is written goes into a folder of its own.
            small: the files.
            spark: the session that reads and writes.

        Raises:
            InvalidConfigError: the output committer in use cannot be trusted.
        """
        folder = self.folder_of(f"small.{output.name}")
        with self.waiting():
            url = self._files.spark_url(folder)
            in_force = self._committer_of(spark, url)
            rows = rows_of_files(spark, self._files, Stored(output, [File(0, each) for each in small]))
            by = output.appended.partition_by if output.appended is not None else ()
            df = partitions.told_apart(rows, by).repartition(partitions.COLUMN) if by else rows.coalesce(1)
            return Planned(replace(output, folder=folder), url, df, in_force)

    def write(self, planned: Planned, *, waited_for: bool = True) -> Stored:
        """Write what was planned.

        Args:
            planned: by `plan`.
            waited_for: whether the application waits for it; else all the time that it takes is asynchronous.
        """
        began = self._now_ms()
        output, files = planned.output, self._written_here(planned)
        if files is None:
            # Without the output's own: Spark refuses a folder that is there.
            self._files.store.make_folder(self._files.full(self.run_folder))
            planned.write_to(planned.url)
        written = self._now_ms()
        if files is None:
            files = self._settle(output, magic=planned.in_force.committer.magic)
        settled = self._now_ms()
        with self._lock:
            if waited_for:
                self.times.sync_ms += max(0, written - began)
            self.times.async_ms += max(0, settled - (written if waited_for else began))
        if planned.run:
            files = [replace(file, handle=replace(file.handle, run=planned.run)) for file in files]
        return Stored(output, files)

    def list_table(
        self, planned: Planned, files: list[File], there: Before, replaced: Collection[str], merge: Merge
    ) -> Stored:
        """Write what names the files of a table that grows, after its new files; see `Listing`.

        Args:
            planned: what was written.
            files: its files.
            there: the table so far.
            replaced: partitions whose files so far go.
            merge: writes the rows of small files as larger ones, and gives these.
        """
        began, output = self._now_ms(), planned.output
        assert output.appended is not None
        listing = Listing(self._files, output)
        draft = listing.draft(there, [file.handle for file in files], replaced)
        small, others = small_files.alike(draft.older)
        drafted = self._now_ms()
        larger = merge(output, small) if small else None
        merged = self._now_ms()
        listed, count, size_bytes = listing.write(draft, None if larger is None else [*others, *larger])
        with self._lock:
            self.times.async_ms += max(0, self._now_ms() - merged + drafted - began)
        output = replace(output, appended=replace(output.appended, files=count, size_bytes=size_bytes))
        return Stored(output, [File(0, listed), *files, *(File(0, each) for each in larger or ())])

    def table_before(self, stored: Stored | None) -> Before:
        """Read what the restored checkpoint holds of a table that grows."""
        return manifests.before(self._files, stored)

    def delete_output(self, folder: str) -> None:
        """Delete what was written of one output; problems are logged, the block's end tries again."""
        try:
            self.delete([*(found.key for found in self._files.listing(folder)), folder])
        except CairnError as problem:
            log.warning("%s was not deleted: %s", folder, problem)

    def delete_all(self) -> None:
        """Delete whatever this driver has written, pending uploads too (semantics A5, W7)."""
        if not self._touched:
            return
        for upload in self._files.store.uploads(self._files.full(self.run_folder)):
            self._files.store.abort_upload(upload)
        keys = [found.key for found in self._files.listing(self.run_folder)]
        # A write that failed early leaves an empty folder, or on S3 an object in its place, that no listing shows.
        self.delete(sorted({*keys, *self._touched, self.run_folder}, key=order, reverse=True))

    def _committer_of(self, spark: SparkSession, url: str) -> committer.InForce:
        """Choose a session's committer at its first write; a store has one scheme, so its URLs do not matter later."""
        with self._lock:
            for known, in_force in self._in_force:
                if known is spark:
                    return in_force
            self._in_force.append((spark, committer.InForce(spark, committer.choose(spark, url))))
            return self._in_force[-1][1]

    def _distributed(self, df: DataFrame, key: Sequence[str]) -> DataFrame:
        parallelism = self._handover.parallelism
        if key:
            return key_groups.distributed(df, key, self.key_groups, parallelism)
        return df if parallelism is None else df.repartition(parallelism)

    def _written_here(self, planned: Planned) -> list[File] | None:
        """Write a state beside the server and upload it; None where that is not done."""
        if self._local is None or planned.output.kind != "state":
            return None
        name = run_of(planned.output.id) if planned.run else planned.output.id
        return local_first.write(self._files, self._local, planned.output, name, planned.write_to, self._handle)

    def _settle(self, output: Output, *, magic: bool) -> list[File]:
        folder = output.folder
        data: list[tuple[int, ObjectStat]] = []
        other: list[str] = []
        for found in self._files.listing(folder):
            name = found.key.removeprefix(folder)
            part = part_of(name.rpartition("/")[2] if partitions.partition_of(name) else name)
            if part is None:
                other.append(found.key)
            else:
                data.append((part, found))
        if magic:
            committer.verify_magic(self._files, folder + _SUCCESS)
        empty: list[str] = []
        if output.kind != "table" or output.appended is not None:
            empty = empty_files.without_rows(self._files.read_range, data, output.schema or "")
        data = [(part, found) for part, found in data if found.key not in empty]
        self.delete([*other, *empty])
        handles = self.handles(output.id, [found for _, found in data])
        handles = [replace(each, partition=partitions.partition_of(each.path)) for each in handles]
        return [File(part, handle) for (part, _), handle in zip(data, handles, strict=True)]

    def handles(self, output_id: str, found: Sequence[ObjectStat]) -> list[StateHandle]:
        """Describe files that a listing shows, several at once: a request each, for the checksum (semantics W9).

        They are on the disk when this returns, so that what the acknowledgement names outlives a crash (semantics A5).
        The disk writes them while they are hashed.

        Raises:
            UnsupportedStorageError: the store has no tags.
        """
        with ThreadPoolExecutor(_AT_ONCE + 1, "cairn-describe") as pool:
            on_disk = pool.submit(self._files.store.sync, [self._files.full(each.key) for each in found])
            handles = list(pool.map(lambda each: self._handle(output_id, each.key), found))
            on_disk.result()
        return handles

    def delete(self, keys: Sequence[str]) -> None:
        """Delete files of this driver; what cannot be deleted is left to the cleaner, and logged."""
        for failure in self._files.delete(keys):
            log.warning("Not deleted: %s (%s). The next cleaning tries again.", failure.key, failure.reason)

    def _handle(self, output_id: str, key: str, sha256: str | None = None) -> StateHandle:
        """Describe one file: its tag, and what survives a copy of it (`sha256`, where that is known)."""
        found = self._files.stat(key)
        if found.etag is None:
            raise UnsupportedStorageError(
                "the store names no tag for a file, so damage to it could not be noticed. Use another store",
                store=self._files.store.describe(),
                key=self._files.full(key),
            )
        handle = StateHandle(output_id, key, found.size_bytes, found.etag)
        content, rows = None, None
        if is_checksum(found.etag):
            # A local file, which was just read for its tag.
            rows = row_count.rows_of(self._files.read_range, key, found.size_bytes) if handle.of_rows else None
        else:
            # What the server computed while Spark wrote costs nothing; where it computes none, the file is read.
            content = sha256 or found.checksum
            if content is None:
                tail = row_count.Tail()
                content = self._files.checksum(key, SHA256, tail.add)[1]
                rows = tail.rows() if handle.of_rows else None
        return replace(handle, content=content, rows=rows)


def schema_of(output_id: str, df: DataFrame) -> str:
    """Give the columns of a DataFrame as a document keeps them.

    Raises:
        InvalidStateError: a column is of a user-defined type (semantics W5).
    """
    try:
        return stored_schema(df.schema.json())
    except ValueError as error:
        raise InvalidStateError(
            f"{error}. Turn the column into arrays, structs or numbers before you write it; of vectors, "
            "pyspark.ml.functions.vector_to_array makes an array",
            output=output_id,
        ) from error
