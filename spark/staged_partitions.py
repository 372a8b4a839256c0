"""Tells the partitions of staged rows apart, where the files hold the columns: Iceberg's, by its transforms.

A bucket is made of Iceberg's hash: Murmur3 of 32 bits that begins with 0. Spark's `hash` is that function, begins with
42, and goes on with the hash of the argument before.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from functools import reduce
from typing import TYPE_CHECKING, Any

from ..checkpoint.documents.staged_tables import TableDescription, free_name, partitions_of
from .stored import growing_table
from .stored.key_groups import quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructField

_LONGEST = 1024
"""Bytes of a partition's text: Parquet keeps no bounds of values that are longer than 2,048."""
_BITS = {"integer": 32, "long": 64}
YEARS = {
    "date": (1, 9999),
    "timestamp_ntz": (1, 9999),
    "timestamp": (-62_135_596_800_000_000, 253_402_300_799_999_999),
}
"""By type, the first and last years, or microseconds since 1970, of Python's calendar."""
_MICROSECONDS = 86_400_000_000, 3_600_000_000
"""Of a day and of an hour."""
_HASHED_TO_0 = -1_693_959_553
"""Spark's hash of this number is 0: as a first argument it has the others hashed as Iceberg does."""
_WORD = 0xFFFFFFFF
_FIRST, _SECOND, _FIVE, _PLUS = 0x85EBCA6B, 0xC2B2AE35, 5, 0xE6546B64
"""Murmur3's."""


def told_apart(df: DataFrame, table: TableDescription) -> DataFrame:
    """Bring the rows of each partition together, and add its name."""
    partitions = partitions_of(table)
    df = df.select(
        *(_taken(each, [unit for name, unit in partitions if name == each.name]) for each in df.schema.fields)
    )
    columns = [quoted(each) for each in df.columns]
    df, values = partition_values(df, partitions)
    return growing_table.told_apart(df.repartition(*values), values).select(*columns, growing_table.COLUMN)


def _taken(column: StructField, transforms: Sequence[str]) -> Column:
    """Give a column that fails the write at a value whose partition the commit cannot find, or the format not hold."""
    from pyspark.sql import functions as f

    value, kind = f.col(quoted(column.name)), column.dataType.typeName()
    wrong, why = f.lit(False), ""
    if transforms and kind in ("string", "binary"):
        wrong, why = f.octet_length(value) > _LONGEST, f"has more than {_LONGEST} bytes"
    if transforms and kind in YEARS:
        wrong, why = outside_of_years(column), "is not in the years 1 to 9999"
    widths = [_number(each) for each in transforms if each.startswith("truncate")]
    if widths and kind in _BITS:
        lowest = max(-(2 ** (_BITS[kind] - 1) // each * each) for each in widths)
        wrong, why = value < lowest, f"is less than {lowest}, the least one that can be truncated"
    return without(column, wrong, why) if why else value


def outside_of_years(column: StructField, *, also_later: bool = True) -> Column:
    """Tell whether a day or moment is before Python's calendar, which has the years 1 to 9999, or after it."""
    from pyspark.sql import functions as f

    value, kind = f.col(quoted(column.name)), column.dataType.typeName()
    number = f.unix_micros(value) if kind == "timestamp" else f.year(value)  # in UTC, whatever the session's time zone
    first, last = YEARS[kind]
    return (number < first) | (number > last) if also_later else number < first


def without(column: StructField, wrong: Column, why: str) -> Column:
    """Give a partition column that fails the write at a wrong value."""
    from pyspark.sql import functions as f

    failing = f.raise_error(f.lit(f"a value of the partition column {column.name!r} {why}"))
    value = f.col(quoted(column.name))
    return f.when(wrong, failing.cast(column.dataType)).otherwise(value).alias(column.name, metadata=column.metadata)


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
