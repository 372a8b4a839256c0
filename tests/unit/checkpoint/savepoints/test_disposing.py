"""Throwing savepoints away: what is refused, what a crash leaves, and how many a series keeps (semantics P3, R6)."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest

from airflow_cairn.checkpoint import Coordinator, Runtime
from airflow_cairn.checkpoint.documents.entries import SavepointEntry
from airflow_cairn.checkpoint.errors import InvalidConfigError, NoSavepointError
from airflow_cairn.checkpoint.reasons import Status
from airflow_cairn.checkpoint.savepoints.disposal import Disposal, HistoryRule, Pruned, dispose, plan, prune
from airflow_cairn.checkpoint.savepoints.savepoint_request import ImportOptions
from airflow_cairn.storage import DeleteFailure, ObjectStore, UnavailableError, open_store
from airflow_cairn.storage.port import DeleteFailures
from tests.support.errors import raises_code
from tests.support.narrowing import known
from tests.support.world.savepoints import TARGET, Below, asked, assert_whole, folder, standing, take
from tests.support.world.world import Clock, World
from tests.support.wrapped_stores import Crashed, Fault, FaultyStore, InterleavingStore, RecordingStore, WrappedStore

T = TypeVar("T")


def _dispose(world: World, entry: SavepointEntry, store: ObjectStore | None = None, *, force: bool = False) -> Disposal:
    runtime = Runtime(world.clock, world.new_token)
    store = store or world.store
    return dispose(store, Below(store, entry.uri), runtime, lambda uri: Below(world.store, uri), force=force)


def _prune(world: World, keep: int = 1, series: str = "") -> Pruned:
    runtime = Runtime(world.clock, world.new_token)
    open_folder = partial(Below, world.store)
    return prune(world.store, "flights", HistoryRule(keep=keep), TARGET, open_folder, runtime, series=series)


def _failed(world: World) -> SavepointEntry:
    """A savepoint that died half-way, and whose time is over."""
    with pytest.raises(UnavailableError):
        take(world, store=FaultyStore(world.store, 4, Fault.FAILS))
    world.clock.advance(timedelta(hours=1))
    entry = known(world.coordinator().look_for_savepoint("by hand"))
    assert entry.status is Status.FAILED
    return entry


def _two(world: World) -> tuple[SavepointEntry, SavepointEntry]:
    world.run_epoch("e1")
    return take(world), take(world, asked("another"))


def test_nothing_is_left_and_nothing_else_is_touched(world: World) -> None:  # semantics P3
    entry, other = _two(world)
    folder(world, entry).create("my notes.txt", b"the owner's")
    found = _dispose(world, entry)
    assert (found.job, found.files, found.size_bytes) == ("flights", entry.files, entry.size_bytes)
    assert standing(world, entry) == ["my notes.txt"]
    assert world.coordinator().head().savepoints == (other,)
    assert_whole(world, other)
    with pytest.raises(NoSavepointError, match="there is no savepoint"):
        _dispose(world, entry)


def test_the_plan_changes_nothing(world: World) -> None:
    entry, _ = _two(world)
    recording = RecordingStore(world.store)
    found = plan(recording, Below(recording, entry.uri))
    assert (found.files, found.against, recording.writes) == (entry.files, (), [])


@pytest.mark.parametrize("at", range(2))
def test_a_deletion_that_lands_late_does_no_harm_to_one_made_anew(world: World, at: int) -> None:  # semantics P3, W2
    entry, other = _two(world)
    made: list[SavepointEntry] = []

    def meanwhile() -> None:
        _dispose(world, entry)
        made.append(take(world))

    # The deletion is on its way while somebody else finishes, and the same request is made once more.
    _dispose(world, entry, InterleavingStore(world.store, "delete", at, meanwhile))
    assert made[0].folder != entry.folder
    assert_whole(world, made[0])
    assert world.coordinator().head().savepoints == (other, *made)


def test_opening_a_savepoint_while_another_is_forgotten(world: World) -> None:  # semantics P1, P3
    entry, _ = _two(world)
    # The names in use change between the claim of the folder and the swap that opens the savepoint.
    made = take(world, asked("nightly"), InterleavingStore(world.store, "replace", 0, lambda: _dispose(world, entry)))
    assert_whole(world, made)
    assert {key.split("/")[2] for key in world.memory.all_keys("elsewhere/")} == {
        each.folder for each in world.coordinator().head().savepoints
    }


def test_the_folder_of_a_forgotten_failed_savepoint_is_not_reused(world: World) -> None:  # semantics P1
    world.run_epoch("e1")
    failed = _failed(world)

    def meanwhile() -> None:
        _dispose(world, failed)
        assert_whole(world, take(world))

    # The process that is about to empty the folder is late.
    take(world, store=InterleavingStore(world.store, "delete", 0, meanwhile))
    assert_whole(world, world.coordinator().head().savepoints[0])


class Locked(Below):
    """A folder in which one object cannot be deleted."""

    def delete(self, keys: object) -> DeleteFailures:
        wanted = list(keys)  # type: ignore[call-overload]
        kept = [key for key in wanted if key.endswith("part-0")][:1]
        super().delete([key for key in wanted if key not in kept])
        return [DeleteFailure(key, "AccessDenied") for key in kept]


def _claimed(world: World, entry: SavepointEntry) -> None:
    """A job has started from it and owns it, and could not delete it yet."""
    world.coordinator().start_from(Locked(world.store, entry.uri), ImportOptions(claim=True))


def _half_started(world: World, entry: SavepointEntry) -> None:
    with pytest.raises(Crashed):
        world.coordinator(FaultyStore(world.store, 2, Fault.CRASH_AFTER)).start_from(folder(world, entry))


@pytest.mark.parametrize(
    ("claim", "why"),
    [
        (_half_started, "the job flights is being started from it"),
        (_claimed, r"the job flights owns it \(--claim\), and deletes it itself"),
    ],
)
def test_one_that_a_job_claims_is_refused(
    world: World, claim: Callable[[World, SavepointEntry], None], why: str
) -> None:  # semantics P3, R6
    entry, _ = _two(world)
    claim(world, entry)
    before = standing(world, entry)
    with raises_code("savepoint_refused", match=f"the savepoint is still needed: {why}"):
        _dispose(world, entry)
    assert standing(world, entry) == before
    assert _dispose(world, entry, force=True).against, "it says what is lost"
    assert standing(world, entry) == []


def test_the_only_way_back_is_refused(world: World) -> None:  # semantics P3, R1
    world.run_epoch("e1")
    entry = take(world)
    damaged = next(key for key in world.memory.all_keys("flights/") if "state.totals" in key)
    world.memory.put(damaged, b"?")
    with raises_code("savepoint_refused", match="has no other way back: none of its retained checkpoints is whole"):
        _dispose(world, entry)
    assert_whole(world, entry)
    _dispose(world, entry, force=True)
    assert standing(world, entry) == []


def _damage(world: World, job: str) -> None:
    world.memory.put(next(key for key in world.memory.all_keys(f"{job}/chk-") if "state.totals" in key), b"?")


def test_another_savepoint_is_another_way_back(world: World) -> None:
    entry, _ = _two(world)
    _damage(world, "flights")
    _dispose(world, entry)


@pytest.mark.parametrize("gone", [["_metadata"], ["part-0"]])
def test_one_that_its_owner_has_deleted_is_none(world: World, gone: list[str]) -> None:  # semantics P1, P3
    entry, other = _two(world)
    _damage(world, "flights")
    folder(world, other).delete([key for key in standing(world, other) if key.endswith(tuple(gone))][:1])
    with raises_code("savepoint_refused", match="no other savepoint of it exists"):
        _dispose(world, entry)


def test_the_only_way_back_of_a_job_that_started_from_it_is_refused(world: World) -> None:  # semantics P3, R1
    entry, _ = _two(world)
    Coordinator(world.store, "fork").start_from(folder(world, entry))
    _damage(world, "fork")
    with raises_code("savepoint_refused", match="the job fork has no other way back"):
        _dispose(world, entry)
    assert_whole(world, entry)


def test_a_job_that_cannot_be_asked_is_in_the_way(world: World) -> None:
    entry, _ = _two(world)
    world.memory.put("other/head.json", b"{")
    with raises_code("savepoint_refused", match="the job other cannot be asked whether it needs it"):
        _dispose(world, entry)


def test_one_that_is_being_made_is_refused_with_force_too(world: World) -> None:
    world.run_epoch("e1")
    world.trigger("e2")
    entry = take(world)
    with raises_code("savepoint_refused", match="the savepoint is being made"):
        _dispose(world, entry, force=True)


def test_one_that_failed_is_forgotten_with_what_lies_there(world: World) -> None:
    world.run_epoch("e1")
    entry = _failed(world)
    assert standing(world, entry)
    _dispose(world, entry)
    assert (standing(world, entry), world.coordinator().head().savepoints) == ([], ())


def test_one_that_its_owner_deleted_is_forgotten(world: World) -> None:  # semantics P1
    entry, other = _two(world)
    folder(world, entry).delete(standing(world, entry))
    _dispose(world, entry)
    assert world.coordinator().head().savepoints == (other,)


def test_one_that_was_moved_is_disposed_of_where_it_is(world: World) -> None:  # semantics C5
    entry, _ = _two(world)
    moved = Below(world.store, "s3://archive/2026")
    for key in standing(world, entry):
        moved.create(key, folder(world, entry).get(key).data)
    dispose(world.store, moved, Runtime(world.clock, world.new_token))
    assert list(moved.list("")) == []
    assert_whole(world, entry)
    assert entry in world.coordinator().head().savepoints


def test_what_cannot_be_deleted_is_said(world: World) -> None:  # semantics W7
    entry, _ = _two(world)
    found = dispose(world.store, Locked(world.store, entry.uri), Runtime(world.clock, world.new_token))
    assert [each.reason for each in found.failures] == ["AccessDenied"]
    assert entry in world.coordinator().head().savepoints, "entries go only after their files (P3)"
    _dispose(world, entry)
    assert standing(world, entry) == []


# Number of savepoints that a series keeps.

DAY_MS = 24 * 3_600_000


def _series(*days: int) -> tuple[SavepointEntry, ...]:
    return tuple(
        SavepointEntry(
            number, f"{number}", TARGET, f"f{number}", 0, 1, "e", Status.COMPLETED, ended_at_ms=(100 - day) * DAY_MS
        )
        for number, day in enumerate(days, 1)
    )


@pytest.mark.parametrize(
    ("rule", "days", "gone"),
    [
        (HistoryRule(), (9, 8, 1), []),
        (HistoryRule(keep=2), (9, 8, 1), [1]),
        (HistoryRule(keep=3), (9, 8, 1), []),
        (HistoryRule(keep=1), (), []),
        (HistoryRule(max_age=timedelta(days=8)), (9, 8, 1), [1]),
        (HistoryRule(max_age=timedelta(days=1)), (9, 8, 7), [1, 2]),
        (HistoryRule(keep=2, max_age=timedelta(days=8)), (9, 8, 1), [1]),
        (HistoryRule(keep=2, max_age=timedelta(days=1)), (9, 8, 1), [1, 2]),
        (HistoryRule(keep=1, max_age=timedelta(days=30)), (9, 8, 1), [1, 2]),
    ],
)
def test_which_are_outdated(rule: HistoryRule, days: tuple[int, ...], gone: list[int]) -> None:  # semantics P3
    assert [entry.id for entry in rule.outdated(_series(*days), 100 * DAY_MS)] == gone


def test_failed_ones_do_not_count() -> None:
    series = _series(3, 2, 1)
    failed = (*series[:2], replace(series[2], status=Status.FAILED))
    assert [entry.id for entry in HistoryRule(keep=1).outdated(failed, 100 * DAY_MS)] == [1]


@pytest.mark.parametrize(
    ("options", "problem"),
    [({"keep": 0}, "keep"), ({"max_age": timedelta(0)}, "max_age must be a timedelta of more than zero")],
)
def test_a_bad_rule_is_refused(options: dict[str, object], problem: str) -> None:
    with pytest.raises(InvalidConfigError, match=problem):
        HistoryRule(**options)  # type: ignore[arg-type]


def test_a_series_is_pruned_and_nothing_else(world: World) -> None:  # semantics P3
    world.run_epoch("e1")
    by_hand = take(world)
    nightly = [take(world, asked(f"nightly/{day}")) for day in range(5)]
    found = _prune(world, keep=3, series="nightly/")
    assert ([each.uri for each in found.disposed], found.kept) == ([entry.uri for entry in nightly[:2]], ())
    assert world.coordinator().head().savepoints == (by_hand, *nightly[2:])
    assert [standing(world, entry) for entry in nightly[:2]] == [[], []]


def test_one_that_cannot_be_read_keeps_no_other(world: World) -> None:  # semantics P3, C5
    world.run_epoch("e1")
    first, second, _ = (take(world, asked(f"{number}")) for number in range(3))
    newer = folder(world, first).get("_metadata").data.replace(b'"format":2', b'"format":99', 1)
    folder(world, first).delete(["_metadata"])
    folder(world, first).create("_metadata", newer)
    found = _prune(world)
    assert [each.uri for each in found.disposed] == [second.uri]
    ((uri, why),) = found.kept
    assert uri == first.uri
    assert "the document was written by a newer Cairn" in why


@pytest.mark.parametrize(
    ("edit", "why"),
    [
        (
            (b'"target":"s3://elsewhere/savepoints"', b'"target":"s3://theirs/savepoints"'),
            "another target than the one named",
        ),
        ((b'"request":"n/1"', b'"request":"n/x"'), "the folder says that it is another savepoint's"),
        ((b'"id":2', b'"id":1'), "the folder says that it is another savepoint's"),
    ],
)
def test_a_history_deletes_nothing_that_only_the_record_names(  # semantics P3, W10
    world: World, edit: tuple[bytes, bytes], why: str
) -> None:
    world.run_epoch("e1")
    first = take(world, asked("n/1"))
    take(world, asked("n/2"))
    others = Below(world.store, f"s3://theirs/savepoints/{first.folder}")
    for key in standing(world, first):
        others.create(key, folder(world, first).get(key).data)
    head = world.memory.get("flights/head.json").data
    at = head.index(b'"savepoints":[')
    world.memory.put("flights/head.json", head[:at] + head[at:].replace(*edit, 1))
    before = world.memory.all_keys()
    found = _prune(world, series="n/")
    assert (len(found.disposed), world.memory.all_keys()) == (0, before)
    assert why in found.kept[0][1]


def test_a_savepoint_under_way_is_not_emptied_as_failed(world: World) -> None:  # semantics P3
    """The folder is another request's: the record of a job leads there all the same."""
    world.run_epoch("e1")
    entry = _failed(world)
    request = folder(world, entry).get("_request").data.replace(b"by hand", b"another")
    world.memory.put(f"{Below(world.store, entry.uri).prefix}_request", request)
    before = standing(world, entry)
    _dispose(world, entry, force=True)
    assert standing(world, entry) == before


