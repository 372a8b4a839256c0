"""Inputs and outputs of an epoch for OpenLineage: named by what is stored, and read no further than for that."""

from typing import Any

import pytest

from airflow_cairn.checkpoint.documents.attempt import Slice
from airflow_cairn.checkpoint.store import acks, metadata_file
from airflow_cairn.checkpoint.store.job_files import JobFiles
from airflow_cairn.checkpoint.views import data_sets
from airflow_cairn.checkpoint.views.data_sets import SourceSlice, sources_of
from tests.support.narrowing import known
from tests.support.world.world import World


@pytest.mark.parametrize(
    ("part", "folder"),
    [
        ("2026-01-01", SourceSlice("own")),
        (7, SourceSlice("own")),
        (None, SourceSlice("own")),
        ([{"uri": "s3://lake/raw"}], SourceSlice("own")),
        ({"offset": 7}, SourceSlice("own")),
        ({"uri": 7}, SourceSlice("own")),
        ({"uri": "https://user:secret@api.example.com", "files": [{"size_bytes": 7}]}, SourceSlice("own")),
        ({"uri": "kafka://broker/topic", "list": {"key": "x"}}, SourceSlice("own")),
        ({"uri": "s3://lake/raw", "offset": 7}, SourceSlice("own")),
        ({"uri": "s3://lake/raw", "files": ["a.csv"]}, SourceSlice("own")),
        ({"uri": "s3://lake/raw", "files": [{"size_bytes": 7}, {}]}, SourceSlice("own")),
        ({"uri": "s3://lake/raw", "files": [{"size_bytes": 7}]}, SourceSlice("own", "s3://lake/raw", 1, 7)),
        ({"uri": "s3://lake/raw", "list": {"key": "x"}}, SourceSlice("own", "s3://lake/raw")),
    ],
)
def test_an_author_s_own_source_is_a_folder_only_if_it_looks_like_one(part: Any, folder: SourceSlice) -> None:
    assert sources_of(Slice(sources={"own": part})) == (folder,)


@pytest.mark.parametrize(
    ("part", "said"),
    [
        ({"files": [{"size_bytes": 7}]}, "landing: 1 file, 7 B"),
        ({"files": [{"size_bytes": 7}, {"size_bytes": 2041}]}, "landing: 2 files, 2.0 KiB"),
        ({"files": []}, "landing: 0 files, 0 B"),
        ({"files": [], "left_out": 12}, "landing: 0 files, 0 B; the pattern leaves out 12 that are there"),
        ({"list": {"key": "x"}, "count": 9999}, "landing: so many that a list names them"),
    ],
)
def test_what_a_person_reads_of_the_files_of_an_epoch(part: Any, said: str) -> None:
    read = Slice(sources={"landing": {"uri": "s3://lake/raw", **part}, "own": 7})
    assert data_sets.files_read(read) == [said]


def test_sources_come_by_name() -> None:
    assert sources_of(Slice()) == ()
    assert [each.name for each in sources_of(Slice(sources={"b": 1, "a": 2}))] == ["a", "b"]


def test_no_more_is_read_than_what_is_named(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Metadata and acknowledgements of stages with many files are large, and the event names none of these files."""
    world.run_epoch("e1")
    world.trigger("e2")
    world.run_stage("e2", "clean")
    handover = world.submit("e2", "routes").handover
    world.drive(handover)
    read_lines: list[Any] = []
    counted: list[str] = []
    whole, subtasks = metadata_file.read, acks.subtasks_of

    def noting(*given: Any) -> Any:
        for line in whole(*given):
            read_lines.append(line)
            yield line

    def counting(files: JobFiles, ack: Any) -> Any:
        counted.append(ack.stage)
        return subtasks(files, ack)

    monkeypatch.setattr(metadata_file, "read", noting)
    monkeypatch.setattr(acks, "subtasks_of", counting)
    flow = data_sets.of_stage(world.files, handover)
    assert [(row.stage, row.kind) for row in flow.upstream] == [("clean", "state"), ("clean", "exchange")]
    assert {row.files for row in flow.upstream} == {0}
    assert flow.written
    assert flow.restored
    assert counted == ["routes"], "files of upstreams are counted by themselves"
    assert getattr(read_lines[-1], "stage", "") == "routes", "what follows is of others"
    read_lines.clear()
    read = known(data_sets.of_checkpoint(world.coordinator(), 1))
    assert [row.name for row in read[1].published]
    assert type(read_lines[-1]).__name__ == "StageLine"
