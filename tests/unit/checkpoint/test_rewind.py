"""Rewinding: an older checkpoint is the newest again, and what came after it runs again, once (R1, R5, T5, T9)."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from functools import partial

import pytest

from airflow_cairn.checkpoint import Runtime
from airflow_cairn.checkpoint.answers import Failed
from airflow_cairn.checkpoint.documents import layout
from airflow_cairn.checkpoint.documents.entries import RewindRecord
from airflow_cairn.checkpoint.documents.head import CompletedNote
from airflow_cairn.checkpoint.errors import CheckpointError, InvalidConfigError, NoCheckpointError
from airflow_cairn.checkpoint.reasons import AckAnswer, Reason, Status
from airflow_cairn.checkpoint.rules import history
from airflow_cairn.checkpoint.rules.rewinds import Rewound, target
from airflow_cairn.checkpoint.store import head_store
from airflow_cairn.checkpoint.store.head_store import Decision, open_heads
from airflow_cairn.storage import UnavailableError
from airflow_cairn.storage.port import ObjectStore
from tests.support.errors import raises_code
from tests.support.narrowing import expect, known
from tests.support.world.world import CONFIG, TIMEOUT, World
from tests.support.wrapped_stores import Fault, FaultyStore, InterleavingStore, RecordingStore

pytestmark = pytest.mark.usefixtures("parsed_documents")

THREE = replace(CONFIG, retained=3)


@pytest.fixture
def world() -> World:
    """Three epochs have completed, all three checkpoints are retained."""
    world = World(config=THREE)
    world.run_epoch("e1", "e2", "e3")
    return world


def test_the_epochs_after_it_run_again(world: World) -> None:  # semantics R1, T5
    before = world.coordinator().head()
    plan = world.coordinator().rewind_plan(1)
    assert plan == Rewound(1, "e1", undone=(2, 3), epochs=("e2", "e3"))
    assert world.coordinator().head() == before, "a plan changes nothing"
    assert world.coordinator().rewind(1) == plan
    head = world.coordinator().head()
    assert [entry.id for entry in head.completed] == [1]
    assert head.rewinds == (RewindRecord(1, 3, world.clock.now_ms),)
    assert [world.run_epoch("e2"), world.run_epoch("e3")] == [4, 5], "ids are never used again"
    assert world.coordinator().head().ended_by_id(4).restored_from == 1  # type: ignore[union-attr]
    world.audit("e1", "e2", "e3")


def test_rewinding_to_the_newest_changes_nothing(world: World) -> None:
    world.trigger("e4")
    before = world.coordinator().head()
    assert world.coordinator().rewind(3) == Rewound(3, "e3")
    assert world.coordinator().head() == before, "what is pending stands on it already"


def test_what_is_not_retained_cannot_be_rewound_to(world: World) -> None:
    world.run_epoch("e4")
    before = world.coordinator().head()
    for checkpoint in (1, 5):
        with pytest.raises(NoCheckpointError, match=r"not retained.*retained=`2, 3, 4`"):
            world.coordinator().rewind(checkpoint)
        with pytest.raises(NoCheckpointError, match="not retained"):
            world.coordinator().rewind_plan(checkpoint)
    assert world.coordinator().head() == before
    world.coordinator().rewind(3)
    with pytest.raises(NoCheckpointError, match="not retained"):
        world.coordinator().rewind(4)  # it was undone, and does not come back


def test_a_damaged_one_cannot_be_rewound_to(world: World) -> None:  # semantics R1
    folder = next(key for key in world.referred() if key.startswith("chk-0000000002/state"))
    world.files.delete([folder])
    before = world.coordinator().head()
    with pytest.raises(NoCheckpointError, match=r"damaged.*it is gone.*cairn verify"):
        world.coordinator().rewind(2)
    assert world.coordinator().head() == before
    assert world.coordinator().rewind(1).undone == (2, 3), "what is undone may be damaged"


def test_it_refuses_while_a_checkpoint_is_pending(world: World) -> None:  # semantics R5
    pending = world.trigger("e4").pending.checkpoint
    before = world.coordinator().head()
    with raises_code("rewind_refused", match=r"is pending.*--abort-pending.*pending=`4`.*runs=`e4`"):
        world.coordinator().rewind(1)
    assert world.coordinator().head() == before
    found = world.coordinator().rewind(1, abort_pending=True)
    assert (found.aborted, found.aborted_epochs) == ((pending,), ("e4",))
    ended = known(world.coordinator().head().ended_by_id(pending))
    assert ended.reason is Reason.CHECKPOINT_COORDINATOR_SUSPEND
    assert ended.detail == "the job was rewound to checkpoint 1"
    world.run_epoch("e2", "e3", "e4")
    world.audit("e1", "e2", "e3", "e4")


def test_what_has_expired_is_not_pending(world: World) -> None:  # semantics D2
    world.trigger("e4")
    world.clock.advance(TIMEOUT + timedelta(seconds=1))
    assert world.coordinator().rewind_plan(1).aborted == ()
    assert world.coordinator().rewind(1).undone == (2, 3)
    ended = known(world.coordinator().head().ended_by_id(4))
    assert ended.reason is Reason.CHECKPOINT_EXPIRED


def test_it_does_what_was_agreed_to_or_nothing(world: World) -> None:
    world.config = replace(THREE, retained=9)
    world.run_epoch("e4", "e5")
    agreed = world.coordinator().rewind_plan(2)
    world.run_epoch("e6")
    before = world.coordinator().head()
    with raises_code("rewind_refused", match=r"has changed since.*agreed=`undoes 3, 4, 5` now=`undoes 3, 4, 5, 6`"):
        world.coordinator().rewind(2, agreed=agreed)
    assert world.coordinator().head() == before
    again = world.coordinator().rewind_plan(3)
    assert world.coordinator().rewind(3, agreed=again) == again


def test_a_second_rewind_covers_the_first(world: World) -> None:
    world.coordinator().rewind(2)
    world.run_epoch("e3")
    world.coordinator().rewind(1)
    assert world.coordinator().head().rewinds == (RewindRecord(1, 4, world.clock.now_ms),)
    world.run_epoch("e2", "e3")
    world.coordinator().rewind(5)
    spans = [(each.to, each.through) for each in world.coordinator().head().rewinds]
    assert spans == [(1, 4), (5, 6)]
    world.run_epoch("e3")
    world.audit("e1", "e2", "e3")


def test_an_epoch_that_was_replayed_runs_again_too(world: World) -> None:  # semantics R1
    for checkpoint in (2, 3):
        damaged = [key for key in world.referred() if key.startswith(f"chk-{checkpoint:010d}/state")]
        world.files.delete(damaged[:1])
    assert world.run_epoch("e4") == 4
    entry = known(world.coordinator().head().completed_by_id(4))
    assert entry.replayed == ("e2", "e3")
    assert world.coordinator().rewind(1).epochs == ("e2", "e3", "e4")
    world.run_epoch("e2", "e3", "e4")
    world.audit("e1", "e2", "e3", "e4")


def test_a_stage_alone_does_not_start_an_undone_epoch(world: World) -> None:  # semantics T9
    world.coordinator().rewind(1)
    with pytest.raises(InvalidConfigError, match=r"rewound to checkpoint 1.*clear the whole run"):
        world.coordinator().begin("e2", "clean", world.new_claimant())
    found = expect(Failed, world.coordinator().go_on("e2"))
    assert (found.checkpoint, found.reason) == (2, Reason.CHECKPOINT_COORDINATOR_SUSPEND)
    assert found.detail == (
        "the job was rewound to checkpoint 1 after checkpoint 2, which held the epoch: clear the whole run, so that it "
        "runs again"
    )
    assert world.coordinator().head().next_id == 4
    pending = world.trigger("e2").pending
    why = "the job was rewound to checkpoint 1 after checkpoint 2, which held the epoch"
    assert (pending.attempt, pending.cause) == (2, why)
    assert world.coordinator().head().restores[-1].checkpoint == 1


def test_what_failed_before_it_lends_nothing_after_it(world: World) -> None:  # semantics F2, C3
    """The base is the newest checkpoint once more, but a cleaner has taken what the failed attempt held."""
    world.coordinator().rewind(1)
    world.trigger("e9")
    world.run_stage("e9", "clean")
    world.coordinator().abort(4, Reason.CHECKPOINT_EXPIRED, "by hand")
    assert world.coordinator().head().carryable("e9") is not None
    world.run_epoch("e2")  # checkpoint 5, after which nothing is kept of what checkpoint 4 had computed
    assert world.coordinator().head().carryable("e9") is None
    assert not [key for key in world.standing() if key.startswith("chk-0000000004/state")]
    world.coordinator().rewind(1)
    world.coordinator().clean()
    kept = {key for key in world.standing() if key.startswith("chk-0000000004/")}
    assert {layout.record_of(key) for key in kept} == {4}, "it went back behind it: people alone read that"
    assert world.coordinator().head().carryable("e9") is None
    world.run_epoch("e2", "e9")
    world.audit("e1", "e2", "e9")


def test_a_failure_that_was_put_up_with_is_not_gone_on_with(world: World) -> None:  # semantics D5
    world.config = replace(THREE, tolerable_failed_checkpoints=3)
    world.trigger("e4")
    world.decline(world.submit("e4", "clean").handover)
    found = expect(Failed, world.coordinator().progress("e4"))
    assert found.tolerated
    world.coordinator().rewind(1)
    found = expect(Failed, world.coordinator().go_on("e4"))
    assert not found.tolerated
    assert "rewound to checkpoint 1 after checkpoint 4, which had failed (CHECKPOINT_DECLINED" in found.detail
    assert world.coordinator().head().pending == ()
    with pytest.raises(InvalidConfigError, match="rewound to checkpoint 1"):
        world.coordinator().begin("e4", "clean", world.new_claimant())


def test_a_driver_of_an_undone_epoch_does_not_count(world: World) -> None:  # semantics A2, W4
    claimant = world.new_claimant()
    world.trigger("e4")
    handover = world.submit("e4", "clean", claimant).handover
    ack = world.write(handover)
    world.coordinator().rewind(2, abort_pending=True)
    assert not world.coordinator().standing(handover).may_count
    assert world.coordinator().acknowledge(ack) is AckAnswer.DISCARDED
    assert not [key for key in world.standing() if key.startswith("chk-0000000004/state")]
    world.run_epoch("e3", "e4")
    world.audit("e1", "e2", "e3", "e4")


@pytest.mark.parametrize("history", [100, 2])
def test_a_source_gives_the_same_again(history: int, monkeypatch: pytest.MonkeyPatch) -> None:  # semantics T8
    monkeypatch.setattr("airflow_cairn.checkpoint.rules.history.MAX_HISTORY", history)
    world = World(config=THREE)
    world.count()
    world.run_epoch("e1", "e2", "e3")
    world.coordinator().rewind(1)
    world.run_epoch("e2", "e3")
    if history == 100:
        world.audit("e1", "e2", "e3")
    assert world.folded()["clean"] == ["e1", "e2", "e3"]
    assert world.run_epoch("e1") == 1, "what it did not undo is not run again"


def test_what_was_noted_before_a_rewind_does_not_count_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The note stays, names a checkpoint that is void, and gives way to that of the next completion."""  # semantics T9
    monkeypatch.setattr(history, "MAX_HISTORY", 2)
    world = World(config=THREE)
    world.run_epoch("e1", "e2", "e3", "e4")
    heads = open_heads(world.files, Runtime(world.clock, world.new_token))
    heads.update(lambda head, _now_ms: Decision(None, replace(head, noted=(*head.noted, CompletedNote("e4", 4)))))
    world.coordinator().rewind(3)
    assert "e4" not in world.coordinator().head().completions()
    assert world.run_epoch("e4") == 5
    world.config = replace(THREE, retained=1)
    world.run_epoch("e5", "e6", "e7")
    assert world.coordinator().head().completions()["e4"] == 5
    assert world.run_epoch("e4") == 5
    assert world.folded()["clean"] == ["e1", "e2", "e3", "e4", "e5", "e6", "e7"]


