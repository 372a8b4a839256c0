"""An application reads the files that its epoch's source has fixed, few or many (semantics T8)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from airflow_cairn.checkpoint import FileSource, TriggerRequest
from airflow_cairn.checkpoint.answers import Triggered
from airflow_cairn.checkpoint.documents.attempt import Slice
from airflow_cairn.checkpoint.documents.layout import epoch_name
from airflow_cairn.checkpoint.source import RunFacts
from airflow_cairn.checkpoint.sources import files as source_files
from airflow_cairn.checkpoint.sources import seen_files
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
        facts = RunFacts(run_id, open_store=lambda uri, _: open_store(uri))
        request = TriggerRequest(epoch_name(run_id), Slice(), pipeline.stages, pipeline.config)
        answer = pipeline.coordinator.trigger(replace(request, sources=(source,), run=facts))
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
