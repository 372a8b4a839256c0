"""Two epochs, a failure and a replaced driver on S3, in one driver with s3a; prints what came of each."""

from __future__ import annotations

import json
import sys

from airflow_cairn.checkpoint.errors import FencedError
from airflow_cairn.checkpoint.layout import epoch_name
from airflow_cairn.checkpoint.requests import Failed
from airflow_cairn.spark import committer, table
from airflow_cairn.storage import S3Options
from tests.spark.pipeline import Pipeline, counts, rows, session_builder

storage, endpoint, region, conf = sys.argv[1:]
spark = session_builder().config(map=json.loads(conf)).getOrCreate()
pipeline = Pipeline(storage, spark, s3=S3Options(endpoint_url=endpoint, region=region))
found: dict[str, object] = {"magic": committer.choose(spark, "s3a://lake/").magic}
found["protocol before"] = spark.conf.get(committer.PROTOCOL)

pipeline.trigger("one")
with pipeline.epoch("one") as epoch:
    epoch.snapshot("totals", counts(spark, ("A-B", 1), ("B-C", 2)), key="route")
    epoch.snapshot("many", spark.range(1000).repartition(3))
    epoch.publish("league", counts(spark, ("A-B", 7)))
found["written"] = pipeline.listing("chk-0000000001/state/")
pipeline.complete("one")
found["protocol after"] = spark.conf.get(committer.PROTOCOL)

pipeline.trigger("two")
with pipeline.epoch("two") as epoch:
    before = epoch.state("totals")
    found["restored"] = rows(before)
    assert before is not None
    epoch.snapshot("totals", before.union(counts(spark, ("C-D", 3))), key="route")
    many = epoch.state("many")
    found["many"] = many.count() if many else 0
pipeline.complete("two")
found["league"] = rows(table(spark, storage, "flights", "league"))

pipeline.trigger("three")
try:
    with pipeline.epoch("three") as epoch:
        epoch.snapshot("good", counts(spark, ("A-B", 1)))
        epoch.snapshot("broken", spark.range(0, 1000, 1, 2).selectExpr("if(id = 999, raise_error('boom'), 'x') as x"))
except Exception as error:  # noqa: BLE001 - whatever Spark makes of it
    found["raised"] = type(error).__name__
found["after failure"] = pipeline.listing("chk-0000000003/state/")
progress = pipeline.coordinator.progress(epoch_name("three"))
found["declined"] = progress.detail if isinstance(progress, Failed) else str(progress)

zombie = pipeline.epoch("three")
try:
    with zombie:
        zombie.snapshot("totals", counts(spark, ("zombie", 1)))
        pipeline.begin("three")
except FencedError as error:
    found["fenced"] = error.message
found["after fence"] = pipeline.listing("chk-0000000004/state/")
print("FOUND", json.dumps(found))
spark.stop()