def test_listeners_hear_of_what_is_aborted_and_not_that_anything_is_undone() -> None:  # semantics C4, D4
    world = World(config=THREE)
    world.listen("warehouse")
    world.run_epoch("e1", "e2", "e3")
    world.coordinator().deliver(world.ears)
    world.trigger("e4")
    world.coordinator().rewind(1, abort_pending=True)
    world.coordinator().deliver(world.ears)
    heard = [(each.checkpoint, each.status, each.latest) for each in world.ears[0].heard]
    assert heard == [
        (1, Status.COMPLETED, 1),
        (2, Status.COMPLETED, 2),
        (3, Status.COMPLETED, 3),
        (4, Status.FAILED, 1),
    ]


def test_which_one_to_rewind_to(world: World) -> None:
    head = world.coordinator().head()
    assert [target(head, checkpoint) for checkpoint in (1, 2, 3, 9)] == [None, 1, 2, 3]


Act = Callable[[World, ObjectStore], object]


def _trigger(_world: World) -> Act:
    return lambda world, store: world.coordinator(store).trigger(world.request("e4"))


def _begin(world: World) -> Act:
    world.trigger("e4")
    return lambda world, store: world.coordinator(store).begin("e4", "clean", "try-x")


def _ack(world: World) -> Act:
    world.trigger("e4")
    ack = world.write(world.submit("e4", "clean").handover)
    return lambda world, store: world.coordinator(store).acknowledge(ack)


