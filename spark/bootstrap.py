"""Savepoints made from DataFrames, so that a job can start from history (semantics P1, C5, R3).

Order: claim the folder, write the states below it as an epoch does, read each file once for its SHA-256, and create
`_metadata` last. Until then there is no savepoint. A failure empties the folder; a killed program leaves a folder
without `_metadata`, which nothing takes for a savepoint.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

from ..checkpoint.config import check_parallelism
from ..checkpoint.documents import layout
from ..checkpoint.documents.attempt import Execution, Handover, Slice
from ..checkpoint.documents.codec import MAX_MARKER_BYTES
from ..checkpoint.documents.metadata import HandleLine, Line, MetadataHeader, StageLine, encode_line
from ..checkpoint.errors import InvalidConfigError, InvalidStateError, RefusedError
from ..checkpoint.savepoints import savepoint_format
from ..checkpoint.savepoints.savepoint_format import METADATA, FolderOwner, SavepointFiles, SavepointHeader
from ..checkpoint.store.jsonl import Spool
from ..storage import S3Options
from ..storage.checksums import SHA256
from ..storage.clock import Runtime, system_runtime
from ..storage.errors import CairnError, ForbiddenError, GoneError
from ..storage.names import check_name, check_storage_uri
from ..storage.open import StoreOptions
from ..storage.records import dataclass
from .handover import conf
from .output.updates import columns_of
from .output.writer import Writer
from .stored.outputs import File, Stored

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger("airflow_cairn")

JOB = "bootstrap"
"""Name of the job and of the epoch in a savepoint that was taken of neither."""
_AT_ONCE = 8
"""Files read at once for their checksums."""


@dataclass(frozen=True, slots=True)
class Keyed:
    """A keyed state: a DataFrame and its key columns, as for `Epoch.snapshot`."""

    df: DataFrame
    key: str | Sequence[str]


def bootstrap_savepoint(
    spark: SparkSession,
    states: Mapping[str, Mapping[str, DataFrame | Keyed]],
    target: str,
    *,
    max_parallelism: Mapping[str, int] | None = None,
    s3: S3Options | None = None,
    runtime: Runtime | None = None,
) -> str:
    """Write a savepoint that holds these states, for a job to start from.

    Args:
        spark: the session; for a storage in a bucket it must reach that by `s3a://`, `gs://` or `abfss://`.
        states: by uid of the stage, then by name: a DataFrame, or `Keyed(df, key)`.
        target: URI of a folder; the savepoint gets a new folder below it.
        max_parallelism: by uid, the number of key groups; the stage keeps it (semantics R4); 128 by default.
        s3: access of this process to S3; None takes the session's `spark.cairn.s3.*`.
        runtime: clock and ids; the system's by default.

    Returns:
        The savepoint's URI, for `cairn resume JOB --from`.

    Raises:
        InvalidConfigError: there are no states, or a number of key groups is out of bounds or names no stage.
        InvalidKeyError: a uid or name is outside the grammar (semantics W1); or the target has no accepted form.
        InvalidStateError: a state is not a DataFrame, or cannot have the given key.
        UnsupportedStorageError: the target's scheme is unknown.
        RefusedError: the target lies in a job's folder, or the savepoint's folder holds other files.
    """
    target = check_storage_uri(target)
    groups = dict(max_parallelism or {})
    options = s3 or conf.store_options(lambda key: spark.conf.get(key, None), target)
    _check_apart(target, options)
    plan = _checked(states, groups)
    runtime = runtime or system_runtime()
    request = runtime.new_token()
    name = savepoint_format.folder_name(JOB, request, storage=target)
    files = SavepointFiles(conf.open_driver_store(target, options).below(name), FolderOwner(JOB, request))
    files.claim()
    try:
        lines: list[Line] = [MetadataHeader(JOB, 1, JOB, 1, Slice(), tuple(plan))]
        for uid, outputs in plan.items():
            lines += _stage(files, runtime, uid, outputs, groups.get(uid))
        _finish(files, SavepointHeader(JOB, 1, request, runtime.now_ms()), lines)
    except BaseException:
        _empty(files)
        raise
    return files.store.uri


def _check_apart(target: str, options: StoreOptions | None) -> None:
    """Refuse a job's folder and everything below it: the job deletes its files."""
    scheme, _, path = target.partition("://")
    *above, last = path.split("/")
    while last and (above or scheme != "file"):
        folder = f"{scheme}://{'/'.join((*above, last))}"
        try:
            conf.open_driver_store(folder, options).stat(layout.HEAD)
        except GoneError:
            last = above.pop() if above else ""
        except ForbiddenError:
            # A process that may not read a folder has no job in it, and none above it.
            return
        else:
            raise RefusedError(
                "the target lies in a job's own folder, whose files are the job's to delete; name a folder outside of "
                "it",
                code="savepoint_refused",
                target=target,
                folder=folder,
            )


