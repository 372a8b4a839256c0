"""Compactions that a cleaning leaves or deletes (semantics K4, K7)."""

from collections.abc import Iterator

import pytest

from airflow_cairn.checkpoint.store import compactions
from airflow_cairn.spark.stored import deltas
from airflow_cairn.storage.port import PendingUpload
from tests.support.world import grown_state
from tests.support.world.world import World
from tests.support.wrapped_stores import InterleavingStore, WrappedStore

TOKEN, OTHER = "c0ffee", "decaf"


@pytest.fixture
def grown(world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    """A job whose state has a base and a run, and none of them is merged by itself."""
    for bound in ("FAN_IN", "FAN_IN_PARTIALS", "MAX_EPOCHS", "MAX_SHARE"):
        monkeypatch.setattr(deltas, bound, 1000)
    world.appends = True
    world.run_epoch("e1", "e2")
    return world


def rewrite(world: World, monkeypatch: pytest.MonkeyPatch, *epochs: str) -> None:
    """Run epochs that write a new base themselves."""
    with monkeypatch.context() as patch:
        patch.setattr(deltas, "MAX_EPOCHS", 0)
        world.run_epoch(*epochs)


def of(world: World, token: str = TOKEN) -> set[str]:
    """Keys of a compaction's objects."""
    return {key for key in world.standing() if token in key}


def records_of(world: World) -> list[compactions.Record]:
    return list(compactions.of_stage(world.files, "report", 1))


@pytest.mark.parametrize("finish", [True, False])
def test_it_stays_as_long_as_a_checkpoint_names_all_that_it_replaces(
    grown: World, monkeypatch: pytest.MonkeyPatch, finish: bool
) -> None:
    grown_state.compact(grown, TOKEN, finish=finish)
    there = of(grown)
    assert len(there) == 2, "the record and a file"
    assert grown.coordinator().leftovers().dead == ()
    assert (grown.coordinator().clean().deleted, of(grown)) == (0, there)
    rewrite(grown, monkeypatch, "e3")
    assert of(grown) == there, "an older checkpoint is retained, and may be gone back to"
    rewrite(grown, monkeypatch, "e4", "e5", "e6")
    assert of(grown) == set()
    grown.audit("e1", "e2", "e3", "e4", "e5", "e6")


def test_an_adopted_base_stays_when_its_record_has_gone(grown: World) -> None:
    assert grown_state.compact(grown, TOKEN)
    grown.run_epoch("e3", "e4", "e5", "e6")
    [base] = of(grown)
    assert base.endswith("part-0")
    grown.audit("e1", "e2", "e3", "e4", "e5", "e6")


def test_what_was_given_up_or_has_no_record_is_deleted_and_never_finished(grown: World) -> None:
    grown_state.compact(grown, TOKEN, finish=False)
    grown_state.compact(grown, OTHER, finish=False)
    first, second = records_of(grown)
    assert compactions.give_up(grown.files, first)
    assert not compactions.finish(grown.files, first, first.document.output, ())
    grown.files.delete([second.key])
    assert not compactions.finish(grown.files, second, second.document.output, ())
    assert grown.coordinator().clean().deleted == 3
    assert of(grown) | of(grown, OTHER) == set()
    grown.run_epoch("e3")
    grown.audit("e1", "e2", "e3")


def test_what_is_finished_is_not_given_up(grown: World) -> None:
    grown_state.compact(grown, TOKEN, finish=False)
    [record] = records_of(grown)
    assert compactions.finish(grown.files, record, record.document.output, ())
    assert not compactions.give_up(grown.files, record)


def test_a_broken_record_is_reported_and_adopted_by_no_epoch(grown: World, caplog: pytest.LogCaptureFixture) -> None:
    assert grown_state.compact(grown, TOKEN)
    [record] = records_of(grown)
    grown.files.delete([record.key])
    grown.files.create_bytes(record.key, b"{")
    there = of(grown)
    grown.run_epoch("e3")
    assert "A compaction of report is not adopted, because its record is broken" in caplog.text
    report = grown.coordinator().clean()
    [failure] = report.failures
    assert failure.key.endswith(record.key)
    assert "the record is unreadable" in failure.reason
    assert of(grown) == there, "which epoch may have adopted it is not known"


def test_a_broken_record_keeps_no_other_compaction_from_being_adopted(grown: World) -> None:  # semantics K7
    """Other compactions of the state and of the stage go on, and so does a compactor."""
    assert grown_state.compact(grown, TOKEN)
    [record] = records_of(grown)
    grown.files.create_bytes(record.key.replace(TOKEN, OTHER), b"{")
    assert [each.key for each in records_of(grown)] == [record.key]
    grown.run_epoch("e3")
    assert any(TOKEN in key for key in grown.referred())


@pytest.mark.parametrize("verb", ["list", "get"])
def test_a_stale_cleaner_keeps_a_compaction_of_an_adopted_base(grown: World, verb: str) -> None:
    """The second one replaces the base of the first, which no checkpoint names that the cleaner knows."""
    assert grown_state.compact(grown, TOKEN)

    def meanwhile() -> None:
        grown.run_epoch("e3")
        assert grown_state.compact(grown, OTHER)

    suffix = f"{TOKEN}.json" if verb == "get" else ""
    grown.coordinator(InterleavingStore(grown.store, verb, 0, meanwhile, suffix)).clean()
    assert len(of(grown, OTHER)) == 2
    grown.run_epoch("e4")
    assert any(OTHER in key for key in grown.referred()), "it was adopted"
    grown.audit("e1", "e2", "e3", "e4")


def test_a_stale_cleaner_keeps_a_base_without_its_record(grown: World) -> None:
    assert grown_state.compact(grown, TOKEN)

    def meanwhile() -> None:
        grown.run_epoch("e3", "e4", "e5", "e6")
        grown.coordinator().clean()
        assert not records_of(grown), "no checkpoint names any more what it replaces"

    grown.coordinator(InterleavingStore(grown.store, "list", 0, meanwhile, "")).clean()
    grown.audit("e1", "e2", "e3", "e4", "e5", "e6")


@pytest.mark.parametrize(("verb", "suffix"), [("list", ""), ("get", f"{TOKEN}.json")])
def test_and_one_that_replaced_such_a_base(grown: World, verb: str, suffix: str) -> None:
    assert grown_state.compact(grown, TOKEN)

    def meanwhile() -> None:
        grown.run_epoch("e3", "e4", "e5")
        assert grown_state.compact(grown, OTHER)
        grown.run_epoch("e6", "e7", "e8", "e9")
        grown.coordinator().clean()

    grown.coordinator(InterleavingStore(grown.store, verb, 0, meanwhile, suffix)).clean()
    assert any(OTHER in key for key in grown.referred()), "it was adopted"
    grown.audit(*(f"e{number}" for number in range(1, 10)))


def test_an_upload_of_a_compaction_that_stays_is_left_alone(grown: World) -> None:  # semantics W7
    """Uploads of a compaction that was given up, or has no record, are aborted."""
    aborted: list[str] = []

    class HasUploads(WrappedStore):
        def uploads(self, prefix: str) -> Iterator[PendingUpload]:
            for token in (TOKEN, OTHER, "none"):
                yield PendingUpload(f"{prefix}chk-0000000001/state/report/0-{token}/1/state.newest/part-1", token, 0)

        def abort_upload(self, upload: PendingUpload) -> None:
            aborted.append(upload.upload_id)

    for token in (TOKEN, OTHER):
        grown_state.compact(grown, token, finish=False)
    compactions.give_up(grown.files, next(each for each in records_of(grown) if OTHER in each.key))
    grown.coordinator(HasUploads(grown.store)).clean()
    assert aborted == [OTHER, "none"]
