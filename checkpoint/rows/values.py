"""Values from Parquet files, as the type that the stored schema names, whatever type a file has (semantics W12).

Python has no date outside of the years 1 to 9999, no nanoseconds, and no text that is not UTF-8, and Spark has all of
them. So days and moments are read and compared as numbers, texts as bytes; they become text only to be shown.
Spark writes a `timestamp` as INT96 or as INT64, by settings of its session, and a table's older files may have narrower
types: all become one type here. Files of the old calendar, which Spark marks in their footers, are read by that mark.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from typing import Any

from ..errors import InvalidConfigError

Kind = Any
"""A type, as the JSON of Spark's schema has it."""

_DAY = 86_400_000_000
"""Microseconds."""
_EPOCH = date(1970, 1, 1).toordinal()
_CYCLE = 146_097
"""Days of 400 years, after which Python's calendar repeats."""
_GREGORIAN = date(1582, 10, 15).toordinal() - _EPOCH
_ZONES_AGREE = (date(1900, 1, 1).toordinal() - _EPOCH) * _DAY
"""Before this moment Java's old calendar and its new one have different offsets of time zones."""
_JULIAN = -719_164
"""The first day of the year 1 of the Julian calendar, counted from 1970."""
_UTC = ("UTC", "Etc/UTC", "GMT", "Z")

ARROW = {
    "boolean": "bool_",
    "byte": "int8",
    "short": "int16",
    "integer": "int32",
    "long": "int64",
    "float": "float32",
    "double": "float64",
    "binary": "binary",
    "date": "date32",
}
"""Arrow's type by Spark's; types that need more than a name are in `_types`."""


class Column:
    """Reads the values of one column of one file.

    Args:
        kind: the type by the stored schema.
        footer: the metadata of the file's footer.
        int96: whether the file has its timestamps as INT96.
    """

    def __init__(self, kind: Kind, footer: Mapping[bytes, bytes], *, int96: bool) -> None:
        self._kind = kind
        self._old_days = b"org.apache.spark.legacyDateTime" in footer
        self._old_moments = b"org.apache.spark.legacyINT96" in footer if int96 else self._old_days
        self._zone = footer.get(b"org.apache.spark.timeZone", b"an unknown zone").decode(errors="replace")

    def values(self, found: Any) -> list[Any]:
        """Give the values of an Arrow array, for `same` and `shown`."""
        known, raw = _types(self._kind, found.type)
        values: list[Any] = found.cast(known).cast(raw).to_pylist()
        if self._old_days or self._old_moments:
            return [_mapped(value, self._kind, self._rebased) for value in values]
        return values

    def _rebased(self, value: Any, kind: Kind) -> Any:
        """Give the day or moment whose date in the new calendar is that of `value` in the old one."""
        if kind == "date" and self._old_days:
            return _rebased_day(value)
        if kind != "timestamp" or not self._old_moments or value >= _ZONES_AGREE:
            return value
        if self._zone not in _UTC:
            raise InvalidConfigError(
                "a file of this state has a timestamp before 1900 in Java's old calendar, because it was written with "
                "spark.sql.parquet.datetimeRebaseModeInWrite=LEGACY or int96RebaseModeInWrite=LEGACY. Only Spark knows "
                "which moment that is in the file's zone: read it with airflow_cairn.spark.state or .table",
                zone=self._zone,
            )
        day, time = divmod(value, _DAY)
        return _rebased_day(day) * _DAY + time


def _types(kind: Kind, found: Any) -> tuple[Any, Any]:
    """Give Arrow's type for a type of Spark, and a type for the same values that Python can hold without loss."""
    import pyarrow as pa

    if isinstance(kind, Mapping):
        if kind["type"] == "array" and pa.types.is_list(found):
            pairs = [_types(kind["elementType"], found.value_type)]
            make: Callable[..., Any] = pa.list_
        elif kind["type"] == "map" and pa.types.is_map(found):
            pairs = [_types(kind["keyType"], found.key_type), _types(kind["valueType"], found.item_type)]
            make = pa.map_
        elif kind["type"] == "struct" and pa.types.is_struct(found):
            kinds = {each["name"]: each["type"] for each in kind["fields"]}
            pairs = [_types(kinds[field.name], field.type) for field in found]
            names = [field.name for field in found]
            make = lambda *inner: pa.struct(list(zip(names, inner, strict=True)))  # noqa: E731
        else:
            raise ValueError(f"the file has {found} where the schema has {kind['type']}")
        return make(*(known for known, _ in pairs)), make(*(raw for _, raw in pairs))
    if kind in ARROW:
        known = getattr(pa, ARROW[kind])()
        return known, pa.int32() if kind == "date" else known
    if kind == "timestamp":
        return pa.timestamp("us", "UTC"), pa.int64()
    if kind == "timestamp_ntz":
        return pa.timestamp("us"), pa.int64()
    if pa.types.is_string(found):
        return found, pa.binary()
    if pa.types.is_time(found):
        return pa.time64("us"), pa.int64()
    if kind.startswith("decimal(") and pa.types.is_decimal(found):
        digits, scale = kind[len("decimal(") : -1].split(",")
        known = pa.decimal128(int(digits), int(scale))
        return known, known
    return found, found


