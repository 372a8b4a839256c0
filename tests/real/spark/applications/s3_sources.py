"""Epochs that read files of a bucket, and append to Iceberg and Delta, by a driver with s3a; prints what came."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path

from airflow_cairn.checkpoint import FileSource, TriggerRequest
from airflow_cairn.checkpoint.answers import InputRefused, Triggered
from airflow_cairn.checkpoint.documents.attempt import Slice
from airflow_cairn.checkpoint.documents.layout import epoch_name
from airflow_cairn.checkpoint.errors import CallbackError, InvalidStateError
from airflow_cairn.checkpoint.source import RunFacts
from airflow_cairn.storage import S3Options
from airflow_cairn.storage.s3.store import S3Store
from tests.real.spark.pipeline import Pipeline, session_builder
from tests.support.lake import Delta, Iceberg

ODD = [f"a{each}b.csv" for each in "[]{}?*\\,#% +'\"ü^~:"] + ["axb.csv", "ab.csv", "x[1]/y.csv", "x1/y.csv"]

storage, endpoint, region, conf = sys.argv[1:]
spark = session_builder().config(map=json.loads(conf)).getOrCreate()
s3 = S3Options(endpoint_url=endpoint, region=region)
root = storage.removesuffix("/lake")
found: dict[str, object] = {}


def requests() -> int:
    """Give how many requests the server has had."""
    return Path(os.environ["S3_LOG"]).read_text().count(" | vgw | ")


def numbers_in(files: list[str]) -> list[int]:
    """Read the files, which have a number each."""
    rows = spark.read.option("header", True).schema("n int").csv(files).collect()
    return [row.n for row in rows]


def put(folder: str, name: str, number: int) -> None:
    """Write a file, or write it anew."""
    store = S3Store(f"{root}/{folder}", s3)
    store.delete([name])
    store.create(name, f"n\n{number}\n".encode())


def ask(pipeline: Pipeline, run: str, uri: str) -> Triggered | InputRefused:
    """Trigger."""
    facts = RunFacts(run, open_store=lambda uri, _: S3Store(uri, s3))
    pipeline.sources = (FileSource(uri, on_change="read"),)
    request = TriggerRequest(epoch_name(run), Slice(), pipeline.stages, pipeline.config)
    answer = pipeline.coordinator.trigger(replace(request, sources=pipeline.sources, run=facts))
    assert isinstance(answer, Triggered | InputRefused), answer
    return answer


pipeline = Pipeline(storage, spark, s3=s3)
for number, name in enumerate(ODD):
    put("odd", name, number)
ask(pipeline, "odd", f"{root}/odd")
with pipeline.epoch("odd") as epoch:
    files = epoch.files()
    found["odd"] = sorted(numbers_in(files)) == list(range(len(ODD)))
pipeline.complete("odd")
put("odd", "co:lon[1].csv", 1)
answer = ask(pipeline, "refused", f"{root}/odd")
assert isinstance(answer, InputRefused)
found["refused"] = answer.detail

pipeline = Pipeline(storage, spark, job="changing", s3=s3)
put("in", "a.csv", 1)
put("in", "b.csv", 10)
for number, when in enumerate(("before", "while"), 2):
    ask(pipeline, when, f"{root}/in")
    if when == "before":
        put("in", "b.csv", number * 10)
    try:
        with pipeline.epoch(when) as epoch:
            numbers_in(epoch.files())
            put("in", "b.csv", number * 10)
    except InvalidStateError as error:
        found[when] = str(error)
    pipeline.coordinator.progress(epoch_name(when))
total = 0
for run in ("last", "none"):
    ask(pipeline, run, f"{root}/in")
    with pipeline.epoch(run) as epoch:
        files = epoch.files()
        total += sum(numbers_in(files)) if files else 0
    pipeline.complete(run)
found["total"] = total
try:
    ask(Pipeline(storage, spark, job="elsewhere", s3=s3), "no bucket", "s3://no-such-bucket/in")
except CallbackError as error:
    found["no bucket"] = str(error)

way = {"AWS_REGION": region, "AWS_ENDPOINT_URL": endpoint, "AWS_ALLOW_HTTP": "true"}
way |= {name: os.environ[name] for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")}
for place in (Iceberg, Delta):
    at = place(Path.cwd(), f"{root}/the {place.__name__}", way)
    pipeline = Pipeline(storage, spark, job=place.__name__, s3=s3)
    pipeline.trigger("rows", hooks=(at.sink,), listeners=(at.sink.name,))
    rows = spark.range(4).selectExpr("id", "string(id) AS route").repartition(2)
    for fails in (True, False):
        before = requests()
        try:
            with pipeline.epoch("rows") as epoch:
                epoch.table("orders").append(rows)
                if fails:
                    raise LookupError
        except LookupError:
            assert fails
    pipeline.complete("rows")
    pipeline.coordinator.deliver([at.sink])
    found[f"{place.__name__} requests"] = requests() - before
    found[place.__name__] = [at.rows(), at.staged() == at.named(), len(at.named())]
print("FOUND " + json.dumps(found))
