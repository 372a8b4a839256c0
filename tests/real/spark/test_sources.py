"""An application reads the files that its epoch's source has fixed, few or many (semantics T8)."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from airflow_cairn.checkpoint import FileSource, TriggerRequest
from airflow_cairn.checkpoint.answers import Failed, InputRefused, Triggered
from airflow_cairn.checkpoint.documents.attempt import Slice
from airflow_cairn.checkpoint.documents.layout import epoch_name
from airflow_cairn.checkpoint.errors import InvalidStateError
from airflow_cairn.checkpoint.source import RunFacts
from airflow_cairn.checkpoint.sources import files as seen_files
from airflow_cairn.checkpoint.sources import files as source_files
from airflow_cairn.checkpoint.store import source_lists
from airflow_cairn.spark import Epoch
from airflow_cairn.storage import open_store
from tests.real.spark.pipeline import Pipeline

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("inline_bytes", [source_lists.INLINE_BYTES, 150], ids=["in the handover", "on the shelf"])
def test_each_epoch_reads_its_files_and_those_to_be_read_again(
    spark: SparkSession, tmp_path: Path, inline_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """semantics T8, R1: names that a URL writes otherwise are read too; a damaged checkpoint's files are read again."""
    for module in (source_files, seen_files):
        monkeypatch.setattr(module, "INLINE_BYTES", inline_bytes)
    incoming = tmp_path / "in"
    (tmp_path / "lake").mkdir()
    incoming.mkdir()
    pipeline = Pipeline(f"file://{tmp_path}/lake", spark, retained=2)
    source = FileSource(f"file://{incoming}", "*.txt", name="texts")

    def run(run_id: str, *names: str) -> list[list[str]]:
        for name in names:
            (incoming / f"{name}.txt").write_text(name)
        pipeline.sources = (source,)
        facts = RunFacts(run_id, open_store=lambda uri, _: open_store(uri))
        request = TriggerRequest(epoch_name(run_id), Slice(), pipeline.stages, pipeline.config)
        answer = pipeline.coordinator.trigger(replace(request, sources=pipeline.sources, run=facts))
        assert isinstance(answer, Triggered), answer
        with pipeline.epoch(run_id) as epoch:
            kept = [*epoch.get("read", []), read(epoch)]
            epoch.put("read", kept)
        pipeline.complete(run_id)
        return kept

    def read(epoch: Epoch) -> list[str]:
        files = epoch.files("texts")
        return sorted(row.value for row in epoch.spark.read.text(files).collect()) if files else []

    assert run("r1", "a", "b b", "c%20c") == [["a", "b b", "c%20c"]]
    assert run("r2", "d", "e", "f") == [["a", "b b", "c%20c"], ["d", "e", "f"]]
    newest = pipeline.coordinator.head().completed[-1]
    pipeline.coordinator.files.delete([newest.metadata.key])
    assert run("r3", "g") == [["a", "b b", "c%20c"], ["d", "e", "f", "g"]]
    assert run("r4") == [["a", "b b", "c%20c"], ["d", "e", "f", "g"], []]


class Landing:
    """A folder of files with one number each, and a job that adds them up."""

    def __init__(self, spark: SparkSession, folder: Path, on_change: str = "report") -> None:
        self.folder = folder / "in"
        self.folder.mkdir()
        self.pipeline = Pipeline(f"file://{folder}/lake", spark)
        self.source = FileSource(f"file://{self.folder}", on_change=on_change)
        self.log: tuple[str, ...] = ()

    def put(self, **numbers: int) -> None:
        for name, number in numbers.items():
            (self.folder / f"{name}.csv").write_text(f"n\n{number}\n")

    def trigger(self, run: str) -> None:
        self.log = self.pipeline.trigger(run, sources=(self.source,)).log

    def read(self, run: str, then: Callable[[], object] = lambda: None) -> int:
        with self.pipeline.epoch(run) as epoch:
            files = epoch.files()
            total: int = epoch.get("total", 0)
            total += sum(numbers_in(epoch.spark, files)) if files else 0
            epoch.put("total", total)
            then()
        self.pipeline.complete(run)
        return total


def numbers_in(spark: SparkSession, files: list[str]) -> list[int]:
    rows = spark.read.option("header", True).schema("n int").csv(files).collect()
    return [row.n for row in rows]


NAMES = [f"a{each}b.csv" for each in "[]{}?*\\,#% +'\"ü^~"]
"""Each has a character that is special to Hadoop, Spark or URLs."""
OTHERS = ["ab.csv", "axb.csv", "sales1.csv", "sales[1].csv", "c1.csv", "c2.csv", "c{1,2}.csv", "x[1]/y.csv", "x1/y.csv"]


def test_a_file_whose_name_is_a_pattern_is_read_as_it_is(spark: SparkSession, tmp_path: Path) -> None:  # semantics T11
    """Whatever characters it has, and whichever files lie beside it."""
    landing = Landing(spark, tmp_path)
    for number, name in enumerate(NAMES + OTHERS):
        (landing.folder / name).parent.mkdir(exist_ok=True)
        (landing.folder / name).write_text(f"n\n{number}\n")
    with landing.pipeline.running("r1", sources=(landing.source,)) as epoch:
        assert sorted(numbers_in(spark, epoch.files())) == [*range(len(NAMES + OTHERS))]


def test_a_colon_is_refused_where_spark_cannot_read_it(spark: SparkSession, tmp_path: Path) -> None:  # semantics T11
    landing = Landing(spark, tmp_path)
    (landing.folder / "10:00").mkdir()
    landing.put(**{"10:00/a": 1})
    landing.trigger("r1")
    assert landing.read("r1") == 1, "Spark reads a file in such a folder"
    landing.put(**{"a:b": 1})
    request = TriggerRequest(epoch_name("r2"), Slice(), landing.pipeline.stages, landing.pipeline.config)
    facts = RunFacts("r2", open_store=lambda uri, _: open_store(uri))
    answer = landing.pipeline.coordinator.trigger(replace(request, sources=(landing.source,), run=facts))
    assert isinstance(answer, InputRefused)
    assert "'a:b.csv'" in answer.detail


@pytest.mark.parametrize("on_change", ["report", "read"])
@pytest.mark.parametrize("when", ["before it is read", "while it is read", "at the same size", "moved away"])
def test_a_file_changed_after_the_trigger_fails_the_attempt_once(
    spark: SparkSession, tmp_path: Path, on_change: str, when: str
) -> None:  # semantics T11
    landing = Landing(spark, tmp_path, on_change)
    landing.put(a=1, b=20)
    landing.trigger("r1")

    def change() -> None:
        if when == "moved away":
            (landing.folder / "b.csv").rename(landing.folder / "c.csv")
        else:
            landing.put(b=30 if when == "at the same size" else 300)
            later = (landing.folder / "b.csv").stat().st_mtime + 1
            os.utime(landing.folder / "b.csv", (later, later))

    said = {"moved away": "b.csv is gone", "at the same size": "b.csv was written again"}
    is_read = when == "while it is read"
    if not is_read:
        change()
    with pytest.raises(InvalidStateError, match=f"'files' .*{said.get(when, 'b.csv had 5 bytes and has 6')}"):
        landing.read("r1", change if is_read else lambda: None)
    assert isinstance(landing.pipeline.coordinator.progress(epoch_name("r1")), Failed)
    total = {"moved away": 21, "at the same size": 31}.get(when, 301)
    landing.trigger("r2")
    assert landing.read("r2") == total
    landing.trigger("r3")
    assert not [line for line in landing.log if " changed" in line], "the job knows the file as it was read"
    assert landing.read("r3") == total, "read once"
