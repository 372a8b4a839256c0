"""Epochs that completed long ago: few objects, few requests, and a missing object is noticed (semantics T9)."""

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from airflow_cairn.checkpoint.answers import AlreadyRead, EpochCompleted, Triggered
from airflow_cairn.checkpoint.documents import head, layout
from airflow_cairn.checkpoint.documents.attempt import EpochCompletedDocument, Slice
from airflow_cairn.checkpoint.documents.head import CompletedNote, Head
from airflow_cairn.checkpoint.rules import history
from airflow_cairn.checkpoint.store import completed_epochs
from airflow_cairn.checkpoint.store.completed_epochs import RECENT, find, move_to_segment
from airflow_cairn.checkpoint.store.job_files import JobFiles
from airflow_cairn.storage.errors import DocumentError
from tests.support.errors import raises_code
from tests.support.memory_store import MemoryStore
from tests.support.narrowing import known
from tests.support.world.world import CONFIG, JOB, World
from tests.support.wrapped_stores import RecordingStore
from tests.unit.checkpoint.sources.test_read_windows import Daily


def run_id(number: int) -> str:
    return f"scheduled__{number:07d}"


class Long:
    """A job's list of completed epochs, without the job."""

    def __init__(self) -> None:
        self.store = RecordingStore(MemoryStore())
        self.files = JobFiles(self.store, JOB)
        self.head = Head(JOB, notes_below=1)
        self._tokens = iter(range(10**9))

    def complete(self, numbers: range, step: int = completed_epochs.MAX_NOTED + 1) -> None:
        """Forget epochs in the order in which they completed, as swaps do; what the head no longer names is cleaned.

        Args:
            numbers: which.
            step: how many each segment takes in; more than in a job save the test time.
        """
        for first in range(numbers.start, numbers.stop, step):
            these = range(first, min(numbers.stop, first + step))
            noted = tuple(CompletedNote(run_id(number), number + 1) for number in these)
            old = replace(self.head, next_id=these.stop + 1)
            before = {each.document.key for each in old.segments}
            self.head = move_to_segment(
                self.files, old, replace(old, noted=(*old.noted, *noted)), lambda: f"{next(self._tokens):016x}"
            )
            self.files.delete(sorted(before - {each.document.key for each in self.head.segments}))

    def keys(self) -> list[str]:
        return [found.key for found in self.store.list("")]


@pytest.fixture(scope="module")
def long() -> Long:
    job = Long()
    job.complete(range(30_000), step=1_000)
    return job


def test_tens_of_thousands_of_epochs_are_two_objects(long: Long) -> None:  # semantics T9
    assert len(long.keys()) == len(long.head.segments) == 2
    assert sum(each.epochs for each in long.head.segments) + len(long.head.noted) == 30_000


def test_a_look_up_is_a_read_of_each_of_a_few_kilobytes(long: Long) -> None:
    for number in (0, 1, 4_711, 17_777, 29_000):
        assert find(long.files, long.head, run_id(number)) == number + 1
    for stranger in ("manual__1", run_id(30_000), run_id(10**6)):
        assert find(long.files, long.head, stranger) is None
    read = RecordingStore(long.store)
    assert find(JobFiles(read, JOB), long.head, "manual__2") is None
    assert dict(read.requests) == {"read_range": 2}


def test_a_list_is_written_for_each_hundred_epochs() -> None:
    """Each list joins the recent segment, which alone is written anew, up to ten thousand epochs."""
    job = Long()
    job.complete(range(2_020), step=1)
    assert job.store.requests["create"] == 22, "ninety-one at a time: ten stay, for the cleaner to see"
    assert sum(each.epochs for each in job.head.segments) + len(job.head.noted) == 2_020
    assert len(job.head.noted) <= completed_epochs.MAX_NOTED
    assert RECENT == 100 * completed_epochs.MAX_NOTED


def test_a_rerun_epoch_is_known_by_its_last_checkpoint() -> None:  # semantics T9
    job = Long()
    job.complete(range(300))
    job.head = replace(job.head, next_id=900, noted=(CompletedNote(run_id(7), 800),))
    job.complete(range(300, 600))
    assert find(job.files, job.head, run_id(7)) == 800
    assert find(job.files, job.head, run_id(8)) == 9


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> World:
    """A job that remembers little: five epochs ran, and the head itself knows of the last two."""
    for module in (history, head):
        monkeypatch.setattr(module, "MAX_HISTORY", 2)
    monkeypatch.setattr(completed_epochs, "MAX_NOTED", 1)
    world = World(config=replace(CONFIG, retained=1))
    world.stages = world.stages[:1]
    for number in range(5):
        world.run_epoch(run_id(number))
    return world


