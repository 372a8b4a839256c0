"""Values of each Spark type, read from a file: dates of every year, texts of every byte, an instant in one way."""

from datetime import date, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from airflow_cairn.checkpoint.errors import InvalidConfigError
from airflow_cairn.checkpoint.rows.values import Column, readable, same, shown

DAYS = {"type": "array", "elementType": "date", "containsNull": True}
BY_DAY = {"type": "map", "keyType": "date", "valueType": "string", "valueContainsNull": True}
PLACE = {
    "type": "struct",
    "fields": [
        {"name": "at", "type": "timestamp", "nullable": True, "metadata": {}},
        {"name": "text", "type": "string", "nullable": True, "metadata": {}},
    ],
}
MICROS = 253402300799999999
"""The last one of the year 9999."""


def values(array: Any, kind: Any, **footer: str) -> list[Any]:
    """Read an array as one out of a file whose footer says so."""
    said = {f"org.apache.spark.{name}".encode(): text.encode() for name, text in footer.items()}
    return Column(kind, said, int96="legacyINT96" in footer).values(array)


@pytest.mark.parametrize(
    ("kind", "found", "expected"),
    [
        ("date", pa.array([-719163, -719162, 2932896, 2932897, None], pa.int32()).cast(pa.date32()), [
            "0000-12-31", "0001-01-01", "9999-12-31", "+10000-01-01", None]),
        ("date", pa.array([-(2**31), 2**31 - 1], pa.int32()).cast(pa.date32()), ["-5877641-06-23", "+5881580-07-11"]),
        ("timestamp", pa.array([MICROS, MICROS + 1, 0], pa.timestamp("us", "UTC")), [
            "9999-12-31T23:59:59.999999+00:00", "+10000-01-01T00:00:00+00:00", "1970-01-01T00:00:00+00:00"]),
        ("timestamp", pa.array([MICROS], pa.timestamp("us")), ["9999-12-31T23:59:59.999999+00:00"]),
        ("timestamp", pa.array([1], pa.timestamp("ms", "UTC")), ["1970-01-01T00:00:00.001000+00:00"]),
        ("timestamp", pa.array([-(2**63), 2**63 - 1], pa.timestamp("us", "UTC")), [
            "-290308-12-21T19:59:05.224192+00:00", "+294247-01-10T04:00:54.775807+00:00"]),
        ("timestamp_ntz", pa.array([MICROS, -1], pa.timestamp("us")), [
            "9999-12-31T23:59:59.999999", "1969-12-31T23:59:59.999999"]),
        ("string", pa.array([b"", b"x", b"\xff", b"\\xff", b"\xef\xbf\xbd"]).cast(pa.string(), safe=False), [
            "", "x", "\udcff", "\\xff", "\ufffd"]),
        ("varchar(3)", pa.array(["x"]), ["x"]),
        ("binary", pa.array([b"\xff"]), ["/w=="]),
        ("long", pa.array([1], pa.int32()), [1]),
        ("double", pa.array([1.5, float("nan"), None], pa.float32()), [1.5, "nan", None]),
        ("decimal(12,4)", pa.array([Decimal("1.50"), Decimal("0.00")]), ["1.5000", "0.0000"]),
        ("boolean", pa.array([True, None]), [True, None]),
        ("interval year to month", pa.array([14], pa.int32()), [14]),
        ("time(6)", pa.array([86399999999], pa.time64("us")), ["23:59:59.999999"]),
        (DAYS, pa.array([[2932897, None], []], pa.list_(pa.int32())).cast(pa.list_(pa.date32())), [
            ["+10000-01-01", None], []]),
        (BY_DAY, pa.array([[(1, "b"), (0, None)]], pa.map_(pa.date32(), pa.string())), [
            [["1970-01-01", None], ["1970-01-02", "b"]]]),
        (PLACE, pa.array([{"at": MICROS + 1, "text": "x"}, None], pa.struct(
            [("at", pa.timestamp("us")), ("text", pa.string())])), [
            {"at": "+10000-01-01T00:00:00+00:00", "text": "x"}, None]),
    ],
)  # fmt: skip
def test_values_are_shown_as_spark_means_them(kind: Any, found: Any, expected: list[Any]) -> None:  # semantics W12
    assert [shown(each, kind) for each in values(found, kind)] == expected


def test_a_text_that_is_no_utf8_is_told_from_all_others_and_can_be_printed() -> None:
    assert readable({"a": ["\udcff", {"b": "Zürich \\xff"}], "n": 1}) == {"a": ["\\xff", {"b": "Zürich \\xff"}], "n": 1}


def test_what_spark_holds_equal_is_the_same() -> None:
    assert same([0.0, {"b": float("nan"), "a": 1}]) == same([-0.0, {"a": 1, "b": float("nan")}])
    assert same([b"\xff"]) != same([b"\xfe"])


# The days between both calendars grow in years that only the Julian has as leap years.
@pytest.mark.parametrize(
    ("day", "lag"),
    [
        ("0001-01-01", -2),
        ("0100-02-28", -2),
        ("0100-03-02", -1),
        ("1000-06-01", 6),
        ("1500-02-03", 9),
        ("1582-10-04", 10),
    ],
)
def test_days_of_the_old_calendar_keep_their_date(day: str, lag: int) -> None:  # semantics W12
    days = (date.fromisoformat(day) - date(1970, 1, 1)).days
    for kind, scale, found in (("date", 1, pa.int32()), ("timestamp", 86_400_000_000, pa.int64())):
        type_ = pa.date32() if kind == "date" else pa.timestamp("us", "UTC")
        stored = pa.array([(days + lag) * scale + (kind == "timestamp")], found).cast(type_)
        [read] = values(stored, kind, legacyDateTime="", timeZone="UTC")
        assert shown(read, kind).startswith(day)
        [unmarked] = values(stored, kind)
        assert not shown(unmarked, kind).startswith(day)
    assert shown(-141427, "date") == "1582-10-15"


def test_a_moment_that_only_spark_can_tell_is_refused_and_no_other() -> None:  # semantics W12
    year_1900 = -2208988800000000
    marks = {"legacyDateTime": "", "legacyINT96": "", "timeZone": "America/Los_Angeles"}
    new, old = (pa.array([each], pa.timestamp("us")) for each in (year_1900, year_1900 - 1))
    assert values(new, "timestamp", **marks) == [year_1900]
    assert values(old, "timestamp_ntz", **marks) == [year_1900 - 1]
    with pytest.raises(
        InvalidConfigError, match=r"before 1900.*airflow_cairn\.spark\.state.*zone=`America/Los_Angeles`"
    ):
        values(old, "timestamp", **marks)
    assert values(old, "timestamp", timeZone="America/Los_Angeles") == [year_1900 - 1]


def test_each_mark_counts_for_its_own_values() -> None:  # semantics W12
    day = timedelta(days=1) // timedelta(microseconds=1)
    moments, days = pa.array([-200_000 * day], pa.timestamp("us")), pa.array([-200_000], pa.int32()).cast(pa.date32())
    int96 = {"legacyINT96": "", "timeZone": "UTC"}
    assert values(moments, "timestamp", **int96) != [-200_000 * day]
    assert values(days, "date", **int96) == [-200_000]
