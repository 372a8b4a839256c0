"""The columns of rows for a table of another format: those of the table, or of the one to create.

Where the files hold the partition columns, as Iceberg's do by its transforms, a further column tells partitions apart.
A bucket is made of Iceberg's hash: Murmur3 of 32 bits that begins with 0. Spark's `hash` is that function, begins with
42, and goes on with the hash of the argument before.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from functools import reduce
from typing import TYPE_CHECKING, Any

from ..checkpoint.documents import staged_tables
from ..checkpoint.documents.staged_tables import FIELD_ID, NO_KEY, Format, TableDescription, free_name, partitions_of
from ..checkpoint.errors import InvalidStateError
from .output.updates import columns_of
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
_LONGEST_PARTITION = 1024
"""Bytes of a partition's text: Parquet keeps no bounds of values that are longer than 2,048."""
_BITS = {"integer": 32, "long": 64}
_YEARS = {
    "date": (1, 9999),
    "timestamp_ntz": (1, 9999),
    "timestamp": (-62_135_596_800_000_000, 253_402_300_799_999_999),
}
"""By type, the first and last years, or microseconds since 1970, of Python's calendar."""
_MICROSECONDS = 86_400_000_000, 3_600_000_000
"""Microseconds of a day and of an hour."""
_HASHED_TO_0 = -1_693_959_553
"""Spark's hash of this number is 0: as a first argument it has the others hashed as Iceberg does."""
_WORD = 0xFFFFFFFF
_FIRST, _SECOND, _FIVE, _PLUS = 0x85EBCA6B, 0xC2B2AE35, 5, 0xE6546B64
"""Murmur3's."""


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
    from pyspark.sql import functions as f

    kind, is_key = column.dataType.typeName(), column.name in key
    plain = f.col(quoted(column.name))
    value = plain if column.nullable and not is_key else _required(table.name, column)
    if table.format is Format.ICEBERG and is_key and kind == "date":
        why = f"the key column {column.name!r} has a day that is not in the years 1 to 9999, by which no row is found"
    elif table.format is Format.POSTGRES and kind in _YEARS:
        why = f"the column {column.name!r} has a day or moment before the year 1, which {table.name} does not take"
    elif table.format is Format.DELTA and column.name in table.partition_by and kind == "date":
        why = f"the partition column {column.name!r} has a day that is not in the years 1 to 9999, which readers refuse"
    else:
        return value.alias(column.name)
    wrong = _outside_of_years(column, also_later=table.format is not Format.POSTGRES)
    return _unless(wrong, why, column, value).alias(column.name)


def _required(table: str, column: StructField) -> Column:
    """Give a column that fails the write at a null; Spark takes it for one without nulls, and writes it so."""
    from pyspark.sql import functions as f

    value, kind = f.col(quoted(column.name)), column.dataType
    text = f"{table} takes no null in the column {column.name!r}, and the rows have one"
    never = _PLACEHOLDERS.get(kind.simpleString(), 0)
    return f.coalesce(_unless(value.isNull(), text, column, value), f.lit(never).cast(kind))


def _unless(wrong: Column, why: str, column: StructField, value: Column) -> Column:
    """Give a column's value, and fail the write where that is wrong."""
    from pyspark.sql import functions as f

    return f.when(wrong, f.raise_error(f.lit(why)).cast(column.dataType)).otherwise(value)


_PLACEHOLDERS: Mapping[str, Any] = {
    "string": "",
    "binary": b"",
    "boolean": False,
    "date": datetime.date(1970, 1, 1),
    "timestamp": datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc),
}
"""By type, a value that is never written: it only makes the column one without nulls."""


def told_apart(df: DataFrame, table: TableDescription) -> DataFrame:
    """Bring the rows of each partition together, and add its name."""
    partitions = partitions_of(table)
    df = df.select(
        *(_findable(each, [unit for name, unit in partitions if name == each.name]) for each in df.schema.fields)
    )
    columns = [quoted(each) for each in df.columns]
    df, values = partition_values(df, partitions)
    return growing_table.told_apart(df.repartition(*values), values).select(*columns, growing_table.COLUMN)


