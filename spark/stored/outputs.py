"""Stored outputs, and the DataFrames that read them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import field
from functools import reduce
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any, cast

from ...checkpoint.documents.acknowledgement import AckDocument, Output, StateHandle
from ...checkpoint.documents.attempt import DocumentRef, Execution
from ...checkpoint.documents.metadata import HandleLine, InFlightLine, StageLine
from ...checkpoint.documents.programs import RAW
from ...checkpoint.documents.schemas import plain_schema
from ...checkpoint.documents.strict_json import Json
from ...checkpoint.errors import InvalidStateError
from ...checkpoint.sources import file_names
from ...checkpoint.store import acks, metadata_file
from ...checkpoint.store.job_files import JobFiles
from ...storage.errors import DocumentError
from ...storage.records import dataclass
from ..execution.transport import is_remote
from . import deltas, key_groups, merges
from .local_state import LocalState, delta_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession
    from pyspark.sql.types import DataType, StructField, StructType

log = logging.getLogger("airflow_cairn")

KEEP_ALL = {
    # A session may be set to skip missing or broken files, which would silently lose rows of state.
    "ignoreMissingFiles": "false",
    "ignoreCorruptFiles": "false",
}
_READ_OPTIONS = {
    **KEEP_ALL,
    # Parquet's writer stores a checksum with every page. Unless the reader checks it, a flipped byte on the medium
    # gives wrong rows and no error (measured).
    "parquet.page.verify-checksum.enabled": "true",
}

_PATHS = 32
"""Number of paths that Spark's driver looks up itself; for more it starts a job with a task for each."""


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
    """The outputs and values of one stage in a checkpoint or an acknowledgement."""

    stage: str
    outputs: dict[str, Stored] = field(default_factory=dict)
    """By `Output.id`."""
    values: dict[str, Json] = field(default_factory=dict)
    skipped: bool = False
    """True if the stage's task was skipped, so that it wrote nothing in this epoch."""