def test_what_is_needed_is_kept_beyond_its_time(world: World) -> None:  # semantics P3
    world.run_epoch("e1")
    first, second = take(world, asked("1")), take(world, asked("2"))
    _claimed(world, first)
    found = _prune(world)
    assert [uri for uri, _ in found.kept] == [first.uri]
    assert "the job flights owns it" in found.kept[0][1]
    assert world.coordinator().head().savepoints == (first, second)


# Savepoints that are gone: their meaning for the job, and what works while the job does not run.


def _paused(world: World) -> None:
    world.trigger("e2")
    world.run_stage("e2", "clean")
    world.coordinator().pause()


def _stopped(world: World) -> None:
    take(world, asked("n9", stop=True))


@pytest.mark.parametrize("idle", [_paused, _stopped], ids=["paused", "stopped"])
def test_what_is_too_old_goes_while_no_run_is_active(world: World, idle: Callable[[World], None]) -> None:
    # semantics P3, C3, S1
    world.run_epoch("e1")
    made = [take(world, asked(f"n{number}")) for number in range(3)]
    idle(world)
    stray = "flights/chk-0000000001/state/clean/9-00000000000000ff/x"
    world.memory.put(stray, b"of a driver that died")
    found = _prune(world, series="n")
    kept = world.coordinator().head().savepoints
    assert [each.uri for each in found.disposed] == [each.uri for each in made if each not in kept]
    assert len(kept) == 1
    assert_whole(world, kept[0])
    assert [standing(world, each) for each in made if each not in kept] == [[]] * len(found.disposed)
    report = world.coordinator().clean()
    assert (report.deleted, report.failures) == (1, ())
    assert stray not in world.memory.all_keys("flights/")
    world.coordinator().resume()
    world.run_epoch("e2")
    assert world.folded()["clean"] == ["e1", "e2"]