def _findable(column: StructField, transforms: Sequence[str]) -> Column:
    """Give a column that fails the write at a value whose partition the commit cannot find, or the format not hold."""
    from pyspark.sql import functions as f

    value, kind = f.col(quoted(column.name)), column.dataType.typeName()
    wrong, why = f.lit(False), ""
    if transforms and kind in ("string", "binary"):
        wrong, why = f.octet_length(value) > _LONGEST_PARTITION, f"has more than {_LONGEST_PARTITION} bytes"
    if transforms and kind in _YEARS:
        wrong, why = _outside_of_years(column), "is not in the years 1 to 9999"
    widths = [_number(each) for each in transforms if each.startswith("truncate")]
    if widths and kind in _BITS:
        lowest = max(-(2 ** (_BITS[kind] - 1) // each * each) for each in widths)
        wrong, why = value < lowest, f"is less than {lowest}, the least one that can be truncated"
    return without(column, wrong, why) if why else value


def _outside_of_years(column: StructField, *, also_later: bool = True) -> Column:
    """Tell whether a day or moment is before Python's calendar, which has the years 1 to 9999, or after it."""
    from pyspark.sql import functions as f

    value, kind = f.col(quoted(column.name)), column.dataType.typeName()
    number = f.unix_micros(value) if kind == "timestamp" else f.year(value)  # in UTC, whatever the session's time zone
    first, last = _YEARS[kind]
    return (number < first) | (number > last) if also_later else number < first


def without(column: StructField, wrong: Column, why: str) -> Column:
    """Give a partition column that fails the write at a wrong value."""
    from pyspark.sql import functions as f

    text = f"a value of the partition column {column.name!r} {why}"
    return _unless(wrong, text, column, f.col(quoted(column.name))).alias(column.name, metadata=column.metadata)


def partition_values(df: DataFrame, partitions: Sequence[tuple[str, str]]) -> tuple[DataFrame, list[Column]]:
    """Give the rows with more columns, and as texts what tells partitions of these columns and transforms apart."""
    from pyspark.sql import functions as f

    found = []
    for name, transform in partitions:
        column, text = df.schema[name], f.col(quoted(name)).cast("string")
        if transform.startswith("bucket"):
            df, hashed = _with_hash(df, column)
            text = f.when(text.isNotNull(), (hashed.bitwiseAND(0x7FFFFFFF) % _number(transform)).cast("string"))
        elif transform.startswith("truncate"):
            text = _truncated(column, _number(transform))
        elif transform:
            text = _unit(column, transform)
        found.append(text)
    return df, found


def _number(transform: str) -> int:
    return int(transform.partition("[")[2].rstrip("]"))


def _truncated(column: StructField, width: int) -> Column:
    from pyspark.sql import functions as f

    kind: Any = column.dataType
    value = f.col(quoted(column.name))
    if kind.typeName() == "string":
        return value.substr(1, width)
    if kind.typeName() == "decimal":
        # The remainder has the type of the value, and the difference one digit more.
        value, by = value.cast(f"decimal(37,{kind.scale})"), f.expr(_decimal(width, kind.scale, 37))
    else:
        value, by = value.cast("long"), f.lit(width)
    return (value - f.pmod(value, by)).cast("string")


def _with_hash(df: DataFrame, column: StructField) -> tuple[DataFrame, Column]:
    """Add Iceberg's hash, step by step as a column of its own: one expression would hold each step twice."""
    from pyspark.sql import functions as f

    of_column: Any = column.dataType
    name, kind = quoted(column.name), of_column.typeName()
    h, value = (free_name(each, df.columns) for each in ("cairn_hash", "cairn_bytes"))
    if kind not in ("string", "binary", "decimal"):
        long = {"integer": f"bigint({name})", "date": f"bigint(unix_date({name}))"}.get(kind, name)
        return df.withColumn(h, f.expr(f"hash({_HASHED_TO_0}, {long})")), f.col(h)

    def shifted(*bits: int) -> str:
        return " ^ ".join((h, *(f"shiftright({h}, {each})" for each in bits)))

    def times(factor: int) -> str:  # by halves of the factor: no product has more than 48 bits
        return f"({h} * {factor & 0xFFFF} + ({h} * {factor >> 16} & {0xFFFF}) * {0x10000}) & {_WORD}"

    def divided(factor: int) -> str:
        return times(pow(factor, -1, 2**32))

    # Spark hashes whole words as Iceberg does, and the bytes of a last one in another way. So Spark hashes the bytes
    # with zeros up to a whole word; what it did after it had taken in that word is undone, and done as for the bytes.
    size = f"octet_length({value})"
    whole = f"({size} - {size} % 4 + 4)"
    steps = (
        f"hash({_HASHED_TO_0}, concat({value}, substring(X'00000000', 1, {whole} - {size}))) & {_WORD}",
        *(shifted(16), divided(_SECOND), shifted(13, 26), divided(_FIRST), shifted(16)),
        *(
            f"(({h} ^ {whole}) - {_PLUS}) & {_WORD}",
            divided(_FIVE),
            f"shiftright({h}, 13) | (shiftleft({h}, 19) & {_WORD})",
        ),
        f"{h} ^ {size}",
        *(shifted(16), times(_FIRST), shifted(13), times(_SECOND), shifted(16)),
    )
    df = df.withColumn(value, f.expr(_unscaled(name, of_column.scale) if kind == "decimal" else f"binary({name})"))
    return reduce(lambda rows, step: rows.withColumn(h, f.expr(step)), steps, df), f.col(h)


def _unscaled(decimal: str, scale: int) -> str:
    """Give the fewest bytes that hold a decimal's number without its scale: of 64, 32 and 32 bits, in hex."""
    # A remainder has the type of the first number, so that one is to have room for the second one.
    decimal, two_words, word, one = (
        f"CAST({decimal} AS DECIMAL(38,{scale}))",
        *(_decimal(each, scale) for each in (2**64, 2**32, 1)),
    )
    # A comparison with 0 would round.
    high = f"({decimal} div {two_words}) - int(signum({decimal} % {two_words}) < 0)"
    middle, low = f"pmod({decimal}, {two_words}) div {word}", f"pmod({decimal}, {word}) div {one}"
    digits = f"concat(lpad(hex({high}), 16, '0'), lpad(hex({middle}), 8, '0'), lpad(hex({low}), 8, '0'))"
    return f"unhex(regexp_replace({digits}, '^((00)+(?=[0-7].)|(FF)+(?=[89A-F].))', ''))"


def _decimal(number: int, scale: int, digits: int = 38) -> str:
    return f"CAST('{Decimal(number).scaleb(-scale)}' AS DECIMAL({digits},{scale}))"


def _unit(column: StructField, unit: str) -> Column:
    """Give the year, month, day or hour of a moment as a text: in UTC, whatever the session's time zone."""
    from pyspark.sql import functions as f

    value = f.col(quoted(column.name))
    if column.dataType.typeName() == "timestamp":
        # First down to a whole day or hour: a division of the moment itself gives a float, which may be the next one's.
        days, hours = (f.unix_micros(value) - f.pmod(f.unix_micros(value), f.lit(each)) for each in _MICROSECONDS)
        day, hour = f.date_from_unix_date(f.round(days / _MICROSECONDS[0]).cast("int")), hours.cast("string")
    else:
        day, hour = value.cast("date"), f.concat(value.cast("date").cast("string"), f.lit(" "), f.hour(value))
    return hour if unit == "hour" else (day if unit == "day" else f.trunc(day, unit)).cast("string")
