"""`FileSource` on a real S3 server: a folder in one bucket, the job in another (semantics T8)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from airflow_cairn.checkpoint.answers import Triggered
from airflow_cairn.checkpoint.documents import layout
from airflow_cairn.checkpoint.source import RunFacts
from airflow_cairn.checkpoint.sources import files
from airflow_cairn.checkpoint.sources.files import FileSource, files_in
from airflow_cairn.checkpoint.store import source_lists
from airflow_cairn.checkpoint.store.job_files import encode
from airflow_cairn.storage import S3Options
from airflow_cairn.storage.s3.store import S3Store
from tests.support.world.listed_folder import Job
from tests.support.world.world import World


@pytest.mark.s3
@pytest.mark.parametrize("inline_bytes", [source_lists.INLINE_BYTES, 150], ids=["in the documents", "on the shelf"])
def test_files_in_a_bucket_are_read_once(
    s3_options: S3Options, s3_bucket: str, inline_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "INLINE_BYTES", inline_bytes)
    incoming = S3Store(f"s3://{s3_bucket}/in", s3_options)
    world = World(S3Store(f"s3://{s3_bucket}/lake", s3_options))
    source = FileSource(f"s3://{s3_bucket}/in", "**/*.csv", on_change="read")

    def run(epoch: str) -> list[str]:
        facts = RunFacts(epoch, open_store=lambda *_: incoming)
        request = replace(world.request(epoch), sources=(source,), run=facts)
        answer = world.coordinator().trigger(request)
        assert isinstance(answer, Triggered), answer
        part: Any = (answer.pending.slice.sources or {})["files"]
        urls = [file["url"] for file in files_in(part, lambda shelved: source_lists.read(world.files, shelved))]
        world.run_epoch(epoch)
        return [url.removeprefix(f"s3a://{s3_bucket}/in/") for url in urls]

    for name in ("b/1.csv", "a.csv", "b/2.csv", "b/_SUCCESS", "notes.txt"):
        incoming.create(name, b"1")
    assert run("1") == ["a.csv", "b/1.csv", "b/2.csv"]
    for name in ("0.csv", "b/1.5.csv", "c.csv"):
        incoming.create(name, b"1")
    incoming.replace("a.csv", b"2", expected_etag=incoming.stat("a.csv").etag or "")
    assert run("2") == ["0.csv", "a.csv", "b/1.5.csv", "c.csv"], "one of the same size, with another tag"
    assert run("3") == []
    assert all(found.whole for found in world.coordinator().verify())
    assert bool(list(world.files.listing("epoch-lists/"))) == (inline_bytes < source_lists.INLINE_BYTES)


@pytest.mark.s3
@pytest.mark.soak  # a number alone: tests/unit/checkpoint/store/test_source_lists.py counts what grows with it
def test_a_hundred_thousand_files_are_read_once_whatever_happens(s3_options: S3Options, s3_bucket: str) -> None:
    job = Job(100_000, S3Store(f"s3://{s3_bucket}/lake", s3_options))
    first = job.trigger("1")
    assert len(job.names(first)) == 100_000
    job.folder.add("later")
    job.give_up("1")
    again = job.trigger("1")
    assert again.created
    assert again.pending.slice.sources == first.pending.slice.sources, "a retry reads what the first attempt read"
    job.world.run_epoch("1")
    assert job.run("2") == ["later"]
    newest = job.world.coordinator().head().completed[-1]
    job.world.files.delete([newest.metadata.key])
    job.folder.add("last")
    answer = job.trigger("3")
    assert job.names(answer) == ["last"]
    assert [replayed.epoch for replayed in answer.pending.replay] == ["2"], "restored from the first, 2 is replayed"
    assert job.folder.listings == 3, "once an epoch"
    assert job.world.files.stat(layout.epoch_slice("1")).size_bytes < 4096, "the documents do not grow"
    assert len(encode(answer.pending)) < 4096, "small enough to stand in the head"
