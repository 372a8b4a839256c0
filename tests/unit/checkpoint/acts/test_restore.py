"""Restore-latest: verification, falling back, replaying what was bypassed (semantics R1, R2, R5)."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_cairn.checkpoint import CheckpointConfig
from airflow_cairn.checkpoint.answers import EpochCompleted, FailedOver
from airflow_cairn.checkpoint.documents import layout
from airflow_cairn.checkpoint.documents.acknowledgement import ListMode, Output
from airflow_cairn.checkpoint.documents.attempt import StageSpec
from airflow_cairn.checkpoint.documents.metadata import StageLine
from airflow_cairn.checkpoint.errors import InvalidStateError, NoCheckpointError, UnreachableError
from airflow_cairn.checkpoint.reasons import Reason
from airflow_cairn.checkpoint.rules.restored_state import assign
from airflow_cairn.checkpoint.store import metadata_file, verification
from airflow_cairn.storage import CairnError, ForbiddenError, ObjectStat, ObjectStore, UnavailableError
from airflow_cairn.storage.errors import GoneError
from tests.support.errors import raises_code
from tests.support.narrowing import known
from tests.support.world.world import JOB, TIMEOUT, World
from tests.support.wrapped_stores import InterleavingStore, RecordingStore, WrappedStore

_PER_SUBTASK = st.lists(st.lists(st.integers(), max_size=8), min_size=1, max_size=12)
_PARALLELISM = st.integers(1, 20)

ALL = ("clean", "routes", "airports", "report")


def _victim(world: World, checkpoint: int, what: str = "state/clean") -> str:
    prefix = layout.folder(checkpoint)
    return f"{JOB}/{next(key for key in sorted(world.standing()) if key.startswith(prefix) and what in key)}"


def _damage(world: World, checkpoint: int, how: str = "gone") -> str:
    key = _victim(world, checkpoint, "_metadata" if "metadata" in how else "state/clean")
    data = world.memory.get(key).data
    if "gone" in how:
        world.store.delete([key])
    elif "size" in how:
        world.memory.put(key, data + b" ")
    else:
        world.memory.put(key, bytes([data[0] ^ 1]) + data[1:])
    return key


DAMAGES = {
    "gone": "it is gone",
    "other size": "its size differs: expected",
    "altered": "its content differs: expected",
    "metadata gone": "it is gone",
    "metadata of other size": "longer than it was",
    "metadata altered": "the document cannot be read",
}


@pytest.mark.parametrize("how", DAMAGES)
def test_damage_falls_back_to_the_one_before_saying_which_and_why(world: World, how: str) -> None:  # semantics R1
    world.run_epoch("a", "b")
    key = _damage(world, 2, how)
    before = world.memory.all_keys()
    answer = world.trigger("c")
    assert known(answer.pending.restore).checkpoint == 1
    (damage,) = answer.damages
    assert (damage.checkpoint, f"{JOB}/{damage.key}") == (2, key)
    assert DAMAGES[how] in damage.problem
    assert set(before) <= set(world.memory.all_keys()), "reading never deletes"
    record = world.coordinator().head().restores[-1]
    assert (record.checkpoint, record.into) == (1, 3)
    assert record.damages == (str(damage),), "the restore is on record with its reason"
    assert [each.epoch for each in answer.pending.replay] == ["b"], "what it held is made anew"
    world.run_epoch("c")
    assert world.folded() == {uid: ["a", "b", "c"] for uid in ALL}
    assert [entry.id for entry in world.coordinator().head().completed] == [1, 3], "the damaged one has left the store"
    world.coordinator().clean()
    assert world.standing() == world.referred()


@pytest.mark.parametrize("retained", [2, 4])
def test_damage_upon_damage_replays_every_epoch_that_was_lost(world: World, retained: int) -> None:  # semantics R1, T9
    """Checkpoint 3 replayed b. If it is lost too, b is lost with it, though b's own checkpoint left long ago."""
    world.config = CheckpointConfig(timeout=TIMEOUT, retained=retained)
    world.run_epoch("a", "b")
    _damage(world, 2)
    world.run_epoch("c")
    _damage(world, 3)
    assert [each.epoch for each in world.trigger("d").pending.replay] == ["b", "c"]
    world.run_epoch("d")
    assert world.folded() == {uid: ["a", "b", "c", "d"] for uid in ALL}
    world.run_epoch("e")
    assert world.folded() == {uid: ["a", "b", "c", "d", "e"] for uid in ALL}
    for epoch in "abcde":
        assert isinstance(world.coordinator().trigger(world.request(epoch)), EpochCompleted), "a replayed one stays so"


