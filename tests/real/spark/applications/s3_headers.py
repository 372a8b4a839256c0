"""Epochs in a bucket that asks for headers, in one driver with s3a; prints what came of each, and what is refused."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

from airflow_cairn.spark import table
from airflow_cairn.spark.handover.conf import store_options
from airflow_cairn.storage import S3Options
from tests.real.spark.pipeline import Pipeline, counts, rows, session_builder

storage, conf = sys.argv[1:]
OF_BUCKET = f"fs.s3a.bucket.{storage.split('/')[2]}"
OTHERWISE = {
    f"{OF_BUCKET}.requester.pays.enabled": "false",
    f"{OF_BUCKET}.encryption.algorithm": "",
    f"{OF_BUCKET}.client.s3.custom.headers": "x-amz-expected-bucket-owner=210987654321",
}
"""Options of s3a without a key, or with another account."""
spark = session_builder().config(map=json.loads(conf)).getOrCreate()
s3 = store_options(lambda key: spark.conf.get(key, None), storage)
assert isinstance(s3, S3Options)
pipeline = Pipeline(storage, spark, s3=s3)
found: dict[str, object] = {}

for run in ("one", "two"):
    pipeline.trigger(run)
    with pipeline.epoch(run) as epoch:
        before = epoch.state("totals")
        found["totals"] = [] if before is None else rows(before)
        new = counts(spark, ("A-B", 1), ("B-C", 2))
        epoch.snapshot("totals", new if before is None else before.union(new))
        epoch.append("daily", counts(spark, (run, 1)), partition_by="route")
        epoch.publish("league", counts(spark, (run, 7)), background=True)
        Path("model").mkdir(exist_ok=True)
        Path("model", "model.bin").write_bytes(bytes(99_999))
        epoch.snapshot_files("model", "model")
        epoch.put("large", "x" * 30_000)
    pipeline.complete(run)
found["daily"] = rows(table(spark, storage, "flights", "daily"))
found["league"] = rows(table(spark, storage, "flights", "league"))
found["whole"] = [each.whole for each in pipeline.coordinator.verify(deep=True)]


def refusal(act: Callable[[], object]) -> str:
    """Give the error of what s3a does with a file system of its own."""
    try:
        act()
    except Exception as error:  # noqa: BLE001 - whatever Spark makes of it
        return str(error)
    return "none"


here = f"{storage.replace('s3:', 's3a:')}-own"
frame = counts(spark, ("A-B", 1))
own = {"fs.s3a.impl.disable.cache": "true"}
found["with all"] = refusal(lambda: frame.write.options(**own).parquet(f"{here}/all"))
found["without"] = {
    key: refusal(lambda key=key, value=value: frame.write.options(**own, **{key: value}).parquet(f"{here}/{key}"))  # type: ignore[misc]
    for key, value in OTHERWISE.items()
}
print("FOUND", json.dumps(found))
spark.stop()
