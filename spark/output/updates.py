"""Updates of keyed state: each epoch writes a delta, or a new base when the deltas have grown (K2, K3).

One query writes all changes of an epoch: as a delta; or with some existing deltas, as one merged delta in their place;
or, for a state that is small or has too many or too large deltas, with base and deltas as a new base. The restored
checkpoint decides which. Two rows with one key in an update would leave the key's value to chance, so the write fails.
Nothing counts before the stage's acknowledgement names it: a driver that dies in between leaves files for the cleaner,
and the state stays as in the restored checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from ...checkpoint.documents.acknowledgement import Output
from ...checkpoint.errors import InvalidStateError
from ...checkpoint.store.job_files import JobFiles
from ...storage.records import dataclass
from ..stored import deltas, key_groups, merges
from ..stored.local_state import LocalState
from ..stored.merges import check as check_merges
from ..stored.merges import listed, needs_the_base
from ..stored.merges import merged as merge_rows
from ..stored.outputs import Stored, as_text, frame, rows_of_files, same_type, schema_of, text_of, touch_base
from .writer import Planned, Writer
from .writer import schema_of as schema_json

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


def names_of(columns: str | Sequence[str]) -> tuple[str, ...]:
    """Return column names as a tuple; an author may give a single name."""
    return (columns,) if isinstance(columns, str) else tuple(columns)


def columns_of(output_id: str, df: DataFrame, key: str | Sequence[str]) -> tuple[str, ...]:
    """Check a DataFrame to be written, and return its key columns.

    Raises:
        InvalidStateError: `df` is not a DataFrame, or lacks a key column.
    """
    from pyspark.sql import DataFrame

    if not isinstance(df, DataFrame):
        raise InvalidStateError(
            f"{output_id} must be a Spark DataFrame and is a {type(df).__name__}. Make one with spark.createDataFrame",
        )
    columns = names_of(key)
    for column in columns:
        if column not in df.columns:
            raise InvalidStateError(
                f"the key column {column!r} is not in the DataFrame of {output_id}", columns=", ".join(df.columns)
            )
    return columns


_SHOWN = 200
"""Longest part of a key that an error shows, in characters."""


@dataclass(frozen=True, slots=True)
class Update:
    """The checked changes of one state in one epoch, not yet written.

    `changed` has the state's columns in their order, `deletes` only the key columns. Without `before` the state is new;
    without `merge` the newest row counts.
    """

    name: str
    changed: DataFrame | None
    deletes: DataFrame | None
    key: tuple[str, ...]
    before: Stored | None
    merge: Mapping[str, str] | None = None

    @property
    def given(self) -> DataFrame:
        """One of the update's DataFrames."""
        one = self.changed if self.changed is not None else self.deletes
        assert one is not None, "one of the two is there"
        return one

    @property
    def spark(self) -> SparkSession:
        return self.given.sparkSession


def checked(
    name: str,
    changed: DataFrame | None,
    key: str | Sequence[str],
    deletes: DataFrame | None,
    before: Stored | None,
) -> Update:
    """Check the arguments of `epoch.update`.

    Raises:
        InvalidStateError: there is no key, or not the state's; a column is missing, unknown, or of another type;
            or there is nothing to write, or no state to delete from.
    """
    output_id = f"state.{name}"
    columns = names_of(key)
    if not columns:
        raise InvalidStateError(
            f"{output_id} is to be updated and no key is given. Name the columns by which a row is found again: "
            f"epoch.update({name!r}, …, key=[…])"
        )
    if changed is None and deletes is None:
        raise InvalidStateError(f"the update of {output_id} holds nothing: give rows, or deletes=…, or both")
    if before is None and changed is None:
        raise InvalidStateError(
            f"there is no {output_id} to delete from: the restored checkpoint holds none. Write its first rows with "
            f"epoch.update({name!r}, rows, key=…)"
        )
    if before is not None:
        _check_key(before.output, columns)
        if before.output.merge:
            raise InvalidStateError(
                f"{output_id} is aggregated, and a state keeps its merge: its rows cannot be updated. Write partials "
                f"by epoch.aggregate, or the whole state by epoch.snapshot({name!r}, …, key=…), which later epochs can "
                "update",
                merge=listed(before.output.merge),
            )
    for df in (changed, deletes):
        if df is not None:
            columns_of(output_id, df, columns)
            key_groups.check_key(output_id, df, columns)
    expected = schema_of(before.output) if before is not None else None
    if changed is not None:
        changed = _in_order(output_id, changed, expected) if expected is not None else changed
        expected = expected or changed.schema
    assert expected is not None, "it is the state's, or that of the first rows"
    if deletes is not None:
        deletes = deletes.select(*map(key_groups.quoted, columns))
        for column in columns:
            found, wanted = deletes.schema[column].dataType, expected[column].dataType
            if not same_type(found, wanted):
                raise InvalidStateError(
                    f"the key column {column!r} of the deletes of {output_id} is of another type than that of the "
                    "state. Cast it",
                    found=found.simpleString(),
                    expected=wanted.simpleString(),
                )
    return Update(name, changed, deletes, columns, before)


