"""Every kind of state by a client of a Spark Connect server; says what it found."""

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from airflow_cairn.spark import Epoch, table

work = Path(sys.argv[1])
spark = SparkSession.builder.appName("kinds").getOrCreate()
with Epoch.current() as epoch:
    assert epoch.spark is spark
    before = epoch.state("totals")
    behind = epoch.state("behind")
    subtask = epoch.state("totals", subtask=0)
    found: dict[str, Any] = {
        "pyspark": type(spark).__module__,
        "totals": [] if before is None else sorted(row.n for row in before.collect()),
        "of one subtask": -1 if subtask is None else subtask.count(),
        "list": epoch.list_state("offsets"),
        "large": len(epoch.get("large", "")),
        "model": epoch.restore_files("model", work / "restored"),
        "behind": [] if behind is None else sorted(row.id for row in behind.collect()),
        "conf": spark.conf.get("spark.sql.shuffle.partitions"),
    }
    if found["model"]:
        found["files"] = sorted(str(each.relative_to(work / "restored")) for each in (work / "restored").rglob("*.bin"))
    else:
        model = work / "model"
        (model / "trees 1").mkdir(parents=True)
        (model / "a.bin").write_bytes(bytes(range(256)) * 99)
        (model / "trees 1" / "ü=1.bin").write_bytes(b"x")
        epoch.snapshot_files("model", model)
    epoch.snapshot("behind", spark.range(4), background=True)
    rows = spark.range(10).select((F.col("id") % 5).alias("key"), (F.col("id") + F.lit(0)).alias("n"))
    epoch.snapshot("totals", rows, key="key")
    epoch.snapshot("none", spark.range(0))
    epoch.update("latest", rows.where("n < 5"), key="key")
    sums = epoch.aggregate("sums", rows.groupBy("key").agg(F.sum("n").alias("n")), key="key", merge={"n": "sum"})
    epoch.publish("sums", sums)
    found["sums"] = sorted(row.sum for row in rows.join(sums.toDF("key", "sum"), "key").collect())
    epoch.write(rows)
    # No `createDataFrame`: PySpark 4.2 asks for settings by it that a server of 4.0 does not have.
    epoch.publish("league", spark.sql("SELECT 'A-B' AS route, 7 AS n"))
    epoch.snapshot_list("offsets", [[1], [2]])
    epoch.put("large", "x" * 30_000)
    if "fail" in sys.argv:
        spark.sql("SELECT raise_error('boom')").collect()
if epoch.restored_from is not None:
    storage = spark.conf.get("spark.cairn.storage") or ""
    found["league"] = [row.n for row in table(spark, storage, epoch.job, "league").collect()]
print("FOUND", json.dumps(found))
