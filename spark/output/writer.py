"""Writes one output by Spark's own writer into a new folder; one listing then finds the files (A5, A6).

Order: choose the committer, write, list once, delete files that are not data, and describe the data files. Nothing
refers to any of them before the acknowledgement; a crash in between leaves files for the cleaner. Never uses Python
workers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
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
from ...storage.records import dataclass
from ..stored import growing_table, key_groups
from ..stored.growing_table import Before, Listing, Replaced
from ..stored.local_state import LocalState, delta_of
from ..stored.outputs import File, Stored, rows_of_files
from . import committer, written_files
from .written_files import part_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger("airflow_cairn")

SUCCESS = "_SUCCESS"
"""The file by which Spark's and Hadoop's committers say that all of a write is there."""
_AT_ONCE = 8
"""Files described at once: a thousand took 1.45 s on a local S3 server."""


@dataclass(slots=True)
class Times:
    """Durations in milliseconds (semantics A1)."""

    sync_ms: int = 0
    """Time during which the application waited."""
    async_ms: int = 0
    """Time of listing, checksums and deleting files that are not data; and of all background writes."""


Merge = Callable[[Output, Sequence[StateHandle]], Sequence[StateHandle] | None]
"""Rewrites the rows of some files of a table as fewer files; None: this failed, and the files stay."""

Keep = Callable[[Output, Sequence[StateHandle]], Sequence[StateHandle]]
"""Rewrites those rows of some files of a table that belong to no replaced partition."""


@dataclass(frozen=True, slots=True)
class Planned:
    """A DataFrame ready to be written."""

    output: Output
    url: str
    df: DataFrame
    in_force: committer.CommitterSettings
    delta: int = 0
    """For a delta: its number (semantics K1)."""

    def write_to(self, url: str) -> None:
        appended = self.output.appended
        with self.in_force.write() as options:
            writer = self.df.write.mode("error").options(**options)
            if appended is not None and appended.partition_by:
                writer = writer.partitionBy(growing_table.COLUMN)
            writer.parquet(url)


class Writer:
    """Writes the outputs of one driver. Its token `run` separates it from another driver of the same execution.

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
        """Number of key groups of keyed state, unless the restored checkpoint has another one."""
        self._chosen: list[tuple[SparkSession, committer.Committer]] = []
        self._touched: list[str] = []
        self.times = Times()

    @property
    def run_folder(self) -> str:
        """The folder of everything that this driver writes; relative to the job's prefix."""
        at = self._handover
        return f"{layout.execution_folder(at.checkpoint, at.stage, at.attempt, at.token)}{self._run}/"

    def folder_of(self, output_id: str) -> str:
        """Return a new folder for one output of this driver; relative to the job's prefix."""
        at = self._handover
        folder = layout.output_folder(at.checkpoint, at.stage, at.attempt, at.token, self._run, output_id)
        self._touched.append(folder)
        return folder

    def create(self, output: Output, name: str, data: bytes) -> Stored:
        """Write a small file as a whole output.

        Raises:
            InvalidStateError: another process writes in this driver's name.
        """
        path = output.folder + name
        with self.waiting():
            answer = self._files.create_bytes(path, data)
        if isinstance(answer, ConditionFailed):
            raise InvalidStateError("a file with this driver's own name is there already", key=self._files.full(path))
        content = None if is_checksum(answer.etag) else checksum_of(data)
        handle = StateHandle(output.id, path, len(data), answer.etag, content)
        if self._local is not None:
            written_files.keep(self._local, handle, name, data)
        return Stored(output, [File(0, handle)])

    def write_files(
        self, output: Output, sizes: Mapping[str, int], copy: Callable[[Mapping[str, Path]], None]
    ) -> list[StateHandle] | None:
        """Write raw files beside the server and upload them; None if there is no such place.

        `sizes` are the bytes of each file, by its path below the output's folder; `copy` copies each file to the given
        path.
        """
        if self._local is None:
            return None
        with self.waiting():
            return written_files.write_files(self._files, self._local, output, sizes, copy, self._handle)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Measure the time during which the application waits for a write of state."""
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
        """Prepare the write of a DataFrame as one output; computes and writes nothing yet.

        Given key columns, rows are written by key group (semantics R4). `merge` is for an aggregated state (semantics
        K5), `appended` for a table that grows.
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
            # The DataFrame's own session writes it, which need not be the epoch's.
            in_force = self._committer_of(df.sparkSession, url)
            df = self._distributed(df, key)
            if appended is not None and appended.partition_by:
                df = growing_table.told_apart(df, growing_table.texts(appended.partition_by))
            return Planned(output, url, df, in_force)

    def plan_base(
        self, output: Output, rows: DataFrame, made: Callable[[DataFrame], DataFrame], *, is_small: bool
    ) -> Planned:
        """Prepare the write of a whole keyed state (semantics K3).

        `made` makes the state of the rows, once they are placed by key group, and leaves out where they were placed. A
        state that is small so far needs no file for each subtask.
        """
        folder = self.folder_of(output.id)
        with self.waiting():
            url = self._files.spark_url(folder)
            in_force = self._committer_of(rows.sparkSession, url)
            parallelism = self._handover.parallelism
            placed = key_groups.placed(rows, output.key, self.key_groups, parallelism, is_small=is_small)
            df = key_groups.in_order(made(placed), output.key)
            return Planned(replace(output, folder=folder, key_groups=self.key_groups), url, df, in_force)

    def plan_delta(
        self,
        output: Output,
        rows: DataFrame,
        number: int,
        size_bytes: int,
        made: Callable[[DataFrame], DataFrame] = key_groups.without_target,
        *,
        merged: bool = False,
    ) -> Planned:
        """Prepare the write of a keyed state's delta (semantics K2).

        `size_bytes` is that of the state's files; `made` is as for `plan_base`. With `merged`, the rows are those of
        several deltas, this epoch's included.
        """
        folder = self.folder_of(f"{'merged' if merged else 'run'}.{output.name}")
        with self.waiting():
            url = self._files.spark_url(folder)
            in_force = self._committer_of(rows.sparkSession, url)
            # Not a file for each subtask: a delta is small, and each file costs a read (semantics K2).
            gathered = key_groups.gathered(rows, output.key, self.key_groups, size_bytes)
            df = key_groups.in_order(made(gathered), output.key)
            return Planned(replace(output, folder=folder), url, df, in_force, number)

    def plan_merged(
        self, output: Output, older: Sequence[StateHandle], spark: SparkSession, *, without: Collection[str] = ()
    ) -> Planned:
        """Prepare merging a table's files into one for each partition, without the partitions in `without`."""
        folder = self.folder_of(f"{'kept' if without else 'small'}.{output.name}")
        with self.waiting():
            url = self._files.spark_url(folder)
            in_force = self._committer_of(spark, url)
            rows = rows_of_files(spark, self._files, Stored(output, [File(0, each) for each in older]))
            by = output.appended.partition_by if output.appended is not None else ()
            df = growing_table.told_apart(rows, growing_table.texts(by)) if by else rows
            if without:
                df = df.where(~df[growing_table.COLUMN].isin(sorted(without)))
            df = df.repartition(growing_table.COLUMN) if by else df.coalesce(1)
            return Planned(replace(output, folder=folder), url, df, in_force)

    def older_names(self, stored: Stored, spark: SparkSession) -> Set[str]:
        """Return the older partition names of some files of a table."""
        assert stored.output.appended is not None
        rows = rows_of_files(spark, self._files, stored)
        found = growing_table.older_names(rows, stored.output.appended.partition_by)
        return {row[growing_table.COLUMN] for row in found.collect()}

    def write(self, planned: Planned, *, waited_for: bool = True) -> Stored:
        """Write a plan; all its time is asynchronous if the application does not wait for it."""
        began = self._now_ms()
        output, files = planned.output, self._written_here(planned)
        if files is None:
            # Without creating the output's own folder: Spark refuses an existing one.
            self._files.store.make_folder(self._files.full(self.run_folder))
            planned.write_to(planned.url)
        written = self._now_ms()
        if files is None:
            files = self._settle(output, planned.in_force.committer)
        settled = self._now_ms()
        with self._lock:
            if waited_for:
                self.times.sync_ms += max(0, written - began)
            self.times.async_ms += max(0, settled - (written if waited_for else began))
        if planned.delta:
            files = [replace(file, handle=replace(file.handle, delta=planned.delta)) for file in files]
        return Stored(output, files)

    def list_table(
        self, planned: Planned, files: list[File], there: Before, replaced: Replaced | None, merge: Merge, keep: Keep
    ) -> Stored:
        """Write manifests and list of a table that grows, after its new files; see `Listing`.

        `replaced` selects the partitions that lose their existing files. `merge` rewrites the rows of small files as
        larger files, and returns these; `keep` rewrites the remaining rows of removed files whose partition has an
        older name.
        """
        began, output = self._now_ms(), planned.output
        assert output.appended is not None
        listing = Listing(self._files, output)
        draft = listing.draft(there, [file.handle for file in files], replaced)
        small, others = growing_table.alike_files(draft.older)
        doubtful = [each for each in draft.gone if growing_table.is_older(each.partition)]
        drafted = self._now_ms()
        stays = keep(output, doubtful) if doubtful else ()
        larger = merge(output, small) if small else None
        merged = self._now_ms()
        older = draft.older if larger is None else [*others, *larger]
        listed, count, size_bytes = listing.write(draft, [*stays, *older])
        with self._lock:
            self.times.async_ms += max(0, self._now_ms() - merged + drafted - began)
        output = replace(output, appended=replace(output.appended, files=count, size_bytes=size_bytes))
        return Stored(output, [File(0, listed), *files, *(File(0, each) for each in (*stays, *(larger or ())))])

    def table_before(self, stored: Stored | None) -> Before:
        """Read a table that grows from the restored checkpoint."""
        return growing_table.before(self._files, stored)

    def delete_output(self, folder: str) -> None:
        """Delete the files of one output; log problems; the block's end tries again."""
        try:
            self.delete([*(found.key for found in self._files.listing(folder)), folder])
        except CairnError as problem:
            log.warning("Could not delete %s: %s", folder, problem)

    def delete_all(self) -> None:
        """Delete everything that this driver has written, pending uploads too (semantics A5, W7)."""
        if not self._touched:
            return
        for upload in self._files.store.uploads(self._files.full(self.run_folder)):
            self._files.store.abort_upload(upload)
        keys = [found.key for found in self._files.listing(self.run_folder)]
        # A write that failed early leaves an empty folder, or on S3 an object in its place, which no listing shows.
        self.delete(sorted({*keys, *self._touched, self.run_folder}, key=order, reverse=True))

    def _committer_of(self, spark: SparkSession, url: str) -> committer.CommitterSettings:
        """Choose a session's committer at its first write; all URLs of a store have one scheme, so the choice stays."""
        with self._lock:
            for known, chosen in self._chosen:
                if known is spark:
                    return committer.CommitterSettings(spark, chosen)
            in_force = committer.choose(spark, url)
            self._chosen.append((spark, in_force.committer))
            return in_force

    def _distributed(self, df: DataFrame, key: Sequence[str]) -> DataFrame:
        parallelism = self._handover.parallelism
        if key:
            return key_groups.distributed(df, key, self.key_groups, parallelism)
        return df if parallelism is None else df.repartition(parallelism)

    def _written_here(self, planned: Planned) -> list[File] | None:
        """Write a state beside the server and upload it; None if there is no such place."""
        if self._local is None or planned.output.kind != "state":
            return None
        name = delta_of(planned.output.id) if planned.delta else planned.output.id
        return written_files.write(self._files, self._local, planned.output, name, planned.write_to, self._handle)

    def _settle(self, output: Output, chosen: committer.Committer) -> list[File]:
        folder = output.folder
        data: list[tuple[int, ObjectStat]] = []
        other: list[str] = []
        for found in self._files.listing(folder):
            name = found.key.removeprefix(folder)
            part = part_of(name.rpartition("/")[2] if growing_table.partition_of(name) else name)
            if part is None:
                other.append(found.key)
            else:
                data.append((part, found))
        if chosen.success_name:
            committer.verify(chosen, self._files, folder + SUCCESS)
        empty: list[str] = []
        if output.kind != "table" or output.appended is not None:
            empty = written_files.without_rows(self._files.read_range, data, output.schema or "")
        data = [(part, found) for part, found in data if found.key not in empty]
        self.delete([*other, *empty])
        handles = self.handles(output.id, [found for _, found in data])
        handles = [replace(each, partition=growing_table.partition_of(each.path)) for each in handles]
        return [File(part, handle) for (part, _), handle in zip(data, handles, strict=True)]

    def handles(self, output_id: str, found: Sequence[ObjectStat]) -> list[StateHandle]:
        """Describe listed files, several at once: one request each, for the checksum (semantics W9).

        On return the files are on the disk, so that what the acknowledgement names survives a crash (semantics A5). The
        disk writes them while they are hashed.
        """
        with ThreadPoolExecutor(_AT_ONCE + 1, "cairn-describe") as pool:
            on_disk = pool.submit(self._files.store.sync, [self._files.full(each.key) for each in found])
            handles = list(pool.map(lambda each: self._handle(output_id, each.key), found))
            on_disk.result()
        return handles

    def delete(self, keys: Sequence[str]) -> None:
        """Delete files of this driver; log those that cannot be deleted and leave them to the cleaner."""
        for failure in self._files.delete(keys):
            log.warning("Could not delete %s (%s). The next cleaning tries again.", failure.key, failure.reason)

    def _handle(self, output_id: str, key: str, sha256: str | None = None) -> StateHandle:
        """Describe one file: its tag, and the checksum that survives a copy (`sha256`, if it is known)."""
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
            rows = written_files.rows_of(self._files.read_range, key, found.size_bytes) if handle.of_rows else None
        else:
            # A checksum that the server computed during Spark's write costs nothing; without one, the file is read.
            content = sha256 or found.checksum
            if content is None:
                tail = written_files.Tail()
                content = self._files.checksum(key, SHA256, tail.add)[1]
                rows = tail.rows() if handle.of_rows else None
        return replace(handle, content=content, rows=rows)


def schema_of(output_id: str, df: DataFrame) -> str:
    """Return a DataFrame's columns in the form of documents.

    Raises:
        InvalidStateError: a column has a user-defined type (semantics W5).
    """
    try:
        return stored_schema(df.schema.json())
    except ValueError as error:
        raise InvalidStateError(
            f"{error}. Turn the column into arrays, structs or numbers before you write it; of vectors, "
            "pyspark.ml.functions.vector_to_array makes an array",
            output=output_id,
        ) from error