def _mapped(value: Any, kind: Kind, leaf: Callable[[Any, Kind], Any]) -> Any:
    """Give a value with the result of `leaf` in place of each value that is not a struct, map or array."""
    if value is None:
        return None
    if isinstance(kind, Mapping) and isinstance(value, (list, dict)):
        if kind["type"] == "struct":
            return {each["name"]: _mapped(value[each["name"]], each["type"], leaf) for each in kind["fields"]}
        if kind["type"] == "map":
            key, item = kind["keyType"], kind["valueType"]
            pairs = ([_mapped(one, key, leaf), _mapped(other, item, leaf)] for one, other in value)
            return sorted(pairs, key=lambda pair: str(pair[0]))  # the entries of a map are in no order
        return [_mapped(each, kind["elementType"], leaf) for each in value]
    return leaf(value, kind)


def same(value: Any) -> Any:
    """Give a hashable value that is equal for values that Spark holds equal."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0  # so that -0.0 is 0.0
    if isinstance(value, dict):
        return tuple(sorted((name, same(inner)) for name, inner in value.items()))
    if isinstance(value, list | tuple):
        return tuple(map(same, value))
    return value


def shown(value: Any, kind: Kind) -> Any:
    """Give a value for JSON: what JSON cannot express becomes text, and different values stay different.

    In a text that is not UTF-8 a wrong byte becomes half of a surrogate pair, which `readable` turns into plain text.
    """
    return _mapped(value, kind, _shown)


def _shown(value: Any, kind: Kind) -> Any:
    if kind == "date":
        return _day(value)
    if kind in ("timestamp", "timestamp_ntz"):
        day, time = divmod(value, _DAY)
        return f"{_day(day)}T{_clock(time)}{'+00:00' if kind == 'timestamp' else ''}"
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        return _clock(value) if str(kind).startswith("time(") else value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, bytes):
        is_text = str(kind).startswith(("string", "char(", "varchar("))
        return value.decode(errors="surrogateescape") if is_text else base64.b64encode(value).decode()
    if isinstance(value, Mapping):  # a variant
        return {name: _shown(inner, "binary") for name, inner in value.items()}
    return f"{value:f}" if str(kind).startswith("decimal") else str(value)


def readable(value: Any) -> Any:
    """Give the text of `shown` for people and JSON: a byte that is not UTF-8 is written with a backslash."""
    if isinstance(value, str):
        return value.encode(errors="surrogateescape").decode(errors="backslashreplace")
    if isinstance(value, dict):
        return {name: readable(inner) for name, inner in value.items()}
    if isinstance(value, Sequence):
        return [readable(inner) for inner in value]
    return value


def _day(days: int) -> str:
    """Write a day, counted from 1970, as Spark does: years of more than four digits have a sign."""
    cycles, rest = divmod(days + _EPOCH - 1, _CYCLE)
    found = date.fromordinal(rest + 1)
    year = found.year + 400 * cycles
    sign = "-" if year < 0 else "+" if year > 9999 else ""
    return f"{sign}{abs(year):04}-{found.month:02}-{found.day:02}"


def _clock(micros: int) -> str:
    seconds, fraction = divmod(micros, 1_000_000)
    minutes, second = divmod(seconds, 60)
    text = f"{minutes // 60:02}:{minutes % 60:02}:{second:02}"
    return f"{text}.{fraction:06}" if fraction else text


def _rebased_day(days: int) -> int:
    """Give the day whose Gregorian date is the Julian date of `days`; days after the reform stay as they are."""
    if days >= _GREGORIAN:
        return days
    cycles, rest = divmod(days - _JULIAN, 1461)
    year = min(rest // 365, 3)
    # First a year of the same length, then the year at the same place in Python's 400 years.
    like = date.fromordinal(date(2001 + year, 1, 1).toordinal() + rest - 365 * year)
    of_cycle, place = divmod(4 * cycles + year, 400)
    first = date(place + 1, like.month, 1).toordinal() + of_cycle * _CYCLE
    return first + like.day - 1 - _EPOCH
