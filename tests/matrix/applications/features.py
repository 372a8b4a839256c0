"""Each kind of state and output of an epoch, once. Prints what this driver read; with `look` it reads from outside.

Data are numbers and their hashes: `tests/matrix/features.py` computes all of it again in plain Python.
"""

import hashlib
import json
import sys
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from airflow_cairn.checkpoint.errors import InvalidStateError
from airflow_cairn.spark import Epoch, StateTtl, compact, state, table
from airflow_cairn.spark.output import committer
from airflow_cairn.spark.stored import growing_table

ROWS = 30_000
"""Number of rows of the large states: more than the bytes up to which a state is written whole each time."""
STEPS = (1, 10, 7)
"""In each epoch every so-manieth row of the large states changes."""
ALL = {"sketch": "hll_union", "pair": "each(sum)"}

# Ten small files stand for a hundred epochs.
growing_table.FAN_IN = 2
growing_table.ALIKE_FILES = 2

spark = SparkSession.builder.getOrCreate()
spark.conf.set("spark.sql.session.timeZone", "UTC")
storage = spark.conf.get("spark.cairn.storage", None) or sys.argv[-1]
found: dict[str, Any] = {"spark": spark.version, "python": ".".join(map(str, sys.version_info[:2]))}


def rows(frame: DataFrame | None) -> list[list[Any]] | None:
    """Give a frame's rows, sorted, as JSON has them."""
    return None if frame is None else sorted([*row] for row in frame.collect())


def digest(lines: Iterable[Iterable[Any]] | None) -> list[Any] | None:
    """Give the number of rows and a hash of them."""
    if lines is None:
        return None
    listed = [[*line] for line in lines]
    return [len(listed), hashlib.sha256(json.dumps(listed).encode()).hexdigest()]


def large(epoch: int) -> DataFrame:
    """Give the rows of the large states that an epoch changes."""
    return spark.range(0, ROWS, STEPS[epoch], 2).selectExpr(
        "id", f"id * 10 + {epoch} AS value", f"sha2(concat('{epoch} ', id), 256) AS text"
    )


def flights(begin: int, end: int) -> DataFrame:
    """Give flights, one a minute."""
    time = "timestamp_seconds(unix_seconds(TIMESTAMP '2026-01-01 00:00:00') + id * 60) AS time"
    return spark.range(begin, end, 1, 2).selectExpr("id AS flight", "concat('route ', id % 7) AS route", time)


def minutes(column: str = "time") -> str:
    """Give SQL for the minutes of a moment."""
    return f"CAST((unix_seconds({column}) - unix_seconds(TIMESTAMP '2026-01-01 00:00:00')) / 60 AS INT)"


def widened(epoch: Epoch) -> str:
    """Append a wider type to a table; say what became of it."""
    try:
        epoch.append("narrow", spark.sql("SELECT 5000000000 AS value"))
    except InvalidStateError as error:
        return str(error)
    return "taken"


def restored(epoch: Epoch, number: int) -> dict[str, Any]:
    """Read everything that the epoch before has left."""
    sketches = epoch.state("sketches")
    seen = epoch.state("seen")
    model = Path(f"restored-{number}")
    return {
        "updated": digest(rows(epoch.state("updated"))),
        "aggregated": digest(rows(epoch.state("aggregated"))),
        "snapshot": digest(rows(epoch.state("snapshot"))),
        "some": rows(epoch.state("updated", keys=spark.range(0, 50))) if number else None,
        "sketches": sketches and rows(sketches.selectExpr("route", "hll_sketch_estimate(sketch)", "pair")),
        "seen": seen and rows(seen.select("flight")),
        "behind": rows(epoch.state("behind")),
        "split": epoch.list_state("split"),
        "union": epoch.list_state("union"),
        "broadcast": epoch.list_state("broadcast"),
        "count": epoch.get("count"),
        "model": {str(each.relative_to(model)): each.read_text() for each in sorted(model.rglob("*.txt"))}
        if epoch.restore_files("model", model)
        else None,
    }


def by_subtask(epoch: Epoch, parallelism: int) -> list[Any]:
    """Read a keyed state in parts: the rows of each, and a hash of all."""
    parts = [rows(epoch.state("snapshot", subtask=subtask)) or [] for subtask in range(parallelism)]
    return [[len(part) for part in parts], digest(sorted(row for part in parts for row in part))]


