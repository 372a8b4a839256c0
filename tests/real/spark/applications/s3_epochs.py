"""Epochs, a failure, a replaced driver and rescaled state on S3, in one driver with s3a; prints what came of each."""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

from airflow_cairn.checkpoint.answers import Failed
from airflow_cairn.checkpoint.documents.attempt import StageSpec
from airflow_cairn.checkpoint.documents.layout import epoch_name, longest_key
from airflow_cairn.checkpoint.errors import FencedError
from airflow_cairn.spark import table
from airflow_cairn.spark.output import committer
from airflow_cairn.storage import S3Options
from airflow_cairn.storage.names import MAX_KEY_BYTES, parse_storage_uri
from tests.real.spark.applications.s3_rescaled import Rescaled
from tests.real.spark.pipeline import Pipeline, counts, rows, session_builder


def make_model() -> str:
    """Make raw files on the driver's disk."""
    folder = Path("model", "trees 1")
    folder.mkdir(parents=True)
    (folder / "a=b.json").write_text("{}")
    (folder.parent / "model.bin").write_bytes(bytes(range(256)) * 999)
    (folder.parent / "empty").touch()
    return "model"


def tree(folder: Path) -> dict[str, str]:
    """Give the files of a folder, each with a hash of its content."""
    files = (each for each in folder.rglob("*") if each.is_file() and not each.name.endswith(".crc"))
    return {str(each.relative_to(folder)): hashlib.sha256(each.read_bytes()).hexdigest() for each in files}


storage, endpoint, region, conf = sys.argv[1:]
spark = session_builder().config(map=json.loads(conf)).getOrCreate()
s3 = S3Options(endpoint_url=endpoint, region=region)
pipeline = Pipeline(storage, spark, s3=s3)
found: dict[str, object] = {"magic": committer.choose(spark, "s3a://lake/").committer is committer.MAGIC}
found["protocol before"] = spark.conf.get(committer.PROTOCOL)

pipeline.trigger("one")
with pipeline.epoch("one") as epoch:
    epoch.snapshot("totals", counts(spark, ("A-B", 1), ("B-C", 2)), key="route")
    epoch.snapshot("many", spark.range(1000).repartition(3))
    epoch.publish("league", counts(spark, ("A-B", 7)), background=True)
    epoch.snapshot("behind", counts(spark, ("D-E", 4)), background=True)
    epoch.snapshot_files("model", make_model())
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
    found["behind"] = rows(epoch.state("behind"))
    # To where Spark writes, and from there; and to the driver's disk.
    work = f"{storage}-work/model"
    found["model restored"] = epoch.restore_files("model", work)
    epoch.snapshot_files("copy", work)
    epoch.append("daily", counts(spark, ("A-B", 1), ("B/C=D", 2)), partition_by="route")
pipeline.complete("two")
pipeline.trigger("again")
with pipeline.epoch("again") as epoch:
    epoch.restore_files("copy", "restored")
    again = counts(spark, ("B/C=D", 3), ("E-F", 4))
    epoch.append("daily", again, partition_by="route", overwrite_partitions=True)
found["copy"] = tree(Path("restored"))
pipeline.complete("again")
found["model"] = tree(Path("model"))
found["league"] = rows(table(spark, storage, "flights", "league"))
found["daily"] = rows(table(spark, storage, "flights", "daily"))
found["whole"] = [each.whole for each in pipeline.coordinator.verify(deep=True)]

pipeline.trigger("three")
try:
    with pipeline.epoch("three") as epoch:
        epoch.snapshot("good", counts(spark, ("A-B", 1)), background=True)
        epoch.snapshot_files("model", "model")
        epoch.snapshot("broken", spark.range(0, 1000, 1, 1).selectExpr("if(id = 999, raise_error('boom'), 'x') as x"))
except Exception as error:  # noqa: BLE001 - whatever Spark makes of it
    found["raised"] = type(error).__name__
found["after failure"] = pipeline.listing("chk-0000000004/state/")
progress = pipeline.coordinator.progress(epoch_name("three"))
found["declined"] = progress.detail if isinstance(progress, Failed) else str(progress)

zombie = pipeline.epoch("three")
try:
    with zombie:
        zombie.snapshot("totals", counts(spark, ("zombie", 1)))
        pipeline.begin("three")
except FencedError as error:
    found["fenced"] = error.message
found["after fence"] = pipeline.listing("chk-0000000005/state/")

# The longest names that a DAG may have here: what the committers make below an output's folder has room.
longest, root = "n" * 250, len(parse_storage_uri(storage).path) + 1
job = "j" * (MAX_KEY_BYTES - root - longest_key("", longest))
widest = Pipeline(storage, spark, (StageSpec(longest),), job=job, s3=s3)
widest.trigger("one")
with widest.epoch("one", longest) as epoch:
    epoch.snapshot(longest, counts(spark, ("A-B", 1)))
    epoch.append(longest, counts(spark, ("r" * 250, 1)), partition_by="route")
found["longest name"] = len(job)
widest.complete("one")
if found["magic"]:
    found |= Rescaled(spark, storage, s3).found()
print("FOUND", json.dumps(found))
spark.stop()