def partials(
    name: str, rows: DataFrame, key: str | Sequence[str], merge: Mapping[str, str], before: Stored | None
) -> Update:
    """Check the arguments of `epoch.aggregate`.

    Raises:
        InvalidStateError: see `checked`; or a column has no merge, an unknown one, one that does not take the column,
            or not the state's; or there is no column but the key; or the state was written by `update`.
    """
    output_id = f"state.{name}"
    columns = columns_of(output_id, rows, key)
    if not columns:
        raise InvalidStateError(
            f"{output_id} is to be aggregated and no key is given. Name the columns by which rows are merged: "
            f"epoch.aggregate({name!r}, …, key=[…], merge=…)"
        )
    key_groups.check_key(output_id, rows, columns)
    merge, schema = dict(merge), rows.schema
    if before is not None:
        _check_key(before.output, columns)
        _check_merge(before, merge)
        # The types are equal; asking for the columns of the ordered rows takes another request over Spark Connect.
        schema = schema_of(before.output)
        rows = _in_order(output_id, rows, schema)
    check_merges(name, schema, columns, merge)
    if not merge:
        raise InvalidStateError(
            f"{output_id} has its key columns alone, so there is nothing to merge. Write such keys by "
            f"epoch.update({name!r}, …, key=[…])"
        )
    return Update(name, rows, None, columns, before, merge)


def _check_merge(before: Stored, merge: Mapping[str, str]) -> None:
    output = before.output
    if output.merge and output.merge != merge:
        raise InvalidStateError(
            f"{output.id} is merged otherwise, and a state keeps its merge. Give the same, or write the state whole by "
            f"epoch.snapshot({output.name!r}, …, key=…); later epochs can aggregate that anew",
            merge=listed(merge),
            stored_merge=listed(output.merge),
        )
    if not output.merge and any(file.handle.delta for file in before.files):
        raise InvalidStateError(
            f"{output.id} has deltas of epoch.update, of which the newest row counts, so partials cannot be merged "
            f"with it. Write it whole first, by epoch.snapshot({output.name!r}, …, key=…)"
        )


def _check_key(output: Output, key: tuple[str, ...]) -> None:
    if not output.key:
        raise InvalidStateError(
            f"{output.id} was written without a key, so its rows cannot be found again. Write it once more, whole, by "
            f"epoch.snapshot({output.name!r}, …, key=…); later epochs can update it"
        )
    if output.key != key:
        raise InvalidStateError(
            f"{output.id} is keyed by other columns, and a state keeps its key. Name the same columns in the same "
            f"order, or write it whole under the new key by epoch.snapshot({output.name!r}, …, key=…)",
            key=", ".join(key),
            stored_key=", ".join(output.key),
        )


def _in_order(output_id: str, df: DataFrame, expected: StructType) -> DataFrame:
    """Select the columns in the state's order."""
    if sorted(df.columns) != sorted(expected.names) or any(
        not same_type(df.schema[column].dataType, expected[column].dataType) for column in expected.names
    ):
        raise InvalidStateError(
            f"the rows have other columns than {output_id}, and a state keeps its columns and their types. Give those, "
            "cast where needed; or write the state whole, with its new columns, by epoch.snapshot",
            columns=_columns(df.schema),
            stored_columns=_columns(expected),
        )
    # Each new DataFrame is analysed by Spark's driver.
    return df if df.columns == expected.names else df.select(*map(key_groups.quoted, expected.names))


def _columns(schema: StructType) -> str:
    return ", ".join(f"{each.name} {each.dataType.simpleString()}" for each in schema)[:2000]


def write(
    update: Update,
    files: JobFiles,
    writer: Writer,
    written: Callable[[Planned], Stored],
    local: LocalState | None,
    lasting: Callable[[DataFrame], DataFrame],
) -> Stored:
    """Write an update, and return the changed state.

    `written` makes the writer write the plan. `lasting` drops rows from a new base that no read would return.
    """
    before = update.before
    if local is not None and before is not None:
        # Otherwise the base, which updates of a large state do not read, would be the least recently used copy, and the
        # first to be deleted.
        touch_base(local, before)
    partials = update.merge is not None
    there = [] if before is None else [file.handle for file in before.files]
    if before is None or merges.is_small(there) or deltas.is_due(there, partials=partials):
        return _whole(update, files, writer, written, local, lasting)
    together = deltas.to_merge(there, partials=partials)
    if together and update.merge is not None and needs_the_base(schema_of(before.output), update.merge):
        return _whole(update, files, writer, written, local, lasting)
    # A state written by `snapshot` gets its merge with the first partials.
    after = replace(before, output=replace(before.output, merge=dict(update.merge or {})))
    parts = replace(after, files=[file for file in before.files if file.handle.delta in together])
    size_bytes = sum(handle.size_bytes for handle in there)
    planned = _planned_delta(update, parts, deltas.next_number(there), size_bytes, files, writer, local)
    delta = _written_once(update, planned, writer, written)
    left = (file for file in before.files if file.handle.delta not in together)
    return replace(after, files=[*left, *delta.files])


