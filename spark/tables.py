"""Reading published tables and states: always of a whole completed epoch (semantics C4)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ..checkpoint.documents.acknowledgement import Output
from ..checkpoint.documents.entries import CompletedEntry
from ..checkpoint.documents.head import Head
from ..checkpoint.documents.layout import epoch_name, run_id_of
from ..checkpoint.errors import NoCheckpointError
from ..checkpoint.store.head_store import OpenJob
from ..storage import S3Options
from ..storage.clock import system_runtime
from .handover import conf
from .stored.outputs import StageContents, Stored, data_files, frame, of_checkpoint

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

    Each evaluation of the DataFrame reads that checkpoint's files, which stay as long as the checkpoint is retained
    (`CheckpointConfig.retained`). Call again for a newer checkpoint.

    Args:
        spark: the session that reads; for a storage in a bucket it must reach that by `s3a://`, `gs://` or `abfss://`.
        storage: storage URI.
        job: the job's name.
        name: the table's name.
        as_of: the epoch to read, by DAG run id or epoch name; None for the newest completed one.
        s3: access of this process to S3; None takes the session's `spark.cairn.s3.*`.

    Raises:
        NoCheckpointError: no checkpoint has completed, the epoch is not retained, or it has no such table.
        UnsupportedStorageError: the URI's scheme is unknown.
        InvalidKeyError: the URI has no accepted form; or the job's name does not match the grammar (semantics W1).
        DocumentError: a document is broken or of a newer format.
    """

    def find(contents: list[StageContents], entry: CompletedEntry) -> Stored:
        found = (each.outputs.get(f"table.{name}") for each in contents)
        stored = next((each for each in found if each is not None), None)
        if stored is None:
            raise NoCheckpointError(
                f"there is no table {name!r}",
                job=job,
                epoch=run_id_of(entry.epoch),
                checkpoint=entry.id,
                tables=", ".join(sorted(entry.tables)) or "none",
            )
        return stored

    return _read(spark, _job(spark, storage, job, s3), lambda head: _entry(head, as_of), find)


def state(
    spark: SparkSession,
    storage: str,
    job: str,
    stage: str,
    name: str,
    *,
    checkpoint: int | None = None,
    s3: S3Options | None = None,
) -> DataFrame:
    """Read a stage's state from one completed checkpoint.

    Unlike `Epoch.state`, this includes rows that have outlived their `ttl` but are still in the files.

    Args:
        spark: the session that reads; for a storage in a bucket it must reach that by `s3a://`, `gs://` or `abfss://`.
        storage: storage URI.
        job: the job's name.
        stage: the stage's uid.
        name: the state's name.
        checkpoint: the retained checkpoint to read; None for the newest.
        s3: access of this process to S3; None takes the session's `spark.cairn.s3.*`.

    Raises:
        NoCheckpointError: no checkpoint has completed, the given one is not retained, or it has no such state.
        UnsupportedStorageError: the URI's scheme is unknown.
        InvalidKeyError: the URI has no accepted form; or the job's name does not match the grammar (semantics W1).
        DocumentError: a document is broken or of a newer format.
    """

    def find(contents: list[StageContents], entry: CompletedEntry) -> Stored:
        stored = next((each.outputs.get(f"state.{name}") for each in contents if each.stage == stage), None)
        if stored is None:
            there = (f"{each.stage}.{out.name}" for each in contents for out in _outputs(each) if out.kind == "state")
            raise NoCheckpointError(
                f"there is no state {name!r} of the stage {stage!r}",
                job=job,
                checkpoint=entry.id,
                states=", ".join(sorted(there)) or "none",
            )
        return stored

    def choose(head: Head) -> CompletedEntry:
        return _entry(head, None) if checkpoint is None else head.retained(checkpoint)

    return _read(spark, _job(spark, storage, job, s3), choose, find)


def _job(spark: SparkSession, storage: str, job: str, s3: S3Options | None) -> OpenJob:
    options = s3 or conf.store_options(lambda key: spark.conf.get(key, None), storage)
    return OpenJob(conf.open_driver_store(storage, options), job, system_runtime())


def _read(
    spark: SparkSession,
    job: OpenJob,
    choose: Callable[[Head], CompletedEntry],
    find: Callable[[list[StageContents], CompletedEntry], Stored],
) -> DataFrame:
    def look(head: Head, _now_ms: int) -> Stored:
        entry = choose(head)
        return data_files(job.files, find(of_checkpoint(job.files, entry.metadata, lambda stage: True), entry))

    # A newer checkpoint may complete during the read, and the cleaner may delete the one being read; then look again.
    return frame(spark, job.files, job.heads.observe(look))


def _outputs(contents: StageContents) -> list[Output]:
    return [stored.output for stored in contents.outputs.values()]


def _entry(head: Head, as_of: str | None) -> CompletedEntry:
    if as_of is None:
        latest = head.latest_completed()
        if latest is None:
            raise NoCheckpointError(
                "no checkpoint of the job has completed yet, so there is nothing to read. Check the job's name, or let "
                "an epoch complete first",
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
