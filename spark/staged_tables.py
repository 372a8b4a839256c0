"""Stages rows for a table of another format, in the table's own location (semantics C4; decision 0056).

Order: Spark writes the data files below the driver's own folder, then the driver lists them with their rows, and the
acknowledgement holds that manifest in a committable, or names its file if it is long. Nothing reads any of it before
the job's sink commits the table. A crash before the acknowledgement leaves files that the sink deletes with the epoch's
commit, or once a later epoch has completed.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field, replace
from functools import reduce
from threading import Lock
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ..checkpoint.documents import staged_tables
from ..checkpoint.documents.attempt import Handover
from ..checkpoint.documents.staged_tables import (
    DATA,
    DELETES,
    MANIFEST,
    PREFIX,
    Manifest,
    Mode,
    StagedFile,
    StagedRows,
    TableDescription,
)
from ..checkpoint.errors import DamagedError, InvalidStateError
from ..checkpoint.store.job_files import JobFiles
from ..storage.names import check_name
from ..storage.records import dataclass
from .execution.failure_kinds import condition_of
from .execution.fence import Fence, stopping
from .execution.transport import is_remote
from .input import inputs
from .output.background import BeforeSnapshot
from .output.updates import names_of
from .output.writer import Writer
from .staged_columns import checked, checked_keys, to_create
from .staged_files import reader, spark_url, write, write_parquet
from .stored.key_groups import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession
    from pyspark.sql.types import StructType

    from .acknowledging import Committables

log = logging.getLogger("airflow_cairn")

_UPSERT_BYTES = 128 << 20
"""Most bytes of Parquet of one upsert: the task that commits it may hold the rows in memory."""
_SHARE = 0.2
"""Share of the room for committables that a manifest may fill; a larger one is a file."""


def described(files: JobFiles, handover: Handover, name: str) -> TableDescription:
    """Read what the trigger has fixed of a table.

    Raises:
        InvalidStateError: the group has no such table.
    """
    sink = f"{PREFIX}{check_name('table', name)}"
    ref = handover.hooks
    known = [each.removeprefix(PREFIX) for each in (ref.names if ref else ()) if each.startswith(PREFIX)]
    if name not in known:
        raise InvalidStateError(
            f"the group has no table {name!r}: name it there, tables={{{name!r}: IcebergTable(…)}}",
            job=handover.job,
            tables=", ".join(known) or "none",
        )
    answer = inputs.answer_of(files, handover, sink)
    assert not isinstance(answer, bytes)
    return staged_tables.description_of(answer, where=sink)


def owner_of(files: JobFiles, handover: Handover) -> str:
    """Give the name by which a table tells the jobs apart that write it."""
    return staged_tables.owner_of(handover.job, files.store.uri)


@dataclass(slots=True)
class StagedTables:
    """The tables that one driver writes."""

    files: JobFiles
    handover: Handover
    run: str
    """The driver's token."""
    writer: Writer
    fence: Fence
    before_snapshot: BeforeSnapshot
    committables: Committables
    spark: SparkSession
    _lock: Lock = field(default_factory=Lock)
    _written: dict[str, tuple[SparkSession, str] | None] = field(default_factory=dict)
    """By table, what was staged."""

    def table(self, name: str) -> EpochTable:
        """Return the handle of a table; see `Epoch.table`.

        Raises:
            InvalidStateError: the group has no such table.
        """
        table = described(self.files, self.handover, name)
        if table.parts:
            raise InvalidStateError(
                f"the table {name!r} is written by branches: use epoch.branch({name!r}), and read it by Spark",
                table=table.name,
            )
        return EpochTable(self, name, table)

    def stage(
        self,
        name: str,
        table: TableDescription,
        mode: Mode,
        df: DataFrame | None,
        key: tuple[str, ...] = (),
        deletes: DataFrame | None = None,
    ) -> None:
        """Write rows below this driver's folder, and name them in a committable.

        Raises:
            InvalidStateError: the table does not take this mode, the rows do not fit it, or it was written before.
        """
        from pyspark.sql import functions

        table, rows = _fitting(name, table, mode, df, key)
        keys = None if deletes is None else checked_keys(name, table, deletes, key)
        one = keys if rows is None else rows
        assert one is not None, "the caller has one of the two"
        self.fence.check()
        with self._lock:
            if name in self._written:
                raise InvalidStateError(
                    f"the table {name!r} was written before in this epoch. Unite the two DataFrames",
                    stage=self.handover.stage,
                )
            self._written[name] = None
        self.before_snapshot.run()
        at = self.handover
        folder = f"{table.staging}/{at.stage}-{at.token}-{self.run}"
        spark = one.sparkSession
        self._written[name] = spark, folder
        with self.writer.waiting(), stopping(self.fence, spark, f"{self.run} {name} watched"):
            files = () if rows is None else write(spark, table, mode, rows, f"{folder}/{DATA}")
            deleted = () if keys is None else write(spark, table, mode, keys, f"{folder}/{DELETES}")
            if mode is Mode.UPSERT:
                _check_upsert(spark, table, folder, key, files, deleted)
            by, units = table.partition_by, table.partition_units
            manifest = Manifest(table.table_id, table.columns, by, files, deleted, table.version, units)
            text = staged_tables.manifest_text(manifest)
            count = sum(file.rows for file in (*files, *deleted))
            owner, sha256 = owner_of(self.files, at), staged_tables.digest(text)
            staged = StagedRows(owner, folder, table.staging, sha256, count, mode, key)
            committable = staged_tables.encode(replace(staged, manifest=staged_tables.packed(text)))
            if self.committables.share_with(f"{PREFIX}{name}", committable) > _SHARE:
                committable = staged_tables.encode(staged)
                # Not as a parameter of SQL: the parser of Delta's extension loses it (4.4.0 on Spark 4.1).
                of_manifest = spark.range(0, 1, 1, 1).select(functions.lit(text).alias("manifest"))
                write_parquet(of_manifest, f"{folder}/{MANIFEST}", {"compression": "snappy"})
        self.committables.add(f"{PREFIX}{name}", committable)

    def read(self, name: str, table: TableDescription) -> DataFrame:
        """Give the rows of the files that the trigger has listed.

        Raises:
            InvalidStateError: the group does not declare that it reads the table.
            DamagedError: a file is gone, or the list was altered.
        """
        from pyspark.sql.types import StructType

        if not table.read:
            raise InvalidStateError(
                f"the table {name!r} is not read by epochs: say read=True where the group's tables name it",
                table=table.name,
            )
        if not table.table_id:
            raise InvalidStateError(
                f"{table.name} does not exist yet, so its columns are not known: ask epoch.table({name!r}).exists",
                table=table.name,
            )
        schema = StructType.fromJson(table.columns)
        for each in schema.fields:
            each.nullable = True
        with _naming_what_is_gone(table, "the list of files"):
            files = reader(self.spark, _LISTED).parquet(spark_url(table.read)).collect()
        if staged_tables.digest_of_list((each["path"], each["given"]) for each in files) != table.read_sha256:
            raise DamagedError(
                f"the list of the files of {table.name} was altered after the trigger. {_PUT_BACK}",
                code="staged_rows",
                table=table.name,
                found=table.read,
            )
        if not files:
            return self.spark.createDataFrame([], schema)
        # A path with these characters would be a pattern.
        paths = [re.sub(r"([{}\[\]*?\\])", r"\\\1", spark_url(each["path"])) for each in files]
        with _naming_what_is_gone(table, "a file"):
            rows = reader(self.spark, schema).parquet(*paths)
            rows.schema  # noqa: B018 - over Spark Connect the files are looked for now
        given = {column for each in files for column in each["given"]}
        return _with_given(rows, files, schema, given) if given else rows

    def delete_all(self) -> None:
        """Delete what this driver has staged; over Spark Connect the sink does, with the epoch's commit."""
        for spark, folder in filter(None, self._written.values()):
            if is_remote(spark):
                log.info("What was staged in %s stays until this epoch or a later one completes.", folder)
                continue
            jvm: Any = spark._jvm
            jsc: Any = spark._jsc
            try:
                path = jvm.org.apache.hadoop.fs.Path(spark_url(folder))
                path.getFileSystem(jsc.hadoopConfiguration()).delete(path, True)
            except Exception as problem:  # noqa: BLE001 - logged, and the caller raises the cause
                log.info("Could not delete %s (%s). It goes when this epoch or a later one completes.", folder, problem)