def test_two_damaged_checkpoints_at_once(world: World) -> None:  # semantics R1
    world.config = CheckpointConfig(timeout=TIMEOUT, retained=3)
    world.run_epoch("a", "b", "c")
    _damage(world, 2)
    _damage(world, 3, "metadata gone")
    answer = world.trigger("d")
    assert [each.epoch for each in answer.pending.replay] == ["b", "c"]
    assert {damage.checkpoint for damage in answer.damages} == {2, 3}
    world.run_epoch("d")
    assert world.folded() == {uid: ["a", "b", "c", "d"] for uid in ALL}


def test_with_every_checkpoint_damaged_nobody_starts_empty(world: World) -> None:  # semantics R1, R2
    world.run_epoch("a", "b")
    first, second = _damage(world, 1), _damage(world, 2)
    before = world.coordinator().head()
    with pytest.raises(NoCheckpointError, match="put the file back") as caught:
        world.trigger("c")
    assert second.removeprefix(f"{JOB}/") in str(caught.value)
    after = world.coordinator().head()
    assert [each.reason for each in after.declined] == [Reason.TRIGGER_CHECKPOINT_FAILURE]  # semantics T1
    counters = replace(before.counters, triggered=before.counters.triggered + 1, failed=before.counters.failed + 1)
    assert after.counters == counters  # semantics D5: it failed before it had an id
    assert replace(after, declined=(), revision=before.revision, writes=before.writes) == replace(
        before, counters=counters
    )
    assert [found.whole for found in world.coordinator().verify()] == [False, False]
    assert first != second


def test_with_the_input_of_a_damaged_checkpoint_gone_nobody_guesses(world: World) -> None:  # semantics R1, T8
    world.run_epoch("a", "b")
    _damage(world, 2)
    world.store.delete([f"{JOB}/epochs/b.json"])
    with pytest.raises(NoCheckpointError, match="the input of the epoch that it held is not known") as caught:
        world.trigger("c")
    assert caught.value.fields["epoch"] == "b"


class _Refusing(WrappedStore):
    """Cannot be asked about one folder; it says so in one of the ways a store has."""

    def __init__(self, inner: ObjectStore, error: Callable[..., CairnError], verb: str, part: str) -> None:
        super().__init__(inner)
        self.error, self.verb, self.part = error, verb, part

    def _read(self, verb: str, key: str, call: Callable[[], object]) -> object:  # type: ignore[override]
        if verb == self.verb and self.part in key:
            raise self.error("the store is told to refuse this", key=key)
        return call()


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (UnavailableError, UnavailableError),
        (ForbiddenError, ForbiddenError),
        (partial(GoneError, code="bucket_gone"), UnreachableError),
    ],
)
@pytest.mark.parametrize(("verb", "part"), [("list", ""), ("read_range", "_metadata"), ("stat", "state/clean")])
def test_what_cannot_be_read_now_is_an_error_and_no_damage(
    world: World, error: Callable[..., CairnError], raised: type[CairnError], verb: str, part: str
) -> None:  # semantics R1, W3
    world.run_epoch("a", "b")
    store: ObjectStore = world.store
    if verb == "stat":  # a listing without tags, as local files give, is completed by a stat
        store = _WithoutTags(store)
    with pytest.raises(raised):
        world.trigger("c", _Refusing(store, error, verb, part))
    assert len(world.coordinator().head().completed) == 2
    assert world.trigger("c").damages == ()


class _WithoutTags(WrappedStore):
    def list(self, prefix: str, *, start_after: str | None = None) -> object:  # type: ignore[override]
        for found in self.inner.list(prefix, start_after=start_after):
            yield ObjectStat(found.key, found.size_bytes, None)


def test_a_listing_that_lacks_a_file_is_confirmed_by_name(world: World) -> None:  # semantics R1
    class Forgets(WrappedStore):
        def list(self, prefix: str, *, start_after: str | None = None) -> object:  # type: ignore[override]
            return iter(()) if "/state/" in prefix else self.inner.list(prefix, start_after=start_after)

    world.run_epoch("a")
    assert world.trigger("b", Forgets(world.store)).damages == ()


def test_a_store_without_tags_in_listings_is_verified_too(world: World) -> None:  # semantics R1, W3
    world.run_epoch("a", "b")
    _damage(world, 2, "altered")
    assert [damage.checkpoint for damage in world.trigger("c", _WithoutTags(world.store)).damages] == [2]


def test_damage_seen_on_an_outdated_head_is_none(world: World) -> None:  # semantics R1, C3
    """A checkpoint is subsumed and cleaned while it is being verified: nothing is wrong with the job."""
    world.run_epoch("a", "b")

    def epochs_go_by() -> None:
        world.run_epoch("c", "d", "e")

    for look in ("verify", "restore_latest"):
        twin_store = InterleavingStore(world.store, "list", 0, epochs_go_by, suffix="/")
        found = getattr(world.coordinator(twin_store), look)()
        if look == "verify":
            assert [each.checkpoint for each in found] == [5, 4]
            assert all(each.whole for each in found)
        else:
            assert found.damages == ()


