"""Outputs as they are stored, and the DataFrames that read them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...checkpoint.documents.acknowledgement import AckDocument, Output, StateHandle
from ...checkpoint.documents.attempt import DocumentRef, Execution
from ...checkpoint.documents.metadata import HandleLine, InFlightLine, StageLine
from ...checkpoint.documents.schemas import plain_schema
from ...checkpoint.documents.strict_json import Json
from ...checkpoint.store import acks, metadata_file
from ...checkpoint.store.job_files import JobFiles
from ...storage.errors import DocumentError
from . import key_groups
from .local_state import LocalState

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_READ_OPTIONS = {
    # A session may be set to read on over a missing or broken file, which would lose rows of state without a word.
    "ignoreMissingFiles": "false",
    "ignoreCorruptFiles": "false",
    # Parquet's writer keeps a checksum with every page. Unless its reader compares it, a byte that flipped on the
    # medium gives other rows and no error (measured).
    "parquet.page.verify-checksum.enabled": "true",
}


@dataclass(frozen=True, slots=True)
class File:
    """One file of an output, and the subtask that wrote it."""

    subtask: int
    handle: StateHandle


@dataclass(slots=True)
class Stored:
    """One output with its files."""

    output: Output
    files: list[File] = field(default_factory=list)


@dataclass(slots=True)
class StageContents:
    """What one stage left in a checkpoint or an acknowledgement."""

    stage: str
    outputs: dict[str, Stored] = field(default_factory=dict)
    """By `Output.id`."""
    values: dict[str, Json] = field(default_factory=dict)
    skipped: bool = False
    """Whether its task was skipped, so that it wrote nothing in this epoch."""


def of_checkpoint(
    files: JobFiles,
    ref: DocumentRef,
    wanted: Callable[[str], bool],
    in_flight: Callable[[str, Execution], StageContents | None] = lambda _stage, _execution: None,
) -> list[StageContents]:
    """Read a completed checkpoint's metadata, all of it, so that it is known to be whole.

    Args:
        files: the job's files.
        ref: the metadata.
        wanted: tells whether to keep what the stage of this uid left.
        in_flight: where to put what an execution wrote, for a reader's backlog (semantics B3); None: pass it over.

    Raises:
        GoneError: there is no such metadata.
        DocumentError: it is broken, altered, foreign or of a newer format.
    """
    found: list[StageContents] = []
    into: StageContents | None = None
    for line in metadata_file.read(files, ref):
        if isinstance(line, StageLine):
            into = _contents(line.stage, line.outputs, line.values) if wanted(line.stage) else None
            found += [into] if into else []
        elif isinstance(line, InFlightLine):
            into = in_flight(line.stage, line.execution)
            if into is not None:
                into.outputs.update({output.id: Stored(output) for output in line.outputs})
        elif isinstance(line, HandleLine) and into is not None:
            _add(into, [File(line.subtask, line.handle)], files.full(ref.key))
    return found


def of_acknowledgement(files: JobFiles, ack: AckDocument) -> StageContents:
    """Read what an execution acknowledged.

    Raises:
        GoneError: a part of the acknowledgement is missing.
        DocumentError: a part is broken or altered.
    """
    contents = _contents(ack.stage, ack.outputs, ack.values)
    contents.skipped = ack.skipped
    where = f"the acknowledgement of {ack.stage}"
    for subtask in acks.subtasks_of(files, ack):
        _add(contents, (File(subtask.index, handle) for handle in subtask.handles), where)
    return contents


def frame(
    spark: SparkSession,
    files: JobFiles,
    stored: Stored,
    groups: range | None = None,
    local: LocalState | None = None,
) -> DataFrame:
    """Give the DataFrame that reads an output: exactly its files, in the order of their subtasks and names.

    Args:
        spark: the session that reads.
        files: the job's files.
        stored: the output.
        groups: of a keyed state, the key groups to read; None for all of it (semantics R4).
        local: where a copy may be read instead, if it is whole (semantics V3).

    Raises:
        DocumentError: the output has no schema that Spark can read.
    """
    from pyspark.sql.types import IntegerType, StructField, StructType

    if stored.output.schema is None:
        raise DocumentError("the output has no schema", output=stored.output.id, folder=stored.output.folder)
    try:
        schema = StructType.fromJson(plain_schema(stored.output.schema))
    except (ValueError, TypeError) as error:  # ours is a ValueError, PySpark's are either
        raise DocumentError(str(error), output=stored.output.id, folder=stored.output.folder) from error
    if not stored.files or (groups is not None and not groups):
        # As Spark gives what it reads from files: whatever was written, all columns may be null.
        return spark.createDataFrame([], StructType.fromJson(_nullable(schema.jsonValue())))
    ordered = sorted(stored.files, key=lambda file: (file.subtask, file.handle.path))
    here = local.find(stored.output.id, [file.handle for file in ordered]) if local is not None else None
    urls = [_url(files, here, file.handle.path) for file in ordered]
    reader = spark.read.options(**_READ_OPTIONS)
    if groups is None:
        return reader.schema(schema).parquet(*urls)
    group = StructField(key_groups.COLUMN, IntegerType())
    found = reader.schema(StructType([*schema, group])).parquet(*urls)
    return found.where(found[group.name].between(groups[0], groups[-1])).drop(group.name)


def _url(files: JobFiles, here: Path | None, path: str) -> str:
    return files.spark_url(path) if here is None else f"file://{here / path.rpartition('/')[2]}"


def _nullable(kind: Any) -> Any:
    """Give a type, as JSON, in which everything may be null."""
    if not isinstance(kind, dict):
        return kind
    may_be = {name: True for name in ("nullable", "containsNull", "valueContainsNull") if name in kind}
    inner = {name: _nullable(kind[name]) for name in ("type", "elementType", "keyType", "valueType") if name in kind}
    fields = {"fields": [_nullable(each) for each in kind["fields"]]} if "fields" in kind else {}
    return {**kind, **may_be, **inner, **fields}


def nothing(spark: SparkSession, schema: StructType | str | None) -> DataFrame:
    """Give an empty DataFrame with these columns; with none at all where there is no schema."""
    from pyspark.sql.types import StructType

    return spark.createDataFrame([], StructType([]) if schema is None else schema)


def united(spark: SparkSession, files: JobFiles, parts: Sequence[Stored]) -> DataFrame:
    """Give the DataFrame that reads several outputs, the first one's rows first; a column that one lacks is null there.

    Raises:
        DocumentError: one has no schema that Spark can read.
    """
    first, *others = (frame(spark, files, each) for each in parts)
    return reduce(lambda before, after: before.unionByName(after, allowMissingColumns=True), others, first)


def subtasks(outputs: Iterable[Stored], parallelism: int) -> Iterator[tuple[int, tuple[StateHandle, ...]]]:
    """Yield each subtask's index and its files, of all outputs; one without files too (semantics A4).

    Files that were carried over from a run of higher parallelism go round the subtasks that there are.
    """
    by_index: list[list[StateHandle]] = [[] for _ in range(parallelism)]
    for stored in outputs:
        for file in stored.files:
            by_index[file.subtask % parallelism].append(file.handle)
    for index, handles in enumerate(by_index):
        yield index, tuple(sorted(handles, key=lambda handle: (handle.output, handle.path)))


def _contents(stage: str, outputs: Iterable[Output], values: dict[str, Json]) -> StageContents:
    return StageContents(stage, {output.id: Stored(output) for output in outputs}, dict(values))


def _add(contents: StageContents, found: Iterable[File], where: str) -> None:
    for file in found:
        stored = contents.outputs.get(file.handle.output)
        if stored is None:
            raise DocumentError(
                "a file belongs to no output of its stage", where=where, output=file.handle.output, stage=contents.stage
            )
        stored.files.append(file)
