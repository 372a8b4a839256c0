"""The outputs of one driver in its epoch: each name once per kind, and snapshots after the author's step (B5)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence, Set
from contextlib import AbstractContextManager
from functools import cache
from threading import Lock
from typing import TYPE_CHECKING

from ...checkpoint.documents.acknowledgement import Appended, Output, StateHandle
from ...checkpoint.errors import InvalidStateError
from ...checkpoint.store.job_files import JobFiles
from ...storage.errors import CairnError
from ...storage.names import check_name
from ..execution.fence import Fence, stopping
from ..execution.transport import version_of
from ..stored import growing_table
from ..stored.growing_table import Before, Replaced
from ..stored.key_groups import quoted
from ..stored.local_state import LocalState
from ..stored.outputs import File, Stored, same_type, schema_of
from . import updates
from .background import Background, BackgroundSnapshot, BeforeSnapshot
from .updates import columns_of, names_of
from .writer import Planned, Writer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType, StructType


log = logging.getLogger("airflow_cairn")


class Outputs:
    """Writes and holds the outputs; safe to use from several threads."""

    def __init__(self, stage: str, writer: Writer, before_snapshot: BeforeSnapshot, fence: Fence) -> None:
        self._stage = stage
        self._writer = writer
        self._before_snapshot = before_snapshot
        self._fence = fence
        self._lock = Lock()
        self._taken: set[str] = set()
        self._written: dict[str, Stored] = {}
        self._background = Background(stage)

    def write(
        self, kind: str, name: str, df: DataFrame, key: str | Sequence[str] = (), *, background: bool = False
    ) -> Stored | None:
        """Write a DataFrame, and return what was written; with `background` only start, and return None."""
        output_id = f"{kind}.{check_name(kind, name)}"
        columns = columns_of(output_id, df, key)
        planned = self._writer.plan(kind, name, df, columns)
        self._take_written(kind, name)
        if not background:
            stored = self._write(planned)
            self._add(stored)
            return stored
        self._background.start(
            BackgroundSnapshot(
                df.sparkSession,
                output_id,
                f"{self._writer.run_folder}{output_id}",
                lambda: self._write(planned, waited_for=False),
                lambda: self._writer.delete_output(planned.output.folder),
            )
        )
        return None

    def update(
        self,
        update: updates.Update,
        files: JobFiles,
        local: LocalState | None,
        lasting: Callable[[DataFrame], DataFrame],
    ) -> Stored:
        """Write the changes of a keyed state (semantics K2), and return the changed state; see `updates.write`."""
        self._take_written("state", update.name)
        stored = updates.write(update, files, self._writer, self._write, local, lasting)
        self._add(stored)
        return stored

    def append(
        self,
        name: str,
        df: DataFrame,
        before: Stored | None,
        partition_by: str | Sequence[str],
        *,
        overwrite_partitions: bool,
    ) -> None:
        """Add rows to a table, and merge its small files (decision 0047).

        Without `before` the table is new. With `overwrite_partitions`, remove the existing files of the partitions that
        `df` has rows of.

        Raises:
            InvalidStateError: the name was used before; `df` is not a DataFrame or does not fit the table.
            InvalidKeyError: the name does not match the grammar (semantics W1).
        """
        output_id = f"table.{check_name('table', name)}"
        columns_of(output_id, df, ())
        columns = names_of(partition_by)
        growing_table.check(output_id, df, columns)
        if overwrite_partitions and not columns:
            raise InvalidStateError(
                f"{output_id} has no partitions to overwrite. Name its columns with partition_by, or publish the table "
                "whole",
                output=output_id,
            )
        there = self._writer.table_before(before)
        if before is not None:
            df = _fitting(df, before, columns, there)
        planned = self._writer.plan("table", name, df, (), appended=Appended(partition_by=columns))
        self._take_written("table", name)
        files = self._write(planned).files
        self._fence.check()
        names = {file.handle.partition for file in files}

        def merge(table: Output, small: Sequence[StateHandle]) -> list[StateHandle] | None:
            return self._merged(self._writer.plan_merged(table, small, df.sparkSession))

        def keep(table: Output, doubtful: Sequence[StateHandle]) -> list[StateHandle]:
            stays = self._write(self._writer.plan_merged(table, doubtful, df.sparkSession, without=names))
            return [file.handle for file in stays.files]

        replaced = self._replaced(planned, files, names) if overwrite_partitions else None
        self._add(self._writer.list_table(planned, files, there, replaced, merge, keep))

    def _replaced(self, planned: Planned, files: list[File], names: Set[str]) -> Replaced:
        """Return the selection of partitions that lose their existing files to files of the given names."""

        @cache
        def older_names() -> Set[str]:
            with self._stopping(planned):
                return self._writer.older_names(Stored(planned.output, files), planned.df.sparkSession)

        def replaced(found: Set[str]) -> Set[str]:
            older = {each for each in found if growing_table.is_older(each)}
            return found & names | (older & older_names() if older else older)

        return replaced

    def _merged(self, planned: Planned) -> list[StateHandle] | None:
        try:
            return [file.handle for file in self._write(planned).files]
        except CairnError:
            raise
        except Exception as problem:  # Spark's errors have no common class
            self._fence.raise_if_stopped()
            # The epoch does not need the merge, and one old unreadable file must not stop it.
            log.warning(
                "Small files of %s were not merged, and stay as they are: %s", planned.output.id, problem, exc_info=True
            )
            self._writer.delete_output(planned.output.folder)
            return None

    def _write(self, planned: Planned, *, waited_for: bool = True) -> Stored:
        with self._stopping(planned):
            return self._writer.write(planned, waited_for=waited_for)

    def _stopping(self, planned: Planned) -> AbstractContextManager[None]:
        return stopping(self._fence, planned.df.sparkSession, f"{planned.output.folder} watched")

    def add(self, kind: str, name: str, make: Callable[[str], Stored]) -> None:
        self._take_written(kind, name)
        self._add(make(f"{kind}.{name}"))

    def finish(self) -> dict[str, Stored]:
        """Wait for background writes, and return all outputs by `Output.id`."""
        try:
            return {**self._written, **self._background.finish()}
        finally:
            self._fence.raise_if_stopped()

    def abort(self) -> None:
        self._background.abort()

    def _take_written(self, kind: str, name: str) -> None:
        self._fence.check()
        self._background.check()
        self.take(
            f"{kind}.{check_name(kind, name)}",
            f"the {kind} {name!r} was written or dropped before in this epoch; each name is used once. Give the second "
            "one a name of its own, or unite the two",
        )
        if kind != "exchange":
            self._before_snapshot.run()

    def _add(self, stored: Stored) -> None:
        with self._lock:
            self._written[stored.output.id] = stored

    def take(self, output_id: str, otherwise: str) -> None:
        """Reserve a name for the rest of this epoch.

        Raises:
            InvalidStateError: the name is taken; the message is `otherwise`.
        """
        with self._lock:
            if output_id in self._taken:
                raise InvalidStateError(otherwise, stage=self._stage, name=output_id.partition(".")[2])
            self._taken.add(output_id)


def _fitting(df: DataFrame, before: Stored, columns: tuple[str, ...], there: Before) -> DataFrame:
    """Adapt rows to a table's columns; the table must have the same partition columns."""
    appended = before.output.appended
    by = appended.partition_by if appended is not None else ()
    if columns != by and not there.empty:
        raise InvalidStateError(
            f"{before.output.id} is partitioned by other columns. Append with the same ones, or publish the table anew",
            expected=", ".join(by) or "none",
            found=", ".join(columns) or "none",
        )
    return grown_schema(before.output.id, schema_of(before.output), df)