def segment(world: World) -> str:
    (found,) = world.coordinator().head().segments
    return found.document.key


def test_what_the_head_has_forgotten_is_not_run_again(short: World) -> None:  # semantics T9
    assert short.ask(run_id(0)) == EpochCompleted(run_id(0), 1)
    assert run_id(0) not in short.coordinator().head().completions()


def test_objects_do_not_grow_with_the_epochs(short: World) -> None:  # semantics C3
    def objects() -> int:
        return len(short.memory.all_keys())

    short.run_epoch("first")
    before = objects()
    short.run_epoch(*(f"later-{number:03d}" for number in range(50)))
    assert objects() <= before + 2, "slices, notes and documents of attempts are gone"
    assert len([key for key in short.memory.all_keys() if "/epochs/" in key]) <= 2


def test_cleaning_costs_as_many_listings_at_last_as_at_first(short: World) -> None:
    def listings() -> int:
        store = RecordingStore(short.store)
        short.coordinator(store).clean()
        return store.requests["list"]

    before = listings()
    short.run_epoch(*(f"later-{number:03d}" for number in range(30)))
    assert listings() == before


@pytest.mark.parametrize("damage", ["gone", "a byte", "shorter"])
def test_a_list_that_is_lost_is_never_taken_for_empty(short: World, damage: str) -> None:  # semantics T9, W9
    """A lifecycle rule, or a restore of half a backup: a run of long ago must not be folded in twice."""
    key = f"flights/{segment(short)}"
    data = short.memory.get(key, max_bytes=10**7).data
    short.memory.delete([key])
    if damage == "a byte":
        short.memory.create(key, data[:5] + bytes([data[5] ^ 1]) + data[6:])
    if damage == "shorter":
        short.memory.create(key, data[:-63])
    with raises_code("completed_epochs_lost") as error:
        short.ask("new")
    assert not error.value.retry_cures
    command = """`airflow dags trigger flights --conf '{"cairn": {"read_again": true}}'`"""
    for word in ("Put the object back", command, "cairn resume NEW --from", segment(short)):
        assert word in str(error.value)
    assert not short.coordinator().head().pending
    anew = replace(short.request("new"), slice=Slice(again=True))
    assert isinstance(short.coordinator().trigger(anew), Triggered), "somebody has said that it is new"


def test_with_windows_the_state_says_what_was_read(monkeypatch: pytest.MonkeyPatch) -> None:  # semantics T8, T9
    for module in (history, head):
        monkeypatch.setattr(module, "MAX_HISTORY", 2)
    monkeypatch.setattr(completed_epochs, "MAX_NOTED", 1)
    job = Daily(config=replace(CONFIG, retained=1))
    job.days = {f"d{number}": (number, number + 1) for number in range(7)}
    job.run_epoch(*list(job.days)[:6])
    job.memory.delete([f"flights/{each.document.key}" for each in job.coordinator().head().segments])
    assert isinstance(job.ask("d0"), AlreadyRead)
    assert isinstance(job.ask("d6"), Triggered)


def test_a_swap_waits_for_no_list(short: World) -> None:  # semantics C1
    """A running epoch completes although the list cannot be joined with the segment that is lost."""
    for number in range(5, 8):
        short.trigger(run_id(number))
        if number == 5:
            key = f"flights/{segment(short)}"
            data = short.memory.get(key, max_bytes=10**7).data
        short.memory.delete([key])
        short.run_stage(run_id(number), "clean")
        short.coordinator().complete(short.pending_id(run_id(number)))
        short.memory.create(key, data)
    assert short.ask(run_id(0)) == EpochCompleted(run_id(0), 1)


def test_what_stays_lost_holds_up_nothing_that_runs(short: World) -> None:  # semantics T9, C1, F2
    """An epoch that is under way, fails over, completes; what other lists hold is known; the lists stay few."""
    lost = segment(short)
    short.memory.delete([f"flights/{lost}"])
    for number in range(40):
        name = f"late-{number}"
        anew = replace(short.request(name), slice=Slice(again=True))
        assert isinstance(short.coordinator().trigger(anew), Triggered)
        submitted = short.submit(name, "clean")
        short.coordinator().fail(name, "clean", submitted.handover.claimant, "OSError: lost")
        short.run_stage(name, "clean")
        short.coordinator().complete(short.pending_id(name))
        short.coordinator().clean()
    head = short.coordinator().head()
    assert len(head.segments) == 2
    assert "late-3" not in head.completions(), "forgotten"
    again = replace(short.request("late-3"), slice=Slice(again=True))
    assert isinstance(short.coordinator().trigger(again), EpochCompleted), "another list says so"
    with raises_code("completed_epochs_lost"):
        short.ask("new")