def _checked(
    states: Mapping[str, Mapping[str, DataFrame | Keyed]], groups: Mapping[str, int]
) -> dict[str, dict[str, Keyed]]:
    plan: dict[str, dict[str, Keyed]] = {}
    for uid, named in states.items():
        check_name("stage", uid)
        plan[uid] = {}
        for name, given in named.items():
            keyed = given if isinstance(given, Keyed) else Keyed(given, ())
            columns = columns_of(f"state.{check_name('state', name)} of {uid}", keyed.df, keyed.key)
            plan[uid][name] = replace(keyed, key=columns)
    if not any(plan.values()):
        raise InvalidConfigError("no state is given: name at least one, {uid: {name: DataFrame}}")
    for uid, number in groups.items():
        if uid not in plan:
            raise InvalidConfigError("max_parallelism names a stage of which no state is given", stage=uid)
        check_parallelism(1, number, stage=uid)
    return plan


def _stage(
    files: SavepointFiles, runtime: Runtime, uid: str, outputs: Mapping[str, Keyed], groups: int | None
) -> Iterator[Line]:
    """Write a stage's states, and yield its lines."""
    execution = Execution(runtime.new_token(), 1, 1)
    handover = Handover(1, JOB, 1, execution.token, JOB, uid, JOB, Slice(), max_parallelism=groups)
    writer = Writer(files, handover, runtime.new_token(), runtime.now_ms)
    written: list[Stored] = []
    for name, keyed in outputs.items():
        written.append(writer.write(writer.plan("state", name, keyed.df, tuple(keyed.key))))
    found = [file for stored in written for file in stored.files]
    subtasks = max((file.subtask for file in found), default=0) + 1
    line = StageLine(uid, execution, subtasks, tuple(each.output for each in written), max_parallelism=groups)
    size = len(encode_line(line))
    if size > MAX_MARKER_BYTES:
        raise InvalidStateError(
            "the schemas of this stage's states are too large together. Write fewer columns, or fewer states",
            stage=uid,
            size_bytes=size,
            limit_bytes=MAX_MARKER_BYTES,
        )
    yield line
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        yield from pool.map(lambda file: _named(files, file), found)


def _named(files: SavepointFiles, file: File) -> HandleLine:
    """Name a file by its content, as savepoints do."""
    _, checksum = files.checksum(file.handle.path, SHA256)
    return HandleLine(file.subtask, replace(file.handle, checksum=checksum, content=None))


def _finish(files: SavepointFiles, header: SavepointHeader, lines: Sequence[Line]) -> None:
    with Spool() as spool:
        savepoint_format.write(header, lines, spool.put)
        if not spool.create(files, METADATA):
            raise InvalidStateError("another savepoint's metadata is in the folder", savepoint=files.store.uri)


def _empty(files: SavepointFiles) -> None:
    """Delete the written files; log problems, so that the caller sees the cause."""
    try:
        for upload in files.store.uploads(""):
            files.store.abort_upload(upload)
        for failure in files.empty():
            log.warning("Could not delete %s in %s: %s", failure.key, files.store.uri, failure.reason)
    except CairnError as problem:
        log.warning("What was written to %s could not be deleted: %s", files.store.uri, problem)
