"""Lists of files that are too long for a document: kept on the shelf, read as a stream, cleaned (semantics T8, C3)."""

import contextlib
import hashlib
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import IO, Any

import pytest

from airflow_cairn.checkpoint.documents import layout, metadata
from airflow_cairn.checkpoint.errors import DocumentError
from airflow_cairn.checkpoint.sources import files as source_files
from airflow_cairn.checkpoint.sources.files import FileSource, SeenFiles
from airflow_cairn.checkpoint.store import job_files, jsonl, source_lists
from airflow_cairn.checkpoint.store import jsonl as lines
from airflow_cairn.checkpoint.store.source_lists import SideLists
from airflow_cairn.storage import UnavailableError, WriteResult, open_store
from tests.support import covering
from tests.support.narrowing import known
from tests.support.world.listed_folder import Job
from tests.support.world.world import JOB, World
from tests.support.wrapped_stores import Crashed, Fault, FaultyStore, InterleavingStore, RecordingStore, WrappedStore

pytestmark = pytest.mark.large


@pytest.mark.soak  # a size alone
def test_memory_does_not_grow_with_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name in (
        (lines, "READ_BYTES"),
        (job_files, "READ_BYTES"),
        (source_lists, "READ_BYTES"),
        (jsonl, "SPOOL_BYTES"),
    ):
        monkeypatch.setattr(module, name, 64 * 1024)
    peaks = []
    for count in (5_500, 11_000):
        folder = tmp_path / str(count)
        folder.mkdir()
        job = Job(count, open_store(f"file://{folder}"))
        tracemalloc.start()
        job.trigger("1")
        job.give_up("1")
        job.trigger("1")
        job.world.run_epoch("1")
        job.trigger("2")
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.3 * peaks[0], f"twice the files took {peaks[1] / peaks[0]:.1f} times the memory"


class Weighing(WrappedStore):
    """Adds up what is written."""

    weight = 0

    def create(self, key: str, data: bytes) -> WriteResult:
        self.weight += len(data)
        return super().create(key, data)

    def create_from(self, key: str, source: IO[bytes]) -> WriteResult:
        self.weight += source.seek(0, 2)
        return super().create_from(key, source)


def test_an_epoch_writes_what_it_adds_and_now_and_then_more() -> None:
    job = Job(3_000, max_files=100)
    store = Weighing(job.world.store)
    written = []
    for number in range(30):
        store.weight = 0
        job.trigger(f"{number}", store)
        job.world.run_epoch(f"{number}")
        written.append(store.weight)
    pieces = SeenFiles.of(position(job), job.source.uri).pieces
    assert len(pieces) <= 6, "their number grows with the logarithm of what was read"
    print(f"\n{sum(written)} bytes, the median {sorted(written)[15]}, the last {written[-1]}, {len(pieces)} pieces")
    whole = sum(piece.size_bytes for piece in pieces)
    assert sum(written) < 12 * whole, "written whole by each epoch it would be 15 times that"