# The columns of a table that grows: an append may add columns and widen types, nothing else. Older files are never
# rewritten for this. Spark reads a column that a file lacks as null, and a narrower type as the wider one; only types
# that Spark reads so without loss are accepted.


_WHOLE = ("tinyint", "smallint", "int", "bigint")
"""Integer types, each wider than the one before."""

READS_NARROWER = 4
"""The first Spark that reads a file with a narrower type than the table's."""

_DECIMAL = 38
"""Digits of Spark's widest decimal."""


def grown_schema(output_id: str, before: StructType, df: DataFrame) -> DataFrame:
    """Adapt rows to the table's columns and types: first the existing columns, then the new ones.

    Raises:
        InvalidStateError: a column is missing, differs in case only, or has a type that is neither the same nor wider
            nor narrower.
    """
    new = df.schema
    version = version_of(df.sparkSession)
    reads_narrower = int(version.partition(".")[0]) >= READS_NARROWER
    problems, columns = [], []
    as_they_are = new.names[: len(before.names)] == before.names
    for field in before.fields:
        if field.name not in new.names:
            problems.append(f"the column {field.name!r} is missing")
            continue
        found = new[field.name].dataType
        wider = _wider(field.dataType, found)
        if wider is None:
            problems.append(f"the column {field.name!r} is of the type {found.simpleString()}")
        elif not reads_narrower and not same_type(wider, field.dataType):
            problems.append(
                f"the column {field.name!r} is of the wider type {found.simpleString()}, as which Spark "
                f"{version} cannot read the table's files; Spark {READS_NARROWER} can"
            )
        else:
            column = df[quoted(field.name)]
            columns.append(column if wider == found else column.cast(wider).alias(field.name))
            as_they_are = as_they_are and wider == found
    there = {name.lower() for name in before.names}
    for name in new.names:
        if name in before.names:
            continue
        if name.lower() in there:
            problems.append(f"the column {name!r} differs in case only")
        columns.append(df[quoted(name)])
    if problems:
        raise InvalidStateError(
            f"this cannot be appended to {output_id}: {'; '.join(problems)}. A table that grows takes new columns and "
            "wider types. Cast or add the column, or publish the table anew",
            table=before.simpleString(),
            appended=new.simpleString(),
        )
    # Each new DataFrame is analysed by Spark's driver.
    return df if as_they_are else df.select(*columns)


def _wider(before: DataType, new: DataType) -> DataType | None:
    """Return the type that holds both; None if old files cannot be read as any such type."""
    from pyspark.sql.types import DecimalType

    if same_type(before, new):
        return new  # nullability inside may differ: Spark reads either from files, but casts only one way
    names = before.simpleString(), new.simpleString()
    if isinstance(before, DecimalType) and isinstance(new, DecimalType):
        scale = max(before.scale, new.scale)
        precision = max(before.precision - before.scale, new.precision - new.scale) + scale
        return DecimalType(precision, scale) if precision <= _DECIMAL else None
    if set(names) == {"float", "double"}:
        return before if names[0] == "double" else new
    if all(name in _WHOLE for name in names):
        return before if _WHOLE.index(names[0]) > _WHOLE.index(names[1]) else new
    return None