@pytest.mark.parametrize("above", ["", "below/", "below/deep/"], ids=["in it", "above it", "two above"])
@pytest.mark.parametrize("inside", [True, False], ids=["of this storage", "elsewhere"])
def test_one_that_was_copied_over_a_jobs_folder_is_never_deleted(world: World, above: str, inside: bool) -> None:
    # semantics P3, C3
    entry, _ = _two(world)
    place = f"{world.store.uri}/other" if inside else "s3://elsewhere/root/other"
    where = f"{place}/{above}".rstrip("/")

    def opened(uri: str) -> ObjectStore:
        return world.store if uri == world.store.uri else _Within(world, uri)

    target = opened(where)
    for key in standing(world, entry):
        target.create(key, folder(world, entry).get(key).data)
    opened(place).create("head.json", b"{}")
    runtime, before = Runtime(world.clock, world.new_token), world.memory.all_keys()
    for force in (False, True):
        with raises_code("savepoint_refused", match=r"a job lives in the savepoint's folder.*head=`.*other/head.json"):
            dispose(world.store, target, runtime, opened, force=force)
    with raises_code("savepoint_refused", match="a job lives in the savepoint's folder"):
        Coordinator(world.store, "new", runtime).start_from(target, ImportOptions(claim=True), open_folder=opened)
    assert [key for key in before if key not in world.memory.all_keys()] == [], "nothing was deleted"
    assert Coordinator(world.store, "new").head().revision == 0
    Coordinator(world.store, "new", runtime).start_from(target)
    assert [key for key in before if key not in world.memory.all_keys()] == [], (
        "who does not claim it may start from it"
    )


