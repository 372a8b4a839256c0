"""Completing holds one part of an acknowledgement at a time, not all files of a checkpoint (semantics C5)."""

import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from airflow_cairn.checkpoint.acts.assemble import Assembler, FinalizeError
from airflow_cairn.checkpoint.documents.attempt import PendingDocument, StageSpec
from airflow_cairn.checkpoint.documents.metadata import HandleLine
from airflow_cairn.checkpoint.store import acks, jsonl, metadata_file
from airflow_cairn.checkpoint.store.job_files import JobFiles
from airflow_cairn.storage import ForbiddenError, open_store
from airflow_cairn.storage.port import ObjectStore, WriteResult
from tests.support.acking import wide_ack
from tests.support.memory_store import MemoryStore
from tests.support.world.world import JOB, World
from tests.support.wrapped_stores import Fault, FaultyStore

FILES = 1_000
"""Of which the metadata is larger than a spool holds in memory."""


def _acknowledged(store: ObjectStore, subtasks: int) -> PendingDocument:
    """One stage of so many subtasks, each with a file of its own, that has acknowledged."""
    world = World(store, stages=(StageSpec("wide"),))
    document = world.trigger("e").pending
    ack = wide_ack(world.submit("e", "wide").handover, subtasks, subtasks)
    world.coordinator().acknowledge(ack)
    return document


def _peak(act: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        act()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a tenth of what fills a part, a marker and the memory of a spool fill them."""
    for module, name in ((acks, "MARKER_BYTES"), (acks, "PART_BYTES"), (jsonl, "SPOOL_BYTES")):
        monkeypatch.setattr(module, name, getattr(module, name) // 10)


def test_memory_does_not_grow_with_the_subtasks(tmp_path: Path) -> None:  # semantics C5, A6
    peaks = []
    few, many = 1_000, 3_000
    for subtasks in (few, many):
        (tmp_path / str(subtasks)).mkdir()
        store = open_store(f"file://{tmp_path / str(subtasks)}")
        document = _acknowledged(store, subtasks)
        files = JobFiles(store, JOB)
        peaks.append(_peak(Assembler(files, document).write))
    # Only the name of a subtask's file is kept, to tell what the metadata refers to.
    each = (peaks[1] - peaks[0]) / (many - few)
    assert each < 600, f"{each:.0f} bytes a subtask; the name takes 400, with all that is parsed of it 800"


def test_what_is_written_is_every_file_once() -> None:  # semantics C1, C5, C6, W2
    store = MemoryStore()
    document = _acknowledged(store, FILES)
    files = JobFiles(store, JOB)
    faulty = FaultyStore(store, 0, Fault.ANSWER_LOST)
    made = Assembler(JobFiles(faulty, JOB), document).write()
    assert faulty.struck, "a lost answer is settled by what stands there"
    assert made.metadata.size_bytes > jsonl.SPOOL_BYTES, "it went through a file"
    found = [line.subtask for line in metadata_file.read(files, made.metadata) if isinstance(line, HandleLine)]
    assert found == list(range(FILES))
    assert made.size_bytes == FILES * 1000
    assert Assembler(files, document).write() == made, "a second finisher finds equal bytes"
    data = store.get(files.full(made.metadata.key)).data
    store.put(files.full(made.metadata.key), data[:-3] + b" }\n")
    with pytest.raises(FinalizeError, match="other metadata"):
        Assembler(files, document).write()


def test_a_full_temporary_folder_fails_the_checkpoint_by_name(monkeypatch: pytest.MonkeyPatch) -> None:  # semantics C6
    document = _acknowledged(store := MemoryStore(), 3)

    def full(_self: jsonl.Spool, _data: bytes) -> WriteResult:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(jsonl.Spool, "put", full)
    with pytest.raises(FinalizeError, match="temporary folder of this machine"):
        Assembler(JobFiles(store, JOB), document).write()


@pytest.mark.parametrize(
    ("refused", "expected"),
    [
        ("missing_right", FinalizeError),
        ("forbidden", ForbiddenError),
        ("clock_skew", ForbiddenError),
        ("no_credentials", ForbiddenError),
    ],
)
def test_only_a_right_that_is_missing_fails_the_checkpoint(
    monkeypatch: pytest.MonkeyPatch, refused: str, expected: type[Exception]
) -> None:  # semantics C6, W3
    document = _acknowledged(store := MemoryStore(), 3)

    def refuse(_self: jsonl.Spool, _files: JobFiles, key: str) -> bool:
        raise ForbiddenError("the store refuses", code=refused, key=key)

    with monkeypatch.context() as refusing:
        refusing.setattr(jsonl.Spool, "create", refuse)
        with pytest.raises(expected, match="the store refuses"):
            Assembler(JobFiles(store, JOB), document).write()
    assert Assembler(JobFiles(store, JOB), document).write().subtasks == 3, "nothing stands in the way afterwards"
