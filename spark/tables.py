"""Reading a published table: all of a completed epoch, never half of one (semantics C4)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..checkpoint.coordinator import Coordinator
from ..checkpoint.errors import NoCheckpointError
from ..checkpoint.head import CompletedEntry, Head
from ..checkpoint.layout import epoch_name, run_id_of
from ..storage import S3Options
from ..storage.errors import GoneError
from . import conf
from .stored import Stored, frame, of_checkpoint

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def table(
    spark: SparkSession,
    storage: str,
    job: str,
    name: str,
    *,
    as_of: str | None = None,
    s3: S3Options | None = None,
) -> DataFrame:
    """Read a published table as one completed checkpoint holds it.

    The DataFrame reads that checkpoint's files whenever it is evaluated; they stay as long as the checkpoint is
    retained (`CheckpointConfig.retained`). Call again for a newer one.

    Args:
        spark: the session that reads; for S3 it must reach the bucket by `s3a://`.
        storage: storage URI.
        job: the job's name.
        name: the table's name.
        as_of: the epoch to read, a DAG run's id or an epoch's name; None for the newest that has completed.
        s3: how this process reaches S3; None takes endpoint and region from the session's `spark.cairn.s3.*`.

    Raises:
        NoCheckpointError: no checkpoint has completed, the epoch is not retained, or there is no such table in it.
        UnsupportedStorageError: the URI's scheme is unknown.
        InvalidKeyError: the URI is of no accepted form.
        InvalidNameError: the job's name is none (semantics W1).
        DocumentError: a document is broken or of a newer format.
    """
    if s3 is None:
        s3 = conf.s3_options(spark.conf.get(conf.S3_ENDPOINT, None), spark.conf.get(conf.S3_REGION, None))
    coordinator = Coordinator(conf.open_driver_store(storage, s3), job)
    head = coordinator.head()
    while True:
        entry = _entry(head, as_of)
        if name not in entry.tables:
            raise NoCheckpointError(
                f"there is no table {name!r}",
                job=job,
                epoch=run_id_of(entry.epoch),
                checkpoint=entry.id,
                tables=", ".join(sorted(entry.tables)) or "none",
            )
        try:
            return frame(spark, coordinator.files, _stored(coordinator, entry, name))
        except GoneError:
            # A newer checkpoint may have completed since the head was read, and this one been cleaned.
            newer = coordinator.head()
            if newer.revision == head.revision:
                raise
            head = newer


def _entry(head: Head, as_of: str | None) -> CompletedEntry:
    if as_of is None:
        latest = head.latest_completed()
        if latest is None:
            raise NoCheckpointError(
                "no checkpoint of the job has completed yet, so no table can be read. Check the job's name, or let an "
                "epoch complete first",
                job=head.job,
            )
        return latest
    for entry in reversed(head.completed):
        if entry.epoch in (as_of, epoch_name(as_of)):
            return entry
    raise NoCheckpointError(
        f"the epoch {as_of!r} is not retained. Read one that is, or raise CheckpointConfig.retained for the future",
        job=head.job,
        retained=", ".join(run_id_of(entry.epoch) for entry in head.completed) or "none",
    )


def _stored(coordinator: Coordinator, entry: CompletedEntry, name: str) -> Stored:
    for contents in of_checkpoint(coordinator.files, entry.metadata, lambda stage: True):
        stored = contents.outputs.get(f"table.{name}")
        if stored is not None:
            return stored
    raise GoneError("the checkpoint's metadata does not hold the table", checkpoint=entry.id, table=name)