def test_a_fallback_on_an_outdated_head_never_lands(world: World) -> None:  # semantics R1, T6
    world.run_epoch("a", "b")

    def epochs_go_by() -> None:
        world.run_epoch("c", "d", "e")

    store = InterleavingStore(world.store, "list", 0, epochs_go_by, suffix="/")
    answer = world.trigger("f", store)
    assert (answer.damages, answer.pending.replay) == ((), ())
    assert known(answer.pending.restore).checkpoint == 5
    world.run_epoch("f")
    world.audit(*"abcdef")


def test_restore_latest_aborts_what_is_pending_first(world: World) -> None:  # semantics R5
    world.run_epoch("a")
    world.trigger("b")
    world.run_stage("b", "clean")
    choice = world.coordinator().restore_latest()
    assert known(choice.pointer).checkpoint == 1
    head = world.coordinator().head()
    assert head.pending == ()
    assert head.history[-1].reason is Reason.CHECKPOINT_COORDINATOR_SUSPEND
    record = head.restores[-1]
    assert (record.checkpoint, record.into, record.why) == (1, None, "restored manually"), "no execution opened it"
    assert (record.at_ms, head.counters.restored) == (world.clock.now_ms, 2), "the trigger of b restored too"
    assert world.trigger("b").pending.executions["clean"].home == 3, "a restore starts over"


def test_with_no_checkpoint_a_job_starts_empty_unless_one_is_required(world: World) -> None:  # semantics R2
    assert world.coordinator().restore_latest().pointer is None
    with pytest.raises(NoCheckpointError, match="has no completed checkpoint and one is required"):
        world.coordinator().restore_latest(required=True)


def test_verifying_names_what_is_not_retained(world: World) -> None:
    world.run_epoch("a", "b", "c")
    assert [found.checkpoint for found in world.coordinator().verify()] == [3, 2]
    with pytest.raises(NoCheckpointError) as caught:
        world.coordinator().verify(1)
    assert caught.value.fields["retained"] == "2, 3"


def test_verifying_costs_a_request_a_thousand_files(world: World) -> None:  # semantics R1
    world.run_epoch("a")
    recording = RecordingStore(world.store)
    (found,) = world.coordinator(recording).verify()
    assert found.files == 6
    assert recording.requests["list"] == 1, "for all stages"
    assert recording.requests["stat"] == 0
    assert recording.total <= 6


def test_state_that_no_stage_claims_is_an_error_unless_the_author_leaves_it_behind(world: World) -> None:
    """semantics R3, F2: a renamed stage would lose its state without a word; the error names it and both ways out."""
    world.run_epoch("e1")
    world.stages = (StageSpec("clean"), StageSpec("lines", upstream=("clean",)))
    before = world.coordinator().head()
    with raises_code("non_restored_state") as refused:
        world.coordinator().trigger(world.request("e2"))
    text = str(refused.value)
    assert "unclaimed=`airports, report, routes`" in text
    assert "report: table.league, report: value.seen, routes: state.totals" in text
    assert "stages=`clean, lines`" in text
    assert "uid=" in text
    assert "allow_non_restored_state=True" in text
    assert world.coordinator().head() == before
    world.config = replace(world.config, allow_non_restored_state=True)
    world.trigger("e2")
    claimant = world.submit("e2", "clean").handover.claimant
    assert isinstance(world.coordinator().fail("e2", "clean", claimant, "died"), FailedOver), "which does not ask again"
    world.run_epoch("e2")
    assert world.folded() == {"clean": ["e1", "e2"], "lines": ["e2"]}


@given(_PER_SUBTASK, _PARALLELISM)
def test_split_state_is_given_out_evenly_in_order(held: list[list[int]], parallelism: int) -> None:  # semantics R4
    given_out = assign(ListMode.SPLIT, held, parallelism)
    assert len(given_out) == parallelism
    assert [each for items in given_out for each in items] == [each for items in held for each in items]
    if parallelism == len(held):
        assert [list(items) for items in given_out] == held, "untouched where the parallelism is the same"
    else:
        sizes = [len(items) for items in given_out]
        assert max(sizes) - min(sizes) <= 1
        assert sizes == sorted(sizes, reverse=True)


@given(_PER_SUBTASK, _PARALLELISM)
def test_union_state_goes_to_all(held: list[list[int]], parallelism: int) -> None:  # semantics R4
    everything = tuple(each for items in held for each in items)
    assert assign(ListMode.UNION, held, parallelism) == (everything,) * parallelism


@given(st.lists(st.integers(), max_size=8), _PARALLELISM)
def test_broadcast_state_is_one_copy_each(held: list[int], parallelism: int) -> None:  # semantics R4
    assert assign(ListMode.BROADCAST, [held], parallelism) == (tuple(held),) * parallelism


