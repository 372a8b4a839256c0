"""Epochs, a killed driver and a savepoint on the store of another cloud, in one driver with its connector."""

from __future__ import annotations

import json
import sys
import time

from airflow_cairn.checkpoint.savepoints.savepoint_request import SavepointRequest
from airflow_cairn.spark import table
from airflow_cairn.spark.epoch import Epoch
from airflow_cairn.spark.output import committer
from airflow_cairn.storage import ObjectStore, open_store
from airflow_cairn.storage.names import scheme_of
from airflow_cairn.storage.open import OPTIONS
from tests.real.spark.pipeline import Pipeline, counts, rows, session_builder

storage, endpoint = sys.argv[1:]
options = OPTIONS[scheme_of(storage)](endpoint_url=endpoint)
spark = session_builder().getOrCreate()


def opened(uri: str) -> ObjectStore:
    return open_store(uri, options=options)


def body(epoch: Epoch) -> None:
    before = epoch.state("totals")
    one = counts(spark, ("A-B", 1))
    epoch.snapshot("totals", one if before is None else before.union(one), key="route")
    epoch.snapshot("many", spark.range(1000).repartition(3), background=True)
    epoch.append("daily", counts(spark, ("A-B", 1), ("B/C=D", 2)), partition_by="route")
    epoch.publish("league", counts(spark, ("A-B", 7)))


pipeline = Pipeline(storage, spark, options=options)
found: dict[str, object] = {
    "manifest": committer.choose(spark, opened(storage).spark_url("")).committer in committer.MANIFEST.values()
}
pipeline.run("one", body)
found["written"] = pipeline.listing("chk-0000000001/")

pipeline.trigger("two")
found["killed at"] = str(pipeline.killed("two", body, 1, after=False))
with pipeline.epoch("two") as epoch:
    body(epoch)
pipeline.complete("two")

taken = pipeline.coordinator.savepoint(SavepointRequest(f"{storage}-kept", "x"), opened)
moved = Pipeline(f"{storage}-moved", spark, options=options)
moved.coordinator.start_from(opened(taken.uri))
moved.trigger("three")
with moved.epoch("three") as epoch:
    found["restored"] = rows(epoch.state("totals"))
    many = epoch.state("many")
    found["many"] = many.count() if many else 0
    epoch.append("daily", counts(spark, ("E-F", 4)), partition_by="route", overwrite_partitions=True)
moved.complete("three")
found["daily"] = rows(table(spark, f"{storage}-moved", "flights", "daily"))
found["league"] = rows(table(spark, storage, "flights", "league"))
found["whole"] = [each.whole for each in pipeline.coordinator.verify(deep=True)]
found["left"] = [key for key in pipeline.listing() if "_temporary" in key or "_SUCCESS" in key or key.endswith("/")]
spark.stop()
found["stopped at"] = time.monotonic()
print("FOUND", json.dumps(found))
