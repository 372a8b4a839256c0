"""Spark tells Iceberg's partitions apart by the values that the format has for them."""

from __future__ import annotations

import datetime
from decimal import Decimal
from itertools import product
from typing import TYPE_CHECKING, Any

import pytest
from pyiceberg.transforms import BucketTransform, TruncateTransform
from pyiceberg.types import (
    BinaryType,
    DateType,
    DecimalType,
    IntegerType,
    LongType,
    StringType,
    TimestampType,
    TimestamptzType,
)

from airflow_cairn.checkpoint.documents.staged_tables import TableDescription
from airflow_cairn.spark.staged_columns import partition_values, told_apart
from tests.real.spark.pipeline import in_zone
from tests.support.covering import covering

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

WHOLE = (0, 1, -1, 34, -34, 2**31 - 1, 648 - 2**31)
MOMENTS = [datetime.datetime.fromisoformat(each) for each in ("0001-01-01", "1969-12-31T23:59:59.999999", "2026-10-04")]
TEXTS = [*("abcdefghi"[:each] for each in range(10)), "ümläute", "€", "😀", "x😀y", "a" * 1023, "日本語テキスト"]
DECIMALS = ((1, 0), (4, 4), (9, 2), (18, 3), (19, 0), (19, 19), (28, 10), (37, 5), (38, 0), (38, 10), (38, 38))


def decimals(digits: int, scale: int) -> list[Decimal]:
    """Give those at which the number of bytes changes, and the first and last ones."""
    most = 10**digits - 1
    edges = {sign * (2**bits + more) for sign in (1, -1) for bits in range(7, 128, 8) for more in (-1, 0, 1)}
    found = sorted({0, 1, -1, most, -most, most // 3} | {each for each in edges if -most <= each <= most})
    return [Decimal((each < 0, tuple(map(int, str(abs(each)))), -scale)) for each in found]


CASES: dict[str, tuple[Any, str, list[Any]]] = {
    "int": (IntegerType(), "int", [*WHOLE]),
    "long": (LongType(), "bigint", [*WHOLE, 2**31, 2**63 - 1, 808 - 2**63, 1 << 40]),
    "date": (DateType(), "date", [each.date() for each in MOMENTS]),
    "moment": (TimestamptzType(), "timestamp", [each.replace(tzinfo=datetime.UTC) for each in MOMENTS[1:]]),
    "local moment": (TimestampType(), "timestamp_ntz", MOMENTS),
    "text": (StringType(), "string", TEXTS),
    "bytes": (
        BinaryType(),
        "binary",
        [*(each.encode() for each in TEXTS), b"\0", b"\xff\xfe\0\0\0", bytes(range(256))],
    ),
    **{
        f"decimal({digits},{scale})": (
            DecimalType(digits, scale),
            f"decimal({digits},{scale})",
            decimals(digits, scale),
        )
        for digits, scale in DECIMALS
    },
}


@pytest.mark.parametrize(("kind", "ansi"), covering(product(CASES, ("true", "false")), iter))
def test_values_of_partitions_are_those_of_the_format(spark: SparkSession, kind: str, ansi: str) -> None:
    iceberg, name, values = CASES[kind]
    transforms: list[Any] = [BucketTransform(16), BucketTransform(2**31 - 1)]
    if kind not in ("bytes", "date", "moment", "local moment") and not kind.startswith("decimal(38"):
        transforms += [TruncateTransform(1), TruncateTransform(3), TruncateTransform(1000)]
    with in_zone(spark, "Australia/Adelaide"):
        spark.conf.set("spark.sql.ansi.enabled", ansi)
        try:
            rows = spark.createDataFrame([(each,) for each in (*values, None)], f"`a b` {name}")
            rows, texts = partition_values(rows, [("a b", str(each)) for each in transforms])
            found = rows.select(*texts).collect()
        finally:
            spark.conf.unset("spark.sql.ansi.enabled")
    for value, row in zip((*values, None), found, strict=True):
        expected = [each.transform(iceberg)(value) for each in transforms]
        shown = [None if text is None else type(each)(text) for each, text in zip(expected, row, strict=True)]
        assert shown == expected, value


def test_values_whose_partition_no_commit_can_know(spark: SparkSession) -> None:
    cases = {
        "truncate[1000]": ("int", "-2147483001", "is less than -2147483000, the least one that can be truncated"),
        "truncate[3]": ("bigint", "-9223372036854775807L", "is less than -9223372036854775806"),
        "bucket[16]": ("binary", "repeat('ab', 513)", "has more than 1024 bytes"),
    }
    for transform, (kind, value, why) in cases.items():
        table = TableDescription("t", "1", "", {}, ("a",), partition_units=(transform,))
        with pytest.raises(Exception, match=f"a value of the partition column 'a' {why}"):
            told_apart(spark.sql(f"SELECT CAST({value} AS {kind}) AS a"), table).collect()
