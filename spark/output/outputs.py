"""What one driver writes in its epoch: each name once a kind; what a checkpoint keeps, after the author's step (B5)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from threading import Lock
from typing import TYPE_CHECKING

from ...checkpoint.documents.acknowledgement import Appended, Output, StateHandle
from ...checkpoint.errors import InvalidStateError
from ...checkpoint.store.job_files import JobFiles
from ...storage.errors import CairnError
from ...storage.names import check_name
from ..appending import partitions, table_schema
from ..appending.manifests import Before
from ..execution.fence import Fence
from ..execution.job_cancellation import stopping
from ..stored.local_state import LocalState
from ..stored.outputs import Stored, schema_of
from . import updates
from .background import Background, BackgroundSnapshot
from .before_snapshot import BeforeSnapshot
from .columns import columns_of, names_of
from .writer import Planned, Writer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


log = logging.getLogger("airflow_cairn")


class Outputs:
    """Holds what has been written; several threads may write at once."""

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
    ) -> None:
        """Write a DataFrame.

        Args:
            kind: `state`, `table` or `exchange`.
            name: the output's name.
            df: what to write.
            key: key columns.
            background: only begin; `finish` waits for it.

        Raises:
            InvalidStateError: the name was used before, a key column is missing or of a type that cannot be hashed, or
                `df` is none.
            InvalidNameError: the name does not match the grammar (semantics W1).
            InvalidConfigError: Spark's output committer cannot be trusted.
            BackgroundSnapshotError: what was to be written in the background before has failed.
            FencedError: the execution can no longer count, before the write or while it ran.
        """
        output_id = f"{kind}.{check_name(kind, name)}"
        columns = columns_of(output_id, df, key)
        self._take_written(kind, name)
        planned = self._writer.plan(kind, name, df, columns)
        if not background:
            self._add(self._write(planned))
            return
        self._background.start(
            BackgroundSnapshot(
                df.sparkSession,
                output_id,
                f"{self._writer.run_folder}{output_id}",
                lambda: self._write(planned, waited_for=False),
                lambda: self._writer.delete_output(planned.output.folder),
            )
        )

    def update(
        self,
        update: updates.Update,
        files: JobFiles,
        local: LocalState | None,
        lasting: Callable[[DataFrame], DataFrame],
    ) -> None:
        """Write what changed in a keyed state (semantics K2); see `updates.write`.

        Raises:
            InvalidStateError: the name was used before, or two rows have one key.
            InvalidConfigError: Spark's output committer cannot be trusted.
            BackgroundSnapshotError: what was to be written in the background before has failed.
            FencedError: the execution can no longer count, before the write or while it ran.
        """
        self._take_written("state", update.name)
        self._add(updates.write(update, files, self._writer, self._write, local, lasting))

    def append(
        self,
        name: str,
        df: DataFrame,
        before: Stored | None,
        partition_by: str | Sequence[str],
        *,
        overwrite_partitions: bool,
    ) -> None:
        """Add rows to a table, and have small files of it become larger ones (decision 0047).

        Args:
            name: the table's name.
            df: what to add.
            before: the table as the restored checkpoint holds it; None where it begins.
            partition_by: columns by which rows are kept apart.
            overwrite_partitions: whether the files so far of the partitions that `df` has go.

        Raises:
            InvalidStateError: the name was used before; `df` is no DataFrame or does not fit to the table.
            InvalidNameError: the name does not match the grammar (semantics W1).
            InvalidConfigError: Spark's output committer cannot be trusted.
            DocumentError: a manifest of the table is broken or altered.
            FencedError: the execution can no longer count, before the write or while it ran.
        """
        output_id = f"table.{check_name('table', name)}"
        columns_of(output_id, df, ())
        columns = names_of(partition_by)
        partitions.check(output_id, df, columns)
        if overwrite_partitions and not columns:
            raise InvalidStateError(
                f"{output_id} has no partitions to overwrite. Name its columns with partition_by, or publish the table "
                "whole",
                output=output_id,
            )
        there = self._writer.table_before(before)
        if before is not None:
            df = _fitting(df, before, columns, there)
        self._take_written("table", name)
        planned = self._writer.plan("table", name, df, (), appended=Appended(partition_by=columns))
        files = self._write(planned).files
        replaced = {file.handle.partition for file in files} if overwrite_partitions else ()
        self._fence.check()

        def merge(table: Output, small: Sequence[StateHandle]) -> list[StateHandle] | None:
            return self._merged(self._writer.plan_merged(table, small, df.sparkSession))

        self._add(self._writer.list_table(planned, files, there, replaced, merge))

    def _merged(self, planned: Planned) -> list[StateHandle] | None:
        try:
            return [file.handle for file in self._write(planned).files]
        except CairnError:
            raise
        except Exception as problem:  # Spark's errors have no common class
            self._fence.raise_if_stopped()
            # The epoch does not need it, and must not stand still because of one old file that cannot be read.
            text = "Small files of %s were not merged, and stay as they are: %s"
            log.warning(text, planned.output.id, problem, exc_info=True)
            self._writer.delete_output(planned.output.folder)
            return None

    def _write(self, planned: Planned, *, waited_for: bool = True) -> Stored:
        with stopping(self._fence, planned.df.sparkSession, f"{planned.output.folder} watched"):
            return self._writer.write(planned, waited_for=waited_for)

    def add(self, kind: str, name: str, make: Callable[[str], Stored]) -> None:
        """Have an output written.

        Raises:
            InvalidStateError: the name was used before.
            BackgroundSnapshotError: what was to be written in the background before has failed.
            FencedError: the execution can no longer count; nothing was written.
            InvalidNameError: the name does not match the grammar (semantics W1).
        """
        self._take_written(kind, name)
        self._add(make(f"{kind}.{name}"))

    def finish(self) -> dict[str, Stored]:
        """Wait for what is written in the background, and give everything that was written, by `Output.id`.

        Raises:
            BackgroundSnapshotError: something of it has failed.
            FencedError: a write was stopped because the execution can no longer count, even if the block caught that.
        """
        try:
            return {**self._written, **self._background.finish()}
        finally:
            self._fence.raise_if_stopped()

    def abort(self) -> None:
        """Stop what is written in the background, and wait until it has ended."""
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
        """Take a name for the rest of this epoch.

        Raises:
            InvalidStateError: it is taken; the text is `otherwise`.
        """
        with self._lock:
            if output_id in self._taken:
                raise InvalidStateError(otherwise, stage=self._stage, name=output_id.partition(".")[2])
            self._taken.add(output_id)


def _fitting(df: DataFrame, before: Stored, columns: tuple[str, ...], there: Before) -> DataFrame:
    """Give what is to be added to a table with that table's columns; it must be partitioned as the table is."""
    appended = before.output.appended
    by = appended.partition_by if appended is not None else ()
    if columns != by and not there.empty:
        raise InvalidStateError(
            f"{before.output.id} is partitioned by other columns. Append with the same ones, or publish the table anew",
            expected=", ".join(by) or "none",
            found=", ".join(columns) or "none",
        )
    return table_schema.grown(before.output.id, schema_of(before.output), df)