@dataclass(frozen=True, slots=True)
class EpochTable:
    """A table of the group's `tables`, for the application."""

    _tables: StagedTables
    name: str
    description: TableDescription

    @property
    def exists(self) -> bool:
        """Whether the table existed at the epoch's first trigger; false only for one with `create=True`."""
        return bool(self.description.table_id)

    def read(self) -> DataFrame:
        """Return the rows that the table had when the epoch's first attempt was triggered.

        A retry reads the same, unless another epoch has completed in between. The rows hold what the job's earlier
        epochs have written, and nothing that this one writes.

        Raises:
            InvalidStateError: the group's `tables` do not say `read=True`, or the table does not exist yet.
            DamagedError: the table's owner has deleted a file of that version.
        """
        return self._tables.read(self.name, self.description)

    def check(self, df: DataFrame) -> None:
        """Check that `replace` takes these rows; see there."""
        _fitting(self.name, self.description, Mode.REPLACE, df)

    def append(self, df: DataFrame) -> None:
        """Add rows to the table when the checkpoint completes, each once. Runs the DataFrame now.

        Args:
            df: the rows, with the table's columns in any order; once for a table and stage in an epoch.

        Raises:
            InvalidStateError: the stage wrote the table before in this epoch, `df` is not a DataFrame, or its columns
                differ from those that the table had when the epoch's first attempt was triggered.
            InvalidConfigError: Spark's output committer cannot be trusted.
        """
        self._tables.stage(self.name, self.description, Mode.APPEND, df)

    def overwrite_partitions(self, df: DataFrame) -> None:
        """Have rows take the place of those in their partitions when the checkpoint completes. Runs the DataFrame now.

        Args:
            df: as for `append`. A partition of which it has no row stays as it is.

        Raises:
            InvalidStateError: as for `append`; or the table has no partitions, or may only grow.
            InvalidConfigError: Spark's output committer cannot be trusted.
        """
        self._tables.stage(self.name, self.description, Mode.OVERWRITE, df)

    def replace(self, df: DataFrame) -> None:
        """Have rows take the place of all rows when the checkpoint completes. Runs the DataFrame now.

        Args:
            df: as for `append`; without rows it empties the table.

        Raises:
            InvalidStateError: as for `append`; or the table may only grow.
            InvalidConfigError: Spark's output committer cannot be trusted.
        """
        self._tables.stage(self.name, self.description, Mode.REPLACE, df)

    def upsert(self, df: DataFrame | None, key: str | Sequence[str], *, deletes: DataFrame | None = None) -> None:
        """Have rows take the place of those of the same key when the checkpoint completes. Runs the DataFrames now.

        Args:
            df: as for `append`, each key once; a row whose key the table lacks is added. None: only `deletes`.
            key: the columns by which a row is found again: texts, whole numbers, decimals, dates or booleans.
            deletes: keys whose rows go; only the key columns are read. A key that the table lacks is not an error.

        Raises:
            InvalidStateError: as for `append`; or a key is null or there twice, `deletes` lacks a key column, there are
                more rows than the commit can merge, or the table may only grow.
            InvalidConfigError: Spark's output committer cannot be trusted.
        """
        columns = names_of(key)
        if not columns or len(set(columns)) < len(columns):
            raise InvalidStateError(
                f"an upsert of the table {self.name!r} needs the columns by which a row is found again, each once: "
                "upsert(df, key=[…])",
                key=", ".join(columns),
            )
        if df is None and deletes is None:
            raise InvalidStateError(f"the upsert of the table {self.name!r} holds nothing: give rows, or deletes=…")
        self._tables.stage(self.name, self.description, Mode.UPSERT, df, columns, deletes)