def _fail(world: World) -> Act:
    world.trigger("e4")
    world.submit("e4", "clean", "try-x")
    return lambda world, store: world.coordinator(store).fail("e4", "clean", "try-x", "killed")


def _complete(world: World) -> Act:
    world.run_stages("e4")
    return lambda world, store: world.coordinator(store).complete(4)


def _clean(world: World) -> Act:
    world.run_stages("e4")
    world.coordinator().complete(4)
    return lambda world, store: world.coordinator(store).clean()


def _rewind(_world: World) -> Act:
    return lambda world, store: world.coordinator(store).rewind(1)


CONTESTS = (_trigger, _begin, _ack, _fail, _complete, _clean, _rewind)
"""Each brings a world to where an operation on e4 is due, and gives it."""


@pytest.mark.parametrize("to", [2, 3])
@pytest.mark.parametrize("prepare", CONTESTS, ids=lambda prepare: prepare.__name__.strip("_"))
def test_whoever_races_with_a_rewind_is_right_or_told_so(
    prepare: Callable[[World], Act], to: int, world: World
) -> None:
    """At each write of the operation somebody rewinds the job, before the write or before its answer is known."""
    # semantics D3, T6, W2
    run = prepare(world)
    recording = RecordingStore(world.fork().store)
    run(world.fork(), recording)
    seen: Counter[str] = Counter()
    for at, write in enumerate(recording.writes):
        before = partial(InterleavingStore, verb=write.verb, at=seen[write.verb])
        after = partial(FaultyStore, at=at, fault=Fault.ANSWER_LOST)
        seen[write.verb] += 1
        for contested in (before, after):
            twin = world.fork()
            _contest(twin, run, contested, to)
            twin.coordinator().clean()
            assert twin.settle("e1", "e2", "e3", "e4") == []
            done = [entry.epoch for entry in twin.counting()]
            assert sorted(done) == ["e1", "e2", "e3", "e4"], "each completed once, whichever process came first"
            twin.audit(*done)