@pytest.mark.parametrize(
    ("damage", "deep", "problem"),
    [
        (lambda _: None, False, "it is gone"),
        (lambda data: data[:-63], False, "another size"),
        (lambda data: data[:5] + bytes([data[5] ^ 1]) + data[6:], True, "broken"),
    ],
    ids=["gone", "shorter", "a byte"],
)
def test_verify_names_a_list_that_is_damaged(
    short: World, damage: Callable[[bytes], bytes | None], deep: bool, problem: str
) -> None:  # semantics W9
    key = segment(short)
    assert short.coordinator().verify_lists(deep=True) == {}
    left = damage(short.memory.get(f"flights/{key}", max_bytes=10**7).data)
    short.memory.delete([f"flights/{key}"])
    if left is not None:
        short.memory.create(f"flights/{key}", left)
    found = short.coordinator().verify_lists(deep=deep)
    assert found.keys() == {key}
    assert problem in found[key]


def put_back(world: World, head: bytes) -> None:
    """Restore an older head, as from a bucket version."""
    etag = known(world.memory.stat("flights/head.json").etag)
    world.memory.replace("flights/head.json", head, expected_etag=etag)


@pytest.mark.parametrize("source", [False, True])
def test_a_restored_head_says_which_epochs_run_again(
    source: bool, caplog: pytest.LogCaptureFixture
) -> None:  # semantics W9, T9
    world = World(config=replace(CONFIG, retained=2))
    world.stages = world.stages[:1]
    if source:
        world.count()
    for number in range(3):
        world.run_epoch(run_id(number))
    older = world.memory.get("flights/head.json", max_bytes=10**7).data
    assert world.coordinator().completed_later() == {}
    assert world.run_epoch("lost") == 4
    put_back(world, older)
    assert world.coordinator().completed_later() == {4: "lost"}
    assert world.folded()["clean"] == [run_id(number) for number in range(3)]
    assert isinstance(world.ask("new"), Triggered)
    assert "runs again" not in caplog.text, "it completed nowhere else"
    put_back(world, older)
    assert isinstance(world.ask("lost"), Triggered), "its input is in no state"
    assert "lost completed in checkpoint 4, which this head.json never handed out" in caplog.text


def older_version(world: World, **fields: object) -> None:
    """Let the head be as version 0.1 has written it."""
    document = json.loads(world.memory.get("flights/head.json", max_bytes=10**7).data)
    for name in ("notes_below", "segments", "noted"):
        document.pop(name, None)
    etag = known(world.memory.stat("flights/head.json").etag)
    world.memory.replace("flights/head.json", json.dumps(document | fields).encode(), expected_etag=etag)


def test_notes_of_an_older_version_count(short: World) -> None:  # semantics C5, T9
    older_version(short)
    short.files.create(layout.epoch_completed("long-ago"), EpochCompletedDocument(JOB, "long-ago", 2))
    assert short.ask("long-ago") == EpochCompleted("long-ago", 2)
    short.run_epoch("now")
    assert short.coordinator().head().notes_below == 6
    assert short.ask("long-ago") == EpochCompleted("long-ago", 2)


def test_a_broken_note_of_an_older_version_is_named(short: World) -> None:  # semantics C5
    older_version(short)
    short.store.create(f"flights/{layout.epoch_completed('long-ago')}", b'{"checkpoint":1,"epo')
    with pytest.raises(DocumentError, match="long-ago"):
        short.ask("long-ago")


def test_a_head_that_is_older_than_a_note_wins_over_it(short: World, caplog: pytest.LogCaptureFixture) -> None:
    """A restored backup: the note names a checkpoint that this head never handed out."""  # semantics W9, T9
    older_version(short)
    short.files.create(layout.epoch_completed("lost"), EpochCompletedDocument(JOB, "lost", 6))
    assert short.run_epoch("lost") == 6, "its input is in no state: it runs again"
    assert "lost completed in checkpoint 6, which this head.json never handed out" in caplog.text
    short.run_epoch(*(f"other-{number}" for number in range(3)))
    short.files.create(layout.epoch_completed("other"), EpochCompletedDocument(JOB, "other", 7))
    assert short.run_epoch("other") == 10, "also when the id has been handed out since"