class _Within(Below):
    """A folder of the world's store, wherever its URI says that it lies."""

    def __init__(self, world: World, uri: str) -> None:
        super().__init__(world.store, uri)
        if uri.startswith(f"{world.store.uri}/"):
            self.prefix = f"{uri.removeprefix(f'{world.store.uri}/')}/"


class _Counting(WrappedStore):
    """Calls back at each request."""

    def __init__(self, inner: ObjectStore, each: Callable[[], None]) -> None:
        super().__init__(inner)
        self._each = each

    def _read(self, verb: str, key: str, call: Callable[[], T]) -> T:
        self._each()
        return call()

    _write = _read


@pytest.mark.soak  # drawn; each step is above
def test_a_history_goes_on_beside_a_disposal_and_leaves_no_folder(tmp_path: Path) -> None:  # semantics P3
    """At each request another process disposes of all that the history is to dispose of."""
    target, at, requests = f"file://{tmp_path}/kept", -1, 0
    (tmp_path / "kept").mkdir()
    runtime = Runtime(Clock(), World().new_token)
    while at < requests:
        at, requests = at + 1, 0
        world = World(open_store(f"file://{tmp_path}/jobs-{at}"))
        world.run_epoch("e1")
        entries = [world.coordinator().savepoint(asked(name, target), open_store) for name in ("1", "2", "3")]

        def meanwhile(world: World = world, entries: list[SavepointEntry] = entries, now: int = at) -> None:
            nonlocal requests
            requests += 1
            for entry in entries[:2] if requests == now + 1 else ():
                with suppress(NoSavepointError):
                    dispose(world.store, open_store(entry.uri), runtime, open_store, force=True)

        store = _Counting(world.store, meanwhile)
        found = prune(
            store, "flights", HistoryRule(keep=1), target, lambda uri: _Counting(open_store(uri), meanwhile), runtime
        )
        assert (found.kept, world.coordinator().head().savepoints) == ((), (entries[2],)), f"at request {at}"
        assert [each.name for each in (tmp_path / "kept").iterdir()] == [entries[2].folder], f"at request {at}"
        dispose(world.store, open_store(entries[2].uri), runtime, open_store, force=True)
    assert at > 10
    assert list((tmp_path / "kept").iterdir()) == [], "the target stays, and nothing in it"


def test_a_folder_with_a_file_of_its_owner_stays(tmp_path: Path) -> None:
    world = World(open_store(f"file://{tmp_path}/jobs"))
    world.run_epoch("e1")
    entry = world.coordinator().savepoint(asked("1", f"file://{tmp_path}/kept"), open_store)
    folder_ = tmp_path / "kept" / entry.folder
    (folder_ / "notes.txt").write_text("the owner's")
    dispose(world.store, open_store(entry.uri), Runtime(world.clock, world.new_token), open_store, force=True)
    assert [each.name for each in folder_.iterdir() if each.is_file()] == ["notes.txt"]