def _contest(world: World, run: Act, contested: Callable[..., ObjectStore], to: int) -> None:
    struck = False

    def rewind() -> None:
        nonlocal struck
        struck = True
        if world.coordinator().head().completed_by_id(to) is not None:
            world.coordinator().rewind(to, abort_pending=True)

    try:
        run(world, contested(world.store, meanwhile=rewind))
    except (CheckpointError, UnavailableError) as error:
        # An answer that stays lost is a delete's; the process that cleans next repeats it.
        assert isinstance(error, CheckpointError) or "lose this answer" in str(error)
    assert struck


def test_a_rewind_whose_answer_was_lost_undoes_nothing_of_what_came_after(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:  # semantics W2
    """The rewind landed, and so many swaps came after it that the head's log of writes has moved past it."""
    monkeypatch.setattr(head_store, "WRITE_LOG", 4)
    world.config = replace(THREE, retained=9)

    def go_on() -> None:
        world.run_epoch("e2", "e3", "e4")

    store = FaultyStore(world.store, 0, Fault.ANSWER_LOST, go_on)
    assert world.coordinator(store).rewind(1).undone == (2, 3)
    head = world.coordinator().head()
    assert ([entry.id for entry in head.completed], len(head.rewinds)) == ([1, 4, 5, 6], 1)
    world.audit("e1", "e2", "e3", "e4")
