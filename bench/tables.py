"""Measures an epoch's append to an Iceberg, a Delta and a PostgreSQL table, against the ways without Cairn.

Run it as `.venv/bin/python -m bench.tables [--json] [--rounds N] [--rows N] [--commits N]`. It starts an S3 server and
a PostgreSQL on this machine, and runs in an environment with the Spark that both formats have jars for. Files are on
S3: Iceberg's own writer uses `S3FileIO`, as its documentation advises, all else s3a with the magic committer. Iceberg's
catalog is a database, for Spark and for pyiceberg alike. Both formats' tables have a history of 10 commits. In each
round all ways append the same rows in turn; the first three rounds warm up.

- `iceberg_ratio`, `delta_ratio`: the seconds of a stage's block with `epoch.table(…).append`, of completing the
  checkpoint and of the table's commit, to those of an append by the format's own Spark writer.
- `iceberg_plain_ratio`, `delta_plain_ratio`: the same to an append of plain Parquet.
- `iceberg_growth`, `delta_growth`: the same with 1,000 commits of history to that with 10. No snapshot has expired, no
  manifest was merged; Delta's log has a checkpoint 50 commits ago.
- `postgres_ratio`: the seconds of the commit of staged Parquet, to those of a hand-written one, which reads the same
  files from S3 by pyarrow and copies them by psycopg. `postgres_text_ratio`: to a `COPY` of text that lies in memory.
  `postgres_insert_ratio`: to ten times the `INSERT`s of a tenth of the rows, by `executemany`, from memory.
- `iceberg_ratio_spread`, … : the smallest and the largest of the rounds; the figure itself is their median.
- `seconds`, `cpu`: medians by way. `iceberg_spark`, `delta_spark`: the format's writer; `…_long`: with the longer
  history.
- `commit_seconds`: of the seconds, those after the acknowledgement. `epoch_seconds`: with the trigger and the cleaning.
- `requests`, `epoch_requests`: to S3, by its own log, in `seconds` and in `epoch_seconds`: medians.
- `rows`, `commits`, `rounds`, `spark`, `load`, `cores`: of the measurement.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from .measuring import table_formats
from .measuring.results import machine, tell
from .measuring.spark_cost import Spent, ratio
from .measuring.spark_session import session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from .measuring.table_arms import Append, Services

_T = TypeVar("_T")

WARM = 3
"""Rounds that do not count: the formats' own writers run less code of Spark's that Cairn's rounds warm up as well."""

RATIOS = {
    "iceberg_ratio": ("iceberg", "iceberg_spark"),
    "delta_ratio": ("delta", "delta_spark"),
    "iceberg_plain_ratio": ("iceberg", "plain"),
    "delta_plain_ratio": ("delta", "plain"),
    "iceberg_growth": ("iceberg_long", "iceberg"),
    "delta_growth": ("delta_long", "delta"),
    "postgres_ratio": ("postgres", "postgres_copy"),
    "postgres_text_ratio": ("postgres", "postgres_text"),
    "postgres_insert_ratio": ("postgres", "postgres_inserts"),
}
"""By figure, the ways whose seconds it compares."""


def figures(appends: Mapping[str, Sequence[Append]], copies: Mapping[str, Sequence[Spent]]) -> dict[str, object]:
    """Compute the ratios within the rounds, and the medians."""
    spent: dict[str, Sequence[Spent]] = {**appends, **copies}
    found: dict[str, object] = {}
    for name, (above, below) in RATIOS.items():
        found |= ratio(name, *([each.seconds for each in spent[way]] for way in (above, below)))

    def medians(what: str, of: Mapping[str, Sequence[Spent]]) -> dict[str, float]:
        return {way: round(statistics.median(getattr(each, what) for each in all_), 3) for way, all_ in of.items()}

    through = {way: all_ for way, all_ in appends.items() if any(each.epoch_s for each in all_)}
    return {
        **found,
        "seconds": medians("seconds", spent),
        "cpu": medians("cpu", spent),
        "commit_seconds": medians("commit_s", through),
        "epoch_seconds": medians("epoch_s", through),
        "requests": medians("requests", appends),
        "epoch_requests": medians("epoch_requests", through),
    }


def in_turn(ways: Mapping[str, Callable[[], _T]], number: int) -> dict[str, _T]:
    """Call each way, in the other order in each second round."""
    return {name: ways[name]() for name in list(ways)[:: 1 if number % 2 else -1]}


def measure(at: Services, jars: str, rounds: int, rows: int, commits: int) -> dict[str, object]:
    """Let all ways take turns; return the figures."""
    from pathlib import Path

    from .measuring.table_arms import conf

    with session({**table_formats.conf(Path("/nowhere"), jars), **conf(at)}) as spark:
        return {**_measure(spark, at, rounds, rows, commits), "spark": spark.version, **machine()}


def _measure(spark: SparkSession, at: Services, rounds: int, rows: int, commits: int) -> dict[str, object]:
    from .measuring.table_arms import Postgres, arms, rows_of

    df: DataFrame = spark.range(0, rows, 1, 2).selectExpr("id", "rand(7) AS value", "md5(CAST(id AS STRING)) AS text")
    ways = arms(spark, at, commits)
    postgres = Postgres(spark, at)
    appends: dict[str, list[Append]] = {name: [] for name in ways}
    copies: dict[str, list[Spent]] = {}
    for number in range(WARM + rounds):
        found = in_turn({name: lambda way=way: way.append(df) for name, way in ways.items()}, number)  # type: ignore[misc]
        copied = in_turn(postgres.copies(df), number)
        for name, each in found.items() if number >= WARM else ():
            appends[name].append(each)
        for name, spent in copied.items() if number >= WARM else ():
            copies.setdefault(name, []).append(spent)
    counts = {**postgres.rows(), **rows_of(spark, commits)}
    assert set(counts.values()) == {(WARM + rounds) * rows}, counts
    return {**figures(appends, copies), "rows": rows, "commits": commits, "rounds": rounds}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one line of JSON")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--commits", type=int, default=1_000, help="of the long history")
    parser.add_argument("--jars", default="", help="what this gives to the process that it starts")
    parser.add_argument("--services", default="", help="the same")
    options = parser.parse_args()
    if not options.services:
        sys.exit(_run_there(sys.argv[1:]))
    from .measuring.table_arms import Services

    at = Services(**json.loads(options.services))
    tell(measure(at, options.jars, options.rounds, options.rows, options.commits), as_json=options.json)


def _run_there(arguments: Sequence[str]) -> int:
    from scripts.harness.postgres_server import PostgresServer
    from scripts.harness.s3_server import S3Server

    with S3Server(keep_alive=False) as s3, PostgresServer(for_java=True, durable=True) as postgres:
        s3.create_bucket("lake")
        way: dict[str, Any] = {
            "s3": {**s3.env, "AWS_ENDPOINT_URL": s3.endpoint_url, "AWS_ALLOW_HTTP": "true"},
            "log": str(s3.root / "versitygw.log"),
            "port": int(postgres.jdbc_url.partition("127.0.0.1:")[2].partition("/")[0]),
            "jdbc_url": postgres.jdbc_url,
        }
        arguments = [*arguments, "--services", json.dumps(way)]
        return table_formats.run_there("bench.tables", arguments, to_s3=True, env=s3.env)


if __name__ == "__main__":
    main()