def _fitting(
    name: str, table: TableDescription, mode: Mode, df: DataFrame | None, key: Sequence[str] = ()
) -> tuple[TableDescription, DataFrame | None]:
    """Give the table, with columns if these rows create it, and the rows as it takes them.

    Raises:
        InvalidStateError: the table does not take this mode, or the rows do not fit it.
    """
    if mode.value in table.refused:
        raise InvalidStateError(f"{table.name} does not take {mode.value}: it {table.refused[mode.value]}")
    if not table.table_id:
        table = to_create(name, table, df)
    return table, None if df is None else checked(name, table, df, key)


def _check_upsert(
    spark: SparkSession,
    table: TableDescription,
    folder: str,
    key: Sequence[str],
    files: Sequence[StagedFile],
    deletes: Sequence[StagedFile],
) -> None:
    """Refuse a key that was staged twice, and more than a commit can merge."""
    from pyspark.sql import DataFrame, functions
    from pyspark.sql.types import StructType

    rows, size = (sum(getattr(each, what) for each in (*files, *deletes)) for what in ("rows", "size_bytes"))
    most = table.upsert_rows
    if rows > most or size > _UPSERT_BYTES:
        raise InvalidStateError(
            f"{rows} rows with {size} bytes are too much for an upsert of {table.name}, which takes {most} rows and "
            f"{_UPSERT_BYTES} bytes of a stage. Publish the rows, and merge them in a task after the group",
            table=table.name,
        )
    wanted = StructType.fromJson(table.columns)
    schema = StructType([wanted[each] for each in key])
    folders = [spark_url(f"{folder}/{each}") for each, found in ((DATA, files), (DELETES, deletes)) if found]
    if not folders:
        return
    read = [reader(spark, schema).parquet(each).select(*map(quoted, key)) for each in folders]
    keys = reduce(DataFrame.union, read)
    twice = keys.groupBy(*map(quoted, key)).count().where("count > 1").drop("count").limit(3).collect()
    if table.upsert_terms and len(key) > 1:
        others = [[quoted(each) for each in key if each != but] for but in key]
        terms = min(keys.agg(*(functions.count_distinct(*each) for each in others)).collect()[0])
        if terms > table.upsert_terms:
            raise InvalidStateError(
                f"the keys of the upsert of {table.name} have {terms} combinations of all columns but one, and the "
                f"commit takes {table.upsert_terms}. Publish the rows, and merge them in a task after the group",
                key=", ".join(key),
            )
    if twice:
        shown = ", ".join(str(tuple(row)) for row in twice)
        raise InvalidStateError(
            f"the upsert of {table.name} has a key more than once: {shown}. Keep one row of each key",
            table=table.name,
            key=", ".join(key),
        )