def of_checkpoint(
    files: JobFiles,
    ref: DocumentRef,
    wanted: Callable[[str], bool],
    in_flight: Callable[[str, Execution], StageContents | None] = lambda _stage, _execution: None,
) -> list[StageContents]:
    """Read a completed checkpoint's metadata to the end, so that they are known to be complete.

    `wanted` selects the stages to keep, by uid. `in_flight` returns the place for an execution's outputs in a reader's
    backlog (semantics B3); None: skip them.
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
    """Read the outputs that an execution acknowledged."""
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
    touched: deltas.Touched | None = None,
) -> DataFrame:
    """Return the DataFrame that reads an output: exactly its files, in the order of their subtasks and names.

    A state with deltas is merged (semantics K1).

    Of keyed state, `groups` are the key groups to read, and `touched` the keys; None: all (semantics R4). Copies beside
    the server are read if they are whole (semantics V3).

    Raises:
        DocumentError: the output has no schema that Spark can read, or deltas without a key, or an unknown merge.
    """
    from pyspark.sql.types import StructType

    if stored.output.format:
        return _of_program(spark, files, stored)
    schema = schema_of(stored.output)
    stored = data_files(files, stored)
    if not stored.files or (groups is not None and not groups):
        # As Spark reads files: all columns may be null, whatever was written.
        return spark.createDataFrame([], StructType.fromJson(_nullable(schema.jsonValue())))
    ordered = sorted(stored.files, key=lambda file: (file.subtask, file.handle.path))
    added = [file for file in ordered if file.handle.delta]
    part = _Part(spark, schema, groups, touched, _base_path(files, stored))
    if added and stored.output.merge:
        try:
            # A merge names a function of Spark: a document's merge is checked against the list (semantics W5).
            merges.check(stored.output.name, schema, stored.output.key, stored.output.merge)
        except InvalidStateError as error:
            raise DocumentError(error.message, output=stored.output.id, folder=stored.output.folder) from error
    found = urls(files, stored, ordered, local)
    if added and stored.output.merge:
        return merges.merged(part.read(found), schema, stored.output.key, stored.output.merge)
    if not added:
        return part.read(found)
    if not stored.output.key:
        raise DocumentError("the output has deltas and no key", output=stored.output.id, folder=stored.output.folder)
    if missing := [column for column in stored.output.key if column not in schema.names]:
        raise DocumentError("the output lacks a column of its key", output=stored.output.id, column=missing[0])
    own = deltas.own_columns()
    return deltas.newest_wins(
        part.read(found, own),
        part.read([url for file, url in zip(ordered, found, strict=True) if file.handle.delta], own),
        schema.names,
        deltas.Key.of(stored.output.key, schema),
        size_bytes=sum(file.handle.size_bytes for file in added),
    )


def _of_program(spark: SparkSession, files: JobFiles, stored: Stored) -> DataFrame:
    """Read files of another format than Parquet, which a program without an `Epoch` block has written as declared."""
    output = stored.output
    if output.format == RAW:
        raise InvalidStateError(
            f"{output.id} is declared as raw files, which cannot be read as rows. Give the stage that writes it the "
            "format, Output('clean', format='csv'), or have a program without an Epoch block read the folder",
            output=output.id,
        )
    if not stored.files:
        raise InvalidStateError(f"{output.id} has no files, and no columns are known of it", output=output.id)
    reader = spark.read.format(output.format).options(**KEEP_ALL, **output.options, **_base_path(files, stored))
    return reader.load([files.spark_url(path) for path in sorted(file.handle.path for file in stored.files)])


def _base_path(files: JobFiles, stored: Stored) -> dict[str, str]:
    folder = f"{stored.output.folder.rstrip('/')}/"
    if stored.output.appended is not None or not any(
        file.handle.path.startswith(folder) and "/" in file.handle.path.removeprefix(folder) for file in stored.files
    ):
        return {}
    return {"basePath": files.spark_url(folder)}


def schema_of(output: Output) -> StructType:
    """Parse the columns of an output.

    Raises:
        DocumentError: the output has no schema that Spark can read.
    """
    from pyspark.sql.types import StructType

    if output.schema is None:
        raise DocumentError("the output has no schema", output=output.id, folder=output.folder)
    try:
        return StructType.fromJson(plain_schema(output.schema))
    except (ValueError, TypeError) as error:  # Cairn's is a ValueError, PySpark's may be either
        raise DocumentError(str(error), output=output.id, folder=output.folder) from error


@dataclass(frozen=True, slots=True)
class _Part:
    """The part of an output's rows that is read."""

    spark: SparkSession
    schema: StructType
    groups: range | None
    touched: deltas.Touched | None
    base: dict[str, str] = field(default_factory=dict)
    """The option by which Spark finds partition columns, which a program's files have in the names of their folders."""

    def read(self, urls: Sequence[str], more: Sequence[StructField] = ()) -> DataFrame:
        """Read files, with additional columns if given."""
        from pyspark.sql.types import IntegerType, StructField, StructType

        columns = [*self.schema, *more]
        reader = self.spark.read.options(**_READ_OPTIONS, **self.base)
        if self.groups is None and self.touched is None:
            return self._of_files(reader.schema(StructType(columns)), urls)
        group = StructField(key_groups.COLUMN, IntegerType())
        whole = StructType([*columns, group])
        found = self._of_files(reader.schema(whole), urls)
        if self.groups is not None:
            found = found.where(found[group.name].between(self.groups[0], self.groups[-1]))
        if self.touched is not None:
            found = self.touched.of(found, whole.names)
        return found.drop(group.name)

    def _of_files(self, reader: DataFrameReader, urls: Sequence[str]) -> DataFrame:
        """Read exactly these files, by their folders where these hold no others.

        A server of Spark Connect would list a folder again at each query, and not tell of a file that is gone then.
        """
        folders = {url.rpartition("/")[0] for url in urls}
        by_partition = self.base or any("=" in folder.rpartition("/")[2] for folder in folders)
        if len(folders) <= _PATHS < len(urls) and not by_partition and not is_remote(self.spark):
            found = reader.parquet(*folders)
            names = sorted(url.rpartition("/")[2] for url in urls)
            if sorted(url.rpartition("/")[2] for url in found.inputFiles()) == names:
                return found
        return reader.parquet(*urls)


def rows_of_files(
    spark: SparkSession,
    files: JobFiles,
    stored: Stored,
    local: LocalState | None = None,
    more: Sequence[StructField] = (),
) -> DataFrame:
    """Read all rows of files, with `more` columns; those of a delta as they were written, with deleted keys."""
    return _Part(spark, schema_of(stored.output), None, None).read(urls(files, stored, stored.files, local), more)


def data_files(files: JobFiles, stored: Stored) -> Stored:
    """Return an output with the files that hold its rows: for a table that grows, those that its list leads to."""
    listed = next((file.handle for file in stored.files if metadata_file.is_list(file.handle)), None)
    if listed is None:
        return stored
    return Stored(stored.output, [File(0, handle) for handle in metadata_file.read_table(files, listed).handles])


