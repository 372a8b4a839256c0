"""Cleaning: what may go, what may not, and cleaners that work by an outdated head (semantics C3, D4, W7)."""

from collections.abc import Callable, Iterable

import pytest

from airflow_cairn.checkpoint import CheckpointConfig, cleaner
from airflow_cairn.checkpoint.documents import layout
from airflow_cairn.checkpoint.reasons import Reason
from airflow_cairn.storage import ForbiddenError, GoneError
from airflow_cairn.storage.port import DeleteFailures
from tests.support.world.world import JOB, TIMEOUT, World
from tests.support.wrapped_stores import InterleavingStore, RecordingStore, WrappedStore

Change = Callable[[World], object]


def _fail_over(world: World) -> None:
    world.submit("b", "routes")
    world.submit("b", "routes")


def _expire_and_take_up(world: World) -> None:
    world.clock.advance(TIMEOUT)
    world.submit("b", "routes")


def _restart(world: World) -> None:
    world.coordinator().restore_latest()
    world.trigger("b")


CHANGES: dict[str, Change] = {
    "a completion": lambda world: world.run_epoch("b"),
    "many completions": lambda world: world.run_epoch(*"bcdef"),
    "failovers": _fail_over,
    "an expiry and a take-up": _expire_and_take_up,
    "a restore": _restart,
    "another cleaner": lambda world: [world.coordinator().clean() for _ in range(2)],
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize(("verb", "at"), [("list", 0), ("delete", 0), ("read_range", 0), ("get", 0), ("get", 1)])
def test_a_cleaner_with_an_outdated_head_deletes_nothing_alive(
    world: World, change: str, verb: str, at: int
) -> None:  # semantics C3
    world.bulky = at == 1
    world.run_epoch("a")
    world.trigger("b")
    world.run_stage("b", "clean", "airports")
    store = InterleavingStore(world.store, verb, at, lambda: CHANGES[change](world))
    report = world.coordinator(store).clean()
    assert report.failures == (), "what is gone by a newer head is no damage"
    epochs = "abcdef" if change == "many completions" else "ab"
    world.run_epoch("b")
    world.audit(*epochs)


def test_a_slow_cleaner_keeps_what_the_next_attempt_has_carried_over(world: World) -> None:  # semantics C3, F2
    """The document that it goes by is taken by a quicker cleaner, because another attempt holds the executions now."""
    world.run_epoch("a")
    world.trigger("b")
    ended = world.pending_id("b")
    world.run_stage("b", "clean")
    world.clock.advance(TIMEOUT)
    world.coordinator().progress("b")
    token = next(entry.token for entry in world.coordinator().head().history if entry.id == ended)

    def take_up_and_clean() -> None:
        world.submit("b", "routes")
        world.coordinator().clean()

    store = InterleavingStore(world.store, "get", 0, take_up_and_clean, suffix=f"pending-{token}.json")
    world.coordinator(store).clean()
    assert any(key.startswith(f"{layout.folder(ended)}acks/clean/") for key in world.standing())
    world.run_epoch("b")
    world.audit("a", "b")


def test_a_cleaning_that_dies_half_way_is_finished_by_the_next(world: World) -> None:  # semantics C3
    class DiesHalfWay(WrappedStore):
        def delete(self, keys: Iterable[str]) -> DeleteFailures:
            wanted = list(keys)
            self.inner.delete(wanted[: len(wanted) // 2])
            raise SystemError("the process is told to die here")

    world.run_epoch("a")
    world.run_stages("b")
    world.coordinator().complete(2)
    before = len(world.standing())
    with pytest.raises(SystemError):
        world.coordinator(DiesHalfWay(world.store)).clean()
    assert len(world.referred()) < len(world.standing()) < before
    world.coordinator().clean()
    world.audit("a", "b")


def test_uploads_that_may_not_be_listed_fail_nothing(world: World) -> None:  # semantics W7
    class Forbids(WrappedStore):
        def uploads(self, prefix: str) -> object:  # type: ignore[override]
            raise ForbiddenError("no right to list uploads", key=prefix)

    world.run_epoch("a")
    (failure,) = world.coordinator(Forbids(world.store)).clean().failures
    assert "no right to list uploads" in failure.reason


def test_a_cleaning_that_spares_looks_goes_by_the_head_that_it_knows(world: World) -> None:  # semantics C3
    """What no checkpoint refers to by an older head stays dead; what has died since is left to the next one."""
    world.run_epoch("a", "b")
    store = RecordingStore(world.store)
    coordinator = world.coordinator(store)
    coordinator.head()
    world.run_stages("c")
    world.coordinator().complete(3)
    store.requests.clear()
    coordinator.clean(spares_looks=True)
    assert not [write for write in store.writes if "chk-0000000003" in write.key]
    assert {key for key in world.standing() if "chk-0000000001/state/clean" in key}, "dead since"
    world.coordinator().clean()
    world.audit("a", "b", "c")


def test_a_cleaning_that_spares_looks_finds_uploads_later(world: World) -> None:  # semantics W7
    def looks(*epochs: str) -> list[bool]:
        found = []
        for epoch in epochs:
            world.run_epoch(epoch)
            store = RecordingStore(world.store)
            world.coordinator(store).clean(spares_looks=True)
            found.append("uploads" in store.requests)
        return found

    assert looks("a", "b", "c") == [True, False, False], "what came before the first is not known"
    world.trigger("d")
    world.coordinator().abort(4, Reason.JOB_FAILURE, "by hand")
    assert looks("d", "e", "f", "g", "h", "i") == [True, False, False, False, False, True], "4 has failed; 10 is one"


@pytest.mark.parametrize("damage", ["gone", "broken"])
def test_below_metadata_that_cannot_be_read_nothing_is_deleted(world: World, damage: str) -> None:  # semantics C3
    world.run_epoch("a", "b")
    metadata = next(key for key in world.referred() if key.startswith("chk-0000000001/_metadata"))
    if damage == "gone":
        world.store.delete([f"{JOB}/{metadata}"])
    else:
        world.memory.put(f"{JOB}/{metadata}", b"{}")
    world.run_stages("c")
    kept = {key for key in world.standing() if key.startswith("chk-0000000001/")}
    report = world.coordinator().clean()
    assert {key for key in world.standing() if key.startswith("chk-0000000001/")} == kept
    (failure,) = report.failures
    assert failure.key == f"{JOB}/{metadata}"
    assert "the metadata is unreadable" in failure.reason
    world.run_epoch("c")
    world.audit("a", "b", "c")


def test_a_pending_document_that_is_gone_stops_cleaning(world: World) -> None:  # semantics C3
    world.bulky = True
    pending = world.trigger("a").pending
    world.run_stage("a", "clean")
    world.store.delete([f"{JOB}/{layout.pending(1, pending.token)}"])
    before = world.memory.all_keys()
    with pytest.raises(GoneError):
        world.coordinator().clean()
    assert world.memory.all_keys() == before


def test_what_a_pending_attempt_restores_is_kept_though_no_longer_retained(world: World) -> None:  # semantics C3
    world.config = CheckpointConfig(timeout=TIMEOUT, retained=1, max_concurrent_checkpoints=2)
    world.run_epoch("z")
    world.trigger("a")
    world.trigger("b")
    reading = world.submit("b", "clean").handover
    world.run_epoch("a")
    assert [entry.epoch for entry in world.coordinator().head().completed] == ["a"]
    world.write(reading)  # its driver still reads the state of z
    world.run_epoch("b")
    world.audit("z", "a", "b")


def test_leftovers_of_a_given_up_epoch_go_with_the_next_completion(world: World) -> None:  # semantics D4
    world.run_epoch("z")
    world.trigger("a")
    world.run_stage("a", "clean")
    world.coordinator().abort(2, Reason.JOB_FAILURE, "by hand")
    world.run_epoch("b")
    kept = world.standing() - world.referred()
    assert kept == world.lent() & world.standing(), "what it computed without b is no use; which stages had begun is"
    world.run_epoch("a")
    assert world.standing() == world.referred()
    assert world.folded()["clean"] == ["z", "b", "a"]


@pytest.mark.parametrize("key", ["chk-.DS_Store", "chk-0/x", "chk-old/x", "d/x", "epoch-"])
def test_a_foreign_key_does_not_stop_cleaning(world: World, key: str) -> None:  # semantics C3, W1
    """Foreign keys sort among the checkpoints: the cleaner deletes the dead ones behind them, and reports the keys."""
    world.memory.put(f"{JOB}/{key}", b"a user's own")
    world.run_epoch(*"abcd")
    assert not [found for found in world.standing() if layout.checkpoint_of(found) == 2], "subsumed, and dead"
    assert world.coordinator().clean().foreign == (f"{JOB}/{key}",)
    own = [f"{JOB}/{each}" for each in (key, "savepoints/mine", "shared/x", "notes.txt", "epochs/zzz.json")]
    for each in own[1:]:
        world.memory.put(each, b"a user's own")
    world.run_epoch(*"ef")
    assert all(world.memory.get(each).data == b"a user's own" for each in own)


def test_a_foreign_key_does_not_keep_the_lists_of_epochs(world: World) -> None:  # semantics C3
    world.run_epoch(*"abcd")
    world.memory.put(f"{JOB}/chk-z", b"a user's own")
    world.memory.put(f"{JOB}/epoch-lists/a/files.jsonl", b"{}")
    assert world.coordinator().clean().deleted == 1


def test_a_report_names_so_many_foreign_keys_and_no_more(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cleaner, "MAX_FOREIGN", 2)
    for number in range(3):
        world.memory.put(f"{JOB}/chk-foreign/{number}", b"x")
    world.run_epoch("a")
    assert world.coordinator().clean().foreign == (f"{JOB}/chk-foreign/0", f"{JOB}/chk-foreign/1")


def test_a_job_that_never_ran_has_nothing_to_clean(world: World) -> None:
    report = world.coordinator().clean()
    assert (report.deleted, report.uploads_aborted, report.failures) == (0, 0, ())