def position(job: Job) -> Any:
    found = known(job.world.coordinator().verify()[0].slice)
    return (found.positions or {})[job.source.name]


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Takes lists of a few files to be long."""
    monkeypatch.setattr(source_files, "INLINE_BYTES", 200)


def settled(job: Job, *expected: str) -> None:
    """Every file was read once; nothing lies on the shelf but what somebody refers to."""
    job.world.coordinator().clean()
    head = job.world.coordinator().head()
    assert head.pending == ()
    marks = dict(SeenFiles.of(position(job), job.source.uri).marks(SideLists(job.world.files, "e", 1, str)))
    assert sorted(marks) == sorted(expected)
    assert job.pieces() == {key for key in job.named() if key.startswith("chk-")}
    retained = {entry.epoch for entry in head.completed}
    for key in job.lists() - job.named():
        epoch = layout.epoch_of_list(key)
        assert epoch in retained or epoch not in head.completions(), key
    assert all(found.whole for found in job.world.coordinator().verify())


def prepared(epochs: int) -> Job:
    job = Job(0)
    for number in range(epochs):
        job.folder.add(*(f"{number}-{each}" for each in range(3)))
        job.run(f"{number}")
    job.folder.add(*(f"{epochs}-{each}" for each in range(3)))
    return job


def writes(epochs: int) -> list[str]:
    job = prepared(epochs)
    store = RecordingStore(job.world.store)
    job.trigger("x", store)
    return [f"{write.verb} {write.key.removeprefix(JOB)}" for write in store.writes]


OTHERS: dict[str, Callable[[Job], object]] = {
    "nobody": lambda _job: None,
    "a cleaner": lambda job: job.world.coordinator().clean(),
    "another epoch": lambda job: job.run_if_it_may("y"),
    "the same epoch": lambda job: job.trigger("x"),
}

EPOCHS = 4
"""Number of epochs after which a list is merged with the piece before it, and the result with the one before that."""


@pytest.mark.usefixtures("short", "parsed_documents")
@pytest.mark.parametrize("fault", list(Fault))
@pytest.mark.parametrize("other", OTHERS)
def test_a_trigger_that_dies_at_any_write_leaves_nothing_and_loses_nothing(fault: Fault, other: str) -> None:
    """semantics T8, C3, W4: the writes are the list, the pieces that it is merged into, the slice, attempt and head."""
    names = writes(EPOCHS)
    assert names[0].startswith("create /epoch-lists/")
    assert any("/positions/" in name for name in names)
    job_before = prepared(EPOCHS)
    # Each fault at each write beside two of the four, each of these at each write beside two faults; in soak all.
    number = list(Fault).index(fault) + list(OTHERS).index(other)
    for at in range(len(names)) if covering.gives_all else range(number % 2, len(names), 2):
        job = job_before.fork()
        act = partial(OTHERS[other], job)
        store = FaultyStore(job.world.store, at, fault, act if fault is Fault.ANSWER_LOST else None)
        with contextlib.suppress(Crashed, UnavailableError):
            job.trigger("x", store)
        assert store.struck, names[at]
        if fault is not Fault.ANSWER_LOST:
            act()
        job.run_if_it_may("x")
        job.run("z")
        settled(job, *(f"{number}-{each}" for number in range(EPOCHS + 1) for each in range(3)))


@pytest.mark.usefixtures("short")
def test_a_list_whose_trigger_died_is_taken_by_the_next_one() -> None:
    """semantics T8: the list fixes the input, also where the slice that names it was never written."""
    job = Job(0)
    job.folder.add("a", "b", "c")
    with pytest.raises(Crashed):
        job.trigger("1", FaultyStore(job.world.store, 2, Fault.CRASH_BEFORE))
    assert len(job.lists()) == 1
    job.folder.add("d")
    assert job.run("1") == ["a", "b", "c"]
    assert job.run("2") == ["d"]


@pytest.mark.usefixtures("short")
def test_a_list_goes_when_no_one_can_ask_for_it_any_more() -> None:
    """semantics C3: an epoch that failed may be cleared at any time, one that completed only be replayed."""
    job = prepared(0)
    job.trigger("failed")
    job.give_up("failed")
    job.source = FileSource("s3://input", name="other")  # so that nothing overtakes the failed one
    for number in range(6):
        job.folder.add(*(f"{number}-{each}" for each in range(1, 4)))
        job.run(f"{number}")
    kept = {layout.epoch_of_list(key) for key in job.lists()}
    assert {"failed", "4", "5"} <= kept
    assert len(kept) <= 4


@pytest.mark.usefixtures("short")
def test_a_slow_cleaner_takes_nothing_from_a_running_trigger() -> None:
    """semantics C3: whenever the cleaner has looked, and whenever it deletes."""
    for verb in ("get", "read_range", "list", "delete"):
        job = prepared(EPOCHS)
        job.world.files.create_bytes("chk-0000000001/dead", b"")

        def meanwhile(job: Job = job) -> None:
            job.run("x")
            job.folder.add("w-0", "w-1", "w-2")
            job.trigger("w")

        job.world.coordinator(InterleavingStore(job.world.store, verb, 0, meanwhile)).clean()
        assert job.run("w") == ["w-0", "w-1", "w-2"]
        settled(job, *(f"{number}-{each}" for number in (*range(EPOCHS + 1), "w") for each in range(3)))


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("harm", ["gone", "altered"])
def test_a_piece_of_a_position_that_is_gone_or_altered_is_damage(harm: str) -> None:
    """semantics R1: the checkpoint before is restored, and the files of the one bypassed are replayed."""
    job = prepared(EPOCHS)
    job.run("x")
    newest = SeenFiles.of(position(job), job.source.uri).pieces[-1].key
    if harm == "gone":
        job.world.files.delete([newest])
    else:
        data = job.world.files.get(newest, max_bytes=10_000).data
        job.world.memory.put(job.world.files.full(newest), data.replace(b"x", b"y", 1) + b" ")
    job.folder.add("new")
    answer = job.trigger("z")
    assert [damage.key for damage in answer.damages] == [newest]
    assert [replayed.epoch for replayed in answer.pending.replay] == ["x"]
    assert job.names(answer) == ["new"]


def test_lists_named_by_positions_are_kept_while_retained() -> None:
    """semantics C3, C5: with many retained checkpoints, each one's own pieces."""
    job = Job(0)
    job.world.config = replace(job.world.config, retained=5)
    for number in range(8):
        job.folder.add(*(f"{number:02d}/{each:06d}" for each in range(200)))
        job.run(f"{number}")
    assert len(job.named()) > len(SeenFiles.of(position(job), job.source.uri).pieces)
    settled(job, *(f"{number:02d}/{each:06d}" for number in range(8) for each in range(200)))


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"key": "../other/x"}, "key"),
        ({"key": "epochs/1.json"}, "outside"),
        ({"key": "epoch-lists/1/../../x"}, "key"),
        ({"key": "s3://bucket/x"}, "key"),
        ({"size_bytes": -1}, "size_bytes"),
        ({"values": "3"}, "values"),
    ],
)
def test_a_reference_to_another_place_is_refused(change: dict[str, Any], problem: str) -> None:  # semantics W5
    sound = {"key": "chk-0000000001/positions/f-a.jsonl", "size_bytes": 3, "sha256": "a", "etag": "b", "values": 1}
    assert [each.values for each in metadata.referred({"x": [{metadata.LIST_KIND: sound}]})] == [1]
    with pytest.raises(DocumentError, match=problem):
        list(metadata.referred([{metadata.LIST_KIND: sound | change}]))


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda lines: [*lines[:2], *lines[3:]], "truncated"),
        (lambda lines: lines[:-1], "truncated"),
        (lambda lines: [*lines, lines[-1]], "does not belong"),
        (lambda lines: [lines[0].replace(b'"format":2', b'"format":99'), *lines[1:]], "newer Cairn"),
        (lambda lines: [lines[0].replace(b"flights", b"trains"), *lines[1:]], "another job"),
        (lambda lines: [lines[0].replace(b"shelved", b"other"), *lines[1:]], "another kind"),
        (lambda lines: [b"[1]\n", *lines[1:]], "another kind"),
    ],
)
def test_a_broken_list_is_refused(change: Any, problem: str) -> None:  # semantics W5, C5
    files = World().files
    listed, note = SideLists(files, "e", 1, str).fix("files", [1, 2, 3], lambda: "note")
    assert (list(source_lists.read(files, listed)), note, listed.values) == ([1, 2, 3], "note", 3)
    data = b"".join(change(files.get(listed.key, max_bytes=10_000).data.splitlines(keepends=True)))
    files.store.put(files.full(listed.key), data)  # type: ignore[attr-defined]  # of the store in memory
    altered = replace(listed, size_bytes=len(data), sha256=hashlib.sha256(data).hexdigest())
    with pytest.raises(DocumentError, match=problem):
        list(source_lists.read(files, altered))
    with pytest.raises(DocumentError):
        list(source_lists.read(files, listed))