def _planned_delta(
    update: Update,
    parts: Stored,
    number: int,
    size_bytes: int,
    files: JobFiles,
    writer: Writer,
    local: LocalState | None,
) -> Planned:
    """Plan the delta of an epoch."""
    output = parts.output
    plan = partial(writer.plan_delta, output, number=number, size_bytes=size_bytes)
    if update.merge is not None:
        assert update.changed is not None, "partials are rows"
        if not parts.files:
            return plan(update.changed)
        rows = rows_of_files(update.spark, files, parts, local).unionByName(update.changed)
        return plan(rows, made=_merging(output), merged=True)
    newest = merges.Newest(update.key, schema_of(output).names, number)
    if not parts.files:
        changed, deleted = deltas.rows_of(update.changed, update.deletes)
        if update.changed is None:
            newest = replace(newest, columns=update.key)
        return plan(changed, made=lambda placed: newest.as_delta(placed, deleted))
    # All rows of the deltas, ended ones too: the base may have an older row of their key.
    stored = rows_of_files(update.spark, files, parts, local, deltas.own_columns())
    return plan(newest.rows_of(stored, update.changed, update.deletes), made=newest.as_one_delta, merged=True)


def _whole(
    update: Update,
    files: JobFiles,
    writer: Writer,
    written: Callable[[Planned], Stored],
    local: LocalState | None,
    lasting: Callable[[DataFrame], DataFrame],
) -> Stored:
    """Write a new or small state whole, in one query: the old rows with the changes."""
    before, changed = update.before, update.changed
    there = [] if before is None else [file.handle for file in before.files]
    is_small = before is not None and merges.is_small(there)
    if before is not None:
        output, stored = before.output, _read(update, files, before, local)
    else:
        assert changed is not None, "the first update has rows"
        output_id = f"state.{update.name}"
        output, stored = Output("state", update.name, "", schema_json(output_id, changed), update.key), None
    if update.merge is None:
        # In one shuffle and one sort: leaving out first what deltas have replaced would be another join of all rows.
        newest = merges.Newest(update.key, schema_of(output).names, deltas.next_number(there))
        rows = newest.rows_of(stored, changed, update.deletes)
        # After the merge: an ended row still hides the older row of its key.
        planned = writer.plan_base(output, rows, lambda placed: lasting(newest.as_base(placed)), is_small=is_small)
        return _written_once(update, planned, writer, written)
    assert changed is not None, "partials are rows"
    rows = changed if stored is None else stored.unionByName(changed)
    output = replace(output, merge=dict(update.merge))
    return written(writer.plan_base(output, rows, _merging(output), is_small=is_small))


def _merging(output: Output) -> Callable[[DataFrame], DataFrame]:
    """Return the function that merges placed partials into one row for each key."""
    schema, key, merge = schema_of(output), output.key, output.merge
    return lambda placed: key_groups.without_target(merge_rows(placed, schema, key, merge, key_groups.PLACES))


def _read(update: Update, files: JobFiles, before: Stored, local: LocalState | None) -> DataFrame | None:
    """Read all rows of base and deltas, to be merged with the epoch's; None if there are none."""
    if before.files:
        own = deltas.own_columns() if update.merge is None else ()
        return rows_of_files(update.spark, files, before, local, own)
    # Deleted keys have no columns but those of the key.
    return frame(update.spark, files, before) if update.changed is None else None


def _written_once(update: Update, planned: Planned, writer: Writer, written: Callable[[Planned], Stored]) -> Stored:
    """Write an update."""
    try:
        return written(planned)
    except Exception as error:
        if not merges.is_duplicate_key_error(error):
            raise
        writer.delete_output(planned.output.folder)
        raise _twice(update) from error


def _twice(update: Update) -> InvalidStateError:
    """Make the error for an update with a duplicate key; looks for one such key."""
    from pyspark.sql import functions as F

    rows, _ = deltas.rows_of(update.changed, update.deletes)
    keys = deltas.only_keys(rows, update.key)
    twice = as_text(keys.groupBy(*keys.columns).count().where(F.col("count") > 1)).first()
    # None if the rows differ each time that Spark computes them.
    *values, times = ("unknown",) if twice is None else map(text_of, twice)
    shown = ", ".join(f"{column}={value!r}" for column, value in zip(update.key, values, strict=False))
    return InvalidStateError(
        f"a key is more than once in one update of state.{update.name}, so which of its rows counts would be left to "
        "chance. Give each key one row, and do not delete what you give",
        key=shown[:_SHOWN] or "not found again",
        times=times,
    )
