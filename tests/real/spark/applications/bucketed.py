"""Appends rows to an Iceberg table of buckets and truncated values, or overwrites their partitions.

Arguments: the method, the first id and the one after the last.
"""

import sys

from airflow_cairn.spark import Epoch

method, first, last = sys.argv[1:]

with Epoch.current() as epoch:
    some = epoch.spark.range(int(first), int(last)).selectExpr("id", "IF(id % 7 = 0, NULL, id) AS x")
    rows = some.selectExpr(
        "id",
        "substr('äb😀d', int(x % 4) + 1, 2) AS name",
        "int(-x) AS n",
        "CAST(x * 1234567890123456789.01 - 5e18 AS DECIMAL(38, 2)) AS price",
        "unhex(hex(x * 12345)) AS raw",
        "timestamp_micros(x * 86400000000 * 9 - 1) AS at",
        "date_from_unix_date(int(x - 30)) AS day",
    )
    getattr(epoch.table("bucketed"), method)(rows)
