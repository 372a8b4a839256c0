"""The columns of rows for a table of another format: they are those of the table, or of the one to create."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..checkpoint.documents import staged_tables
from ..checkpoint.documents.staged_tables import FIELD_ID, NO_KEY, Format, TableDescription
from ..checkpoint.errors import InvalidStateError
from .output.updates import columns_of
from .staged_partitions import YEARS, outside_of_years
from .stored import growing_table
from .stored.key_groups import quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructField

_KEYS = ("string", "boolean", "date", "tinyint", "smallint", "int", "bigint", "decimal")
"""Types by which each format finds the same rows."""

_LONGEST_NAME = 63
"""Bytes of a column's name in PostgreSQL, which cuts a longer one."""
_NOT_IN_DELTA = re.compile(r"[ ,;{}()\n\t=]")


def to_create(name: str, table: TableDescription, df: DataFrame | None) -> TableDescription:
    """Give a table that the commit creates the columns of the rows, all of which may be null.

    Raises:
        InvalidStateError: the format has no such columns, or a partition column is missing.
    """
    if df is None:
        raise InvalidStateError(f"{table.name} does not exist yet, so there is no key to delete: give rows")
    columns_of(f"table {name}", df, ())
    fields = _of_new(df.schema.jsonValue())["fields"]
    types = {each["name"]: each["type"] for each in fields}
    problems = [
        f"the column {each!r} is of the type {kind}"
        for each, of in types.items()
        for kind in _kinds(of)
        if kind.partition("(")[0] not in table.new_types
    ]
    for each in table.partition_by:
        if each not in types:
            problems.append(f"the rows have no column {each!r}, by which it is partitioned")
        elif types[each] not in table.new_partition_types:
            problems.append(f"it cannot be partitioned by {each!r}, whose type is {types[each]}")
    problems += [
        f"the name of the column {each!r} has more than {_LONGEST_NAME} bytes"
        for each in types
        if table.format is Format.POSTGRES and len(each.encode()) > _LONGEST_NAME
    ]
    problems += [
        f"the column {each!r} has a character in its name that Delta's readers refuse"
        for each in types
        if table.format is Format.DELTA and _NOT_IN_DELTA.search(each)
    ]
    if len({each.lower() for each in types}) < len(fields):
        problems.append("a column is there twice")
    if problems:
        raise InvalidStateError(
            f"{table.name} cannot be created for these rows: {'; '.join(problems)}. Select and cast columns "
            "that it can have",
            types=", ".join(table.new_types),
        )
    return replace(table, columns={"type": "struct", "fields": fields})


def _of_new(kind: Any) -> Any:
    """Give a type in Spark's JSON in which each part may be null and nothing has metadata."""
    if not isinstance(kind, dict):
        return kind
    fixed: dict[str, Any] = {"nullable": True, "containsNull": True, "valueContainsNull": True, "metadata": {}}
    found = {name: fixed.get(name, _of_new(each)) for name, each in kind.items()}
    return {**found, "fields": [_of_new(each) for each in kind["fields"]]} if "fields" in kind else found


def _kinds(kind: Any) -> Iterator[str]:
    """Yield the names of a type in Spark's JSON and of its parts."""
    if isinstance(kind, str):
        yield kind
        return
    yield str(kind["type"])
    parts = [field["type"] for field in kind.get("fields", ())]
    parts += [kind[part] for part in ("elementType", "keyType", "valueType") if part in kind]
    for part in parts:
        yield from _kinds(part)


def checked(name: str, table: TableDescription, df: DataFrame, key: Sequence[str]) -> DataFrame:
    """Give the rows with the table's columns in the table's order, nulls refused where the table has none.

    Raises:
        InvalidStateError: the columns are not those of the table.
    """
    from pyspark.sql.types import StructType

    columns_of(f"table {name}", df, key)
    wanted, found = StructType.fromJson(table.columns), df.schema
    there, here = (staged_tables.types_of(each.jsonValue()) for each in (wanted, found))
    problems = [f"the column {each!r} is missing" for each in there if each not in here]
    problems += [f"the table has no column {each!r}" for each in here if each not in there]
    problems += [
        f"the column {each.name!r} is {found[each.name].dataType.simpleString()} and not {each.dataType.simpleString()}"
        for each in wanted.fields
        if here.get(each.name, there[each.name]) != there[each.name]
    ]
    if table.partition_by and table.partitions_in_files and growing_table.COLUMN in map(str.lower, there):
        problems.append(f"the column {growing_table.COLUMN!r} has the name of one that Cairn needs while it writes")
    if len(found.names) != len(here):
        problems.append("a column is there twice")
    if problems:
        raise InvalidStateError(
            f"this cannot be written to {table.name}: {'; '.join(problems)}. Select and cast the table's columns, or "
            "change the table before the next epoch",
            table=wanted.simpleString(),
            written=found.simpleString(),
        )
    check_key(table, [wanted[each] for each in key])
    # Spark gives no number to the elements of a list, and readers find all columns of a file by numbers, or none.
    flat = all(isinstance(each["type"], str) for each in table.columns["fields"])
    taken = [(_taken(table, each, key), each) for each in wanted.fields]
    return df.select(*(_numbered(value, each) if flat else value for value, each in taken))


