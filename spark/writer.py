"""Writes one output: by Spark's own writer into a folder of its own, then one listing says what is there (A5, A6).

Order: choose the committer, write, list once, delete what is no data, and describe the files. Nothing refers to any of
it before the acknowledgement; a crash in between leaves files for the cleaner. Never through Python workers.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING

from ..checkpoint import layout
from ..checkpoint.job_files import JobFiles
from ..checkpoint.model import Handover, Output, StateHandle
from ..storage.errors import UnsupportedStorageError
from ..storage.names import order
from ..storage.port import ObjectStat
from . import committer
from .stored import File, Stored

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger(__name__)

_DATA_FILE = re.compile(r"\Apart-([0-9]+)[-.][^/]*\.parquet\Z")
_SUCCESS = "_SUCCESS"


@dataclass(slots=True)
class Times:
    """Where the time went, in milliseconds (semantics A1)."""

    sync_ms: int = 0
    """Spark wrote."""
    async_ms: int = 0
    """Listing, checksums, deleting what is no data."""


class Writer:
    """Writes the outputs of one driver.

    Args:
        files: the job's files.
        handover: which execution writes.
        run: the driver's own token; keeps two drivers of one execution apart.
        now_ms: clock, milliseconds.
    """

    def __init__(self, files: JobFiles, handover: Handover, run: str, now_ms: Callable[[], int]) -> None:
        self._files = files
        self._handover = handover
        self._run = run
        self._now_ms = now_ms
        self._lock = Lock()
        self._in_force: list[tuple[SparkSession, committer.InForce]] = []
        self._touched: list[str] = []
        self.times = Times()

    @property
    def run_folder(self) -> str:
        """The folder below which everything lies that this driver writes; relative to the job's prefix."""
        at = self._handover
        return f"{layout.execution_folder(at.checkpoint, at.stage, at.attempt, at.token)}{self._run}/"

    def write(self, kind: str, name: str, df: DataFrame, key: Sequence[str]) -> Stored:
        """Write a DataFrame as one output.

        Args:
            kind: `state`, `table` or `exchange`.
            name: the output's name.
            df: what to write.
            key: key columns, recorded and, where the stage's parallelism is fixed, what rows are distributed by.

        Raises:
            InvalidConfigError: the output committer in use cannot be trusted.
            InvalidNameError: the name is too long.
        """
        at = self._handover
        output_id = f"{kind}.{name}"
        folder = layout.output_folder(at.checkpoint, at.stage, at.attempt, at.token, self._run, output_id)
        output = Output(kind=kind, name=name, folder=folder, schema=df.schema.json(), key=tuple(key))
        began = self._now_ms()
        url = self._files.spark_url(folder)
        # The frame's own session writes it, which need not be the one that the epoch found.
        spark = df.sparkSession
        in_force = self._committer_of(spark, url)
        self._touched.append(folder)
        with in_force.write() as options:
            self._distributed(df, key).write.mode("errorifexists").options(**options).parquet(url)
        written = self._now_ms()
        stored = Stored(output, self._settle(folder, output_id, magic=in_force.committer.magic))
        settled = self._now_ms()
        with self._lock:
            self.times.sync_ms += max(0, written - began)
            self.times.async_ms += max(0, settled - written)
        return stored

    def delete_all(self) -> None:
        """Delete whatever this driver has written, pending uploads too (semantics A5, W7)."""
        if not self._touched:
            return
        for upload in self._files.store.uploads(self._files.full(self.run_folder)):
            self._files.store.abort_upload(upload)
        keys = [found.key for found in self._files.listing(self.run_folder)]
        # A write that failed early leaves an empty folder, or on S3 an object in its place, that no listing shows.
        self._delete(sorted({*keys, *self._touched, self.run_folder}, key=order, reverse=True))

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
        if parallelism is None:
            return df
        columns = ["`{}`".format(column.replace("`", "``")) for column in key]
        return df.repartition(parallelism, *columns)

    def _settle(self, folder: str, output_id: str, *, magic: bool) -> list[File]:
        data: list[tuple[int, ObjectStat]] = []
        other: list[str] = []
        for found in self._files.listing(folder):
            match = _DATA_FILE.match(found.key.removeprefix(folder))
            if match:
                data.append((int(match[1]), found))
            else:
                other.append(found.key)
        if magic:
            committer.verify_magic(self._files, folder + _SUCCESS)
        self._delete(other)
        return [
            File(
                part,
                StateHandle(
                    output=output_id,
                    path=found.key,
                    size_bytes=found.size_bytes,
                    checksum=found.etag or self._checksum(found.key),
                ),
            )
            for part, found in data
        ]

    def _checksum(self, key: str) -> str:
        """Read the tag of one file, in stores whose listings do not show it."""
        etag = self._files.stat(key).etag
        if etag is None:
            raise UnsupportedStorageError(
                "the store names no tag for a file, so damage to it could not be noticed. Use another store",
                store=self._files.store.describe(),
                key=self._files.full(key),
            )
        return etag

    def _delete(self, keys: Sequence[str]) -> None:
        for failure in self._files.delete(keys):
            log.warning("Not deleted: %s (%s). The next cleaning tries again.", failure.key, failure.reason)