def _at(world: World, parallelism: int, maximum: int | None = None, stage: str = "report") -> None:
    world.stages = tuple(
        replace(each, parallelism=parallelism, max_parallelism=maximum) if each.uid == stage else each
        for each in world.stages
    )


def _stored_maximum(world: World, stage: str) -> int | None:
    entry = world.coordinator().head().completed[-1]
    lines = metadata_file.read(world.files, entry.metadata)
    return next(line.max_parallelism for line in lines if isinstance(line, StageLine) and line.stage == stage)


def test_the_maximum_is_part_of_each_checkpoint(world: World) -> None:  # semantics R4
    _at(world, 2, 16)
    world.run_epoch("a")
    assert (_stored_maximum(world, "report"), _stored_maximum(world, "clean")) == (16, None)
    _at(world, 2)
    world.run_epoch("b")
    assert _stored_maximum(world, "report") == 16, "a derived one adopts it"
    world.audit("a", "b")


@pytest.mark.parametrize(("parallelism", "maximum"), [(2, 32), (17, None)])
def test_a_trigger_refuses_and_changes_nothing(
    world: World, parallelism: int, maximum: int | None
) -> None:  # semantics R4
    _at(world, 2, 16)
    world.run_epoch("a")
    _at(world, parallelism, maximum)
    before = world.coordinator().head(), world.standing()
    with pytest.raises(InvalidStateError, match="checkpoint=`1`"):
        world.coordinator().trigger(world.request("b"))
    assert (world.coordinator().head(), world.standing()) == before
    _at(world, 2)
    world.run_epoch("b")
    world.audit("a", "b")


def test_raw_files_hold_a_stage_to_its_parallelism(world: World) -> None:  # semantics R4
    world.trigger("a")
    world.run_stage("a", "clean", "routes", "airports")
    ack = world.write(world.submit("a", "report").handover)
    model = Output("files", "model", f"{ack.outputs[0].folder.rpartition('/')[0]}/files.model")
    world.coordinator().acknowledge(replace(ack, outputs=(*ack.outputs, model)))
    world.coordinator().complete(1)
    _at(world, 3)
    with pytest.raises(InvalidStateError, match=r"parallelism=`3` restored_parallelism=`2` state=`files\.model`"):
        world.coordinator().trigger(world.request("b"))


def test_keyed_state_fixes_the_maximum_without_a_parallelism(world: World) -> None:  # semantics R4
    world.trigger("a")
    world.run_stage("a", "clean")
    ack = world.write(world.submit("a", "routes").handover)
    keyed = tuple(replace(each, key_groups=128) if each.kind == "state" else each for each in ack.outputs)
    loose = Output("state", "loose", f"{ack.outputs[0].folder.rpartition('/')[0]}/state.loose")
    world.coordinator().acknowledge(replace(ack, outputs=(*keyed, loose)))
    world.run_stage("a", "airports", "report")
    world.coordinator().complete(1)
    _at(world, 129, stage="routes")
    with pytest.raises(InvalidStateError, match=r"stage=`routes` parallelism=`129` restored_max_parallelism=`128`"):
        world.coordinator().trigger(world.request("b"))
    _at(world, 2, stage="routes")
    world.trigger("b")
    world.run_stage("b", "clean")
    handover = world.submit("b", "routes").handover
    assert (handover.parallelism, handover.max_parallelism) == (2, 128), "the application is told the groups"
    world.drive(handover)
    world.run_stage("b", "airports", "report")
    world.coordinator().complete(2)
    world.audit("a", "b")


def test_two_recorded_maxima_of_one_stage_are_refused(world: World) -> None:  # semantics R4
    """The metadata names two states of one stage that were written by different numbers of key groups."""
    world.trigger("a")
    world.run_stage("a", "clean")
    ack = world.write(world.submit("a", "routes").handover)
    folder = ack.outputs[0].folder.rpartition("/")[0]
    twice = tuple(Output("state", f"s{n}", f"{folder}/state.s{n}", key=("k",), key_groups=n) for n in (64, 128))
    world.coordinator().acknowledge(replace(ack, outputs=(*ack.outputs, *twice)))
    world.run_stage("a", "airports", "report")
    world.coordinator().complete(1)
    with pytest.raises(InvalidStateError, match=r"stage=`routes` recorded=`64 and 128`"):
        world.coordinator().trigger(world.request("b"))
    assert world.coordinator().head().pending == ()


def test_metadata_that_describes_another_checkpoint_is_damage(world: World) -> None:  # semantics R1
    world.run_epoch("a", "b")
    first, second = world.coordinator().head().completed
    (damage,) = verification.verify(world.files, replace(second, metadata=first.metadata)).damages
    assert (damage.checkpoint, damage.key) == (2, first.metadata.key)
    assert "another checkpoint" in damage.problem