def urls(files: JobFiles, stored: Stored, wanted: Sequence[File], local: LocalState | None) -> list[str]:
    """Return the URLs of all files of a base, or of deltas: of copies if they exist, otherwise of the store's."""
    if local is None:
        return [files.spark_url(file.handle.path) for file in wanted]
    output_id, copied = stored.output.id, dict[int, Path | None]()
    for number in sorted({file.handle.delta for file in wanted}):
        name = delta_of(output_id) if number else output_id
        copied[number] = local.find(name, [file.handle for file in wanted if file.handle.delta == number])
    numbers = [number for number in copied if number]
    if numbers:
        here = sum(copied[number] is not None for number in numbers)
        log.info("Of %s, %d of %d deltas are read from copies beside the server", output_id, here, len(numbers))
        touch_base(local, stored)
    places = [(copied[file.handle.delta], file.handle.path) for file in wanted]
    return [
        file_names.literal(f"file://{at / path.rpartition('/')[2]}") if at else files.spark_url(path)
        for at, path in places
    ]


def touch_base(local: LocalState, stored: Stored) -> None:
    """Mark the copy of a state's base as used whenever its deltas are, which are small beside it."""
    local.touch(stored.output.id, [file.handle for file in stored.files if not file.handle.delta])


def same_type(one: DataType, other: DataType) -> bool:
    """Tell whether two types have the same values; nullability and comments do not count, at any depth."""
    return bool(_bare(one) == _bare(other))


def _bare(kind: DataType) -> Any:
    from pyspark.sql import types as T

    if isinstance(kind, T.StructType):
        return T.StructType, [(each.name, _bare(each.dataType)) for each in kind]
    if isinstance(kind, T.ArrayType):
        return T.ArrayType, _bare(kind.elementType)
    if isinstance(kind, T.MapType):
        return T.MapType, _bare(kind.keyType), _bare(kind.valueType)
    return kind


def as_text(df: DataFrame) -> DataFrame:
    """Convert each column to the bytes of Spark's text, for `text_of`: Python has no type for some values."""
    from pyspark.sql import functions as F

    return df.select(*(F.col(key_groups.quoted(name)).cast("string").cast("binary").alias(name) for name in df.columns))


def text_of(value: Any) -> str | None:
    """Decode a value of `as_text`; a backslash escape replaces each byte that is not UTF-8."""
    return None if value is None else bytes(value).decode(errors="backslashreplace")


def _nullable(kind: Any) -> Any:
    """Make everything in a type, given as JSON, nullable."""
    if not isinstance(kind, dict):
        return kind
    may_be = {name: True for name in ("nullable", "containsNull", "valueContainsNull") if name in kind}
    inner = {name: _nullable(kind[name]) for name in ("type", "elementType", "keyType", "valueType") if name in kind}
    fields = {"fields": [_nullable(each) for each in kind["fields"]]} if "fields" in kind else {}
    return {**kind, **may_be, **inner, **fields}


def nothing(spark: SparkSession, schema: StructType | str | None) -> DataFrame:
    """Return an empty DataFrame with these columns; without a schema, with no columns."""
    from pyspark.sql.types import StructType

    return spark.createDataFrame([], StructType([]) if schema is None else schema)


def later(beside: DataFrame, make: Callable[[], DataFrame]) -> DataFrame:
    """Return a DataFrame that `make` makes at its first use; until then no file is read.

    From then on the object is that DataFrame, of PySpark's own class. Safe to use from several threads.

    If `make` raises an error, the next use calls it again. `beside`, of the same session, may be of a class that the
    author derives from PySpark's.
    """
    plain = next(each for each in type(beside).__mro__ if each.__module__.partition(".")[0] == "pyspark")
    lock = RLock()

    def asked(self: Any, name: str) -> Any:
        with lock:
            if type(self) is not plain:
                self.__dict__.update(make().__dict__)
                self.__class__ = plain
        return getattr(self, name)

    # Python calls `__getattr__` for missing attributes. This object has none yet, and every method needs one.
    return cast("DataFrame", object.__new__(type(plain.__name__, (plain,), {"__getattr__": asked})))


def united(spark: SparkSession, files: JobFiles, parts: Sequence[Stored]) -> DataFrame:
    """Return the DataFrame that reads several outputs in order; a column that one lacks is null there."""
    first, *others = (frame(spark, files, each) for each in parts)
    return reduce(lambda before, after: before.unionByName(after, allowMissingColumns=True), others, first)


def subtasks(outputs: Iterable[Stored], parallelism: int) -> Iterator[tuple[int, tuple[StateHandle, ...]]]:
    """Yield each subtask, also without files, and its files (semantics A4); more subtasks before: round-robin."""
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