def _numbered(value: Column, column: StructField) -> Column:
    """Give a column that Spark writes with Iceberg's number: its values stay its own whatever it is renamed to."""
    number = column.metadata.get(FIELD_ID)
    return value if number is None else value.alias(column.name, metadata={FIELD_ID: number})


def checked_keys(name: str, table: TableDescription, deletes: DataFrame, key: Sequence[str]) -> DataFrame:
    """Give the key columns of deleted rows, nulls refused.

    Raises:
        InvalidStateError: a key column is missing, or has another type than in the table.
    """
    from pyspark.sql.types import StructType

    columns_of(f"deletes of table {name}", deletes, key)
    wanted = StructType.fromJson(table.columns)
    for each in key:
        found = deletes.schema[each].dataType.simpleString()
        there = wanted[each].dataType.simpleString() if each in wanted.names else "not in the table"
        if found != there:
            raise InvalidStateError(
                f"the key column {each!r} of the deletes is {found}, and in {table.name} {there}. Cast it"
            )
    check_key(table, [wanted[each] for each in key])
    return deletes.select(*(_taken(table, wanted[each], key) for each in key))


def check_key(table: TableDescription, key: Sequence[StructField]) -> None:
    """Check the key columns of an upsert.

    Raises:
        InvalidStateError: the format does not find rows by a column of this type or name.
    """
    for each in key:
        kind = each.metadata.get(NO_KEY, each.dataType.simpleString())
        if kind.partition("(")[0] not in _KEYS:
            raise InvalidStateError(
                f"{table.name} cannot be upserted by {each.name!r}, whose type is {kind}. A key is a text, a whole "
                "number, a decimal, a date or a boolean"
            )


def _taken(table: TableDescription, column: StructField, key: Sequence[str]) -> Column:
    """Give a column that fails the write at a null where none may be, and at a day that no commit takes."""
    from pyspark.sql import functions

    kind, is_key = column.dataType.typeName(), column.name in key
    plain = functions.col(quoted(column.name))
    value = plain if column.nullable and not is_key else _required(table.name, column)
    if table.format is Format.ICEBERG and is_key and kind == "date":
        why = f"the key column {column.name!r} has a day that is not in the years 1 to 9999, by which no row is found"
    elif table.format is Format.POSTGRES and kind in YEARS:
        why = f"the column {column.name!r} has a day or moment before the year 1, which {table.name} does not take"
    elif table.format is Format.DELTA and column.name in table.partition_by and kind == "date":
        why = f"the partition column {column.name!r} has a day that is not in the years 1 to 9999, which readers refuse"
    else:
        return value.alias(column.name)
    failing = functions.raise_error(functions.lit(why)).cast(column.dataType)
    wrong = outside_of_years(column, also_later=table.format is not Format.POSTGRES)
    return functions.when(wrong, failing).otherwise(value).alias(column.name)


def _required(table: str, column: StructField) -> Column:
    """Give a column that fails the write at a null; Spark takes it for one without nulls, and writes it so."""
    from pyspark.sql import functions

    value, kind = functions.col(quoted(column.name)), column.dataType
    text = f"{table} takes no null in the column {column.name!r}, and the rows have one"
    failing = functions.raise_error(functions.lit(text)).cast(kind)
    never = _PLACEHOLDERS.get(kind.simpleString(), 0)
    return functions.coalesce(functions.when(value.isNull(), failing).otherwise(value), functions.lit(never).cast(kind))


_PLACEHOLDERS: Mapping[str, Any] = {
    "string": "",
    "binary": b"",
    "boolean": False,
    "date": datetime.date(1970, 1, 1),
    "timestamp": datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc),
}
"""By type, a value that is never written: it only makes the column one without nulls."""