@contextmanager
def _naming_what_is_gone(table: TableDescription, what: str) -> Iterator[None]:
    from pyspark.errors import AnalysisException

    try:
        yield
    except AnalysisException as error:
        if not condition_of(error).startswith("PATH_NOT_FOUND"):
            raise
        raise DamagedError(
            f"{what} of the version of {table.name} that this epoch reads is gone: deleted, expired or vacuumed after "
            f"the trigger. {_PUT_BACK}; and keep a table's versions for longer than an epoch takes",
            code="staged_rows",
            table=table.name,
            version=table.version,
        ) from error


def _with_given(rows: DataFrame, files: Sequence[Row], schema: StructType, given: Collection[str]) -> DataFrame:
    """Put in the values that the list of files gives instead of the files."""
    from pyspark.sql import functions as f

    # Where no path of the list names a server, those of Spark, which always do, are compared without it.
    bare = not any(urlsplit(each["path"]).netloc for each in files)
    scheme = _SCHEME_AND_SERVER if bare else _SCHEME
    listed = rows.sparkSession.createDataFrame(list(files), _LISTED)
    path, values = (staged_tables.free_name(name, schema.names) for name in ("cairn_path", "cairn_given"))
    decoded = f.expr("url_decode(replace(_metadata.file_path, '+', '%2B'))")
    of_file = rows.select("*", f.regexp_replace(decoded, scheme, "").alias(path))
    of_list = listed.select(f.regexp_replace("path", scheme, "").alias(path), f.col("given").alias(values))
    joined = of_file.join(f.broadcast(of_list), path, "left")
    unlisted = f.raise_error(f.concat(f.lit("Not in the list of the table's files: "), f.col(path)))
    known = f.coalesce(f.col(values), unlisted.cast("map<string,string>"))
    return joined.select(
        *(
            f.when(f.map_contains_key(known, f.lit(each.name)), f.element_at(known, each.name).cast(each.dataType))
            .otherwise(f.col(quoted(each.name)))
            .alias(each.name)
            if each.name in given
            else f.col(quoted(each.name))
            for each in schema.fields
        )
    )


_LISTED = "path STRING, given MAP<STRING, STRING>"
_SCHEME = "^(?:[A-Za-z0-9]+:)?/+"
_SCHEME_AND_SERVER = "^(?:[A-Za-z0-9]+:)?(?://[^/]*)?/+"
_PUT_BACK = (
    "Put it back, or rewind the job by a checkpoint: `cairn rewind` lists the epochs that then read the table anew, "
    "and what they have committed and would append again"
)