def keep(epoch: Epoch, number: int, parallelism: int, begin: int, end: int) -> dict[str, Any]:
    """Write everything, and read what event time gives."""
    changed, today = large(number), flights(begin, end)
    epoch.update("updated", changed, key="id", deletes=spark.range(2 * number - 1, ROWS, 70) if number else None)
    epoch.aggregate("aggregated", changed, key="id", merge={"value": "sum", "text": "max"})
    epoch.snapshot("snapshot", changed, key="id")
    epoch.aggregate(
        "sketches",
        today.groupBy("route").agg(*map(_sql, ("hll_sketch_agg(flight) AS sketch", "array(1, sum(flight)) AS pair"))),
        key="route",
        merge=ALL,
    )
    epoch.snapshot("behind", today.select("flight"), background=True)
    epoch.publish("league", today.select("flight"), background=True)
    # Files of 2 to 4 KiB with any Spark: small files become one only with others of about their size.
    day = spark.range(number * 60, number * 60 + 60).selectExpr("id", "sha2(concat('daily ', id), 256) AS text")
    epoch.append("daily", day)
    buckets = spark.range(0, 8, 2 if number else 1).selectExpr("id % 4 AS bucket", f"id * 10 + {number} AS value")
    epoch.append("buckets", buckets, partition_by="bucket", overwrite_partitions=bool(number))
    epoch.snapshot_list("split", [[[number, subtask]] for subtask in range(parallelism)])
    epoch.snapshot_list("union", [[number, subtask] for subtask in range(parallelism)], mode="union")
    epoch.snapshot_list("broadcast", [[number]] * parallelism, mode="broadcast")
    epoch.put("count", epoch.get("count", 0) + 1)
    if number == 0:
        model = Path("model", "trees 1")
        model.mkdir(parents=True)
        (model / "a=b.txt").write_text("0")
        (model.parent / "ü.txt").write_text("x" * 1000)
        epoch.snapshot_files("model", model.parent)
    elif number == 1:
        epoch.drop("model", kind="files")  # raw files have no subtasks, so a stage that holds some is not rescaled
    again = flights(max(0, begin - 50), end)
    late = rows(epoch.late(again, "time").select("flight"))
    epoch.watermark(today, "time", delay=timedelta(minutes=30))
    timers = epoch.timers("calls", "route")
    timers.set(today.selectExpr("route", "time + INTERVAL 10 MINUTES AS time"))
    due = timers.due()
    ttl = StateTtl(timedelta(minutes=40), "time")
    epoch.update("seen", today.select("flight", "time"), key="flight", ttl=ttl)
    epoch.check("flights have numbers", "flight >= 0", today)
    return {
        "late": late,
        "watermark": epoch.current_watermark.isoformat() if epoch.current_watermark else None,
        "due": due and rows(due.selectExpr(f"{minutes()} AS minute", "route")),
    }


def _sql(text: str) -> Any:
    from pyspark.sql import functions as F

    return F.expr(text)


def looked() -> dict[str, Any]:
    """Read the newest checkpoint from outside of an epoch."""
    job = "flights"
    return {
        "magic": committer.choose(spark, storage.replace("s3://", "s3a://")).committer is committer.MAGIC,
        "updated": digest(rows(state(spark, storage, job, "routes", "updated"))),
        "aggregated": digest(rows(state(spark, storage, job, "routes", "aggregated"))),
        "daily": digest(rows(table(spark, storage, job, "daily"))),
        "buckets": rows(table(spark, storage, job, "buckets").select("bucket", "value")),
        "league": rows(table(spark, storage, job, "league")),
        "narrow": rows(table(spark, storage, job, "narrow")),
    }


if sys.argv[1] == "look":
    found |= looked()
else:
    if sys.argv[1] == "compact":
        found["compacted"] = [each.outcome for each in compact(spark, storage, "flights", "routes", "updated")]
    with Epoch.current() as epoch:
        detail = epoch.slice.detail
        number, parallelism = int(detail["number"]), int(detail["parallelism"])
        found["restored"] = restored(epoch, number)
        if number:
            found["by subtask"] = by_subtask(epoch, parallelism)
            found["widened"] = widened(epoch)
        else:
            epoch.append("narrow", spark.sql("SELECT 5 AS value"))
        found |= keep(epoch, number, parallelism, int(detail["begin"]), int(detail["end"]))
print("FOUND", json.dumps(found))
spark.stop()
