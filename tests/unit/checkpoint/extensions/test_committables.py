"""Committables: listeners are told to commit or to drop them, and never both."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import pytest

from airflow_cairn.checkpoint import Runtime
from airflow_cairn.checkpoint.answers import Submit
from airflow_cairn.checkpoint.documents import head
from airflow_cairn.checkpoint.documents.metadata import StageLine
from airflow_cairn.checkpoint.errors import InvalidStateError
from airflow_cairn.checkpoint.extensions.committables import Committable
from airflow_cairn.checkpoint.reasons import Reason
from airflow_cairn.checkpoint.rules import history
from airflow_cairn.checkpoint.store import metadata_file
from airflow_cairn.spark.acknowledging import MAX_BYTES, Committables
from airflow_cairn.spark.epoch import Epoch
from airflow_cairn.storage.errors import InvalidKeyError
from tests.support.errors import raises_code
from tests.support.narrowing import known
from tests.support.world.lagging import REGIONAL, fail_permanently
from tests.support.world.listeners import trigger_told
from tests.support.world.parties import Ear
from tests.support.world.world import TIMEOUT, World


@pytest.fixture
def ear() -> Ear:
    return Ear("warehouse")


def stage(world: World, epoch: str, uid: str, **committables: Any) -> None:
    """Run a stage whose driver has staged something."""
    answer = world.coordinator().begin(epoch, uid, world.new_claimant())
    if isinstance(answer, Submit):
        world.coordinator().acknowledge(replace(world.write(answer.handover), committables=committables))


def run(world: World, epoch: str) -> int:
    for spec in world.stages:
        stage(world, epoch, spec.uid, **({"orders": f"{epoch}-{spec.uid}"} if spec.uid == "routes" else {}))
    checkpoint = world.pending_id(epoch)
    world.coordinator().complete(checkpoint)
    return checkpoint


def completed_at_the_second_try(world: World) -> None:
    """Complete the epoch a, whose stage routes has failed once after clean had acknowledged."""
    trigger_told(world, "a")
    stage(world, "a", "clean", orders="c1")
    world.submit("a", "routes", "first")
    world.coordinator().fail("a", "routes", "first", "killed")
    run(world, "a")


def heard(ear: Ear) -> list[tuple[int, str, list[Any]]]:
    return [(each.checkpoint, each.status.value, [one.value for one in each.committables]) for each in ear.heard]


def test_what_completes_is_handed_over_to_be_committed(world: World, ear: Ear) -> None:  # semantics C4, C5
    trigger_told(world, "a")
    stage(world, "a", "clean")
    stage(world, "a", "routes", zebra={"at": [1, None]}, orders="0f")
    stage(world, "a", "airports", orders="1f")
    stage(world, "a", "report")
    world.coordinator().complete(1)
    world.coordinator().deliver([ear])
    assert ear.heard[0].committables == (
        Committable("routes", "orders", "0f"),
        Committable("routes", "zebra", {"at": [1, None]}),
        Committable("airports", "orders", "1f"),
    )
    (entry,) = world.coordinator().head().completed
    lines = [line for line in metadata_file.read(world.files, entry.metadata) if isinstance(line, StageLine)]
    assert {line.stage: line.committables for line in lines if line.committables} == {
        "routes": {"zebra": {"at": [1, None]}, "orders": "0f"},
        "airports": {"orders": "1f"},
    }, "it is part of the checkpoint"
    world.audit("a")


def test_it_says_for_whom_it_waits_with_nothing_before(world: World, ear: Ear) -> None:  # semantics C4
    for epoch in ("a", "b"):
        trigger_told(world, epoch, "warehouse", "mail")
        run(world, epoch)
    world.coordinator().deliver([ear])
    assert [each.waiting for each in ear.heard] == [{"warehouse", "mail"}, {"warehouse"}]


def test_nothing_staged_costs_no_read_of_the_metadata(world: World, ear: Ear) -> None:  # semantics C4
    trigger_told(world, "a")
    for spec in world.stages:
        stage(world, "a", spec.uid)
    world.coordinator().complete(1)
    (notice,) = world.coordinator().head().notices
    assert notice.metadata is None
    world.coordinator().deliver([ear])
    assert heard(ear) == [(1, "COMPLETED", [])]


def test_the_metadata_stays_until_it_was_told(world: World, ear: Ear) -> None:  # semantics C3, C4
    """Two checkpoints are retained, and four complete before anybody can be told."""
    for epoch in ("a", "b", "c", "d"):
        trigger_told(world, epoch)
        run(world, epoch)
        world.coordinator().clean()
    world.coordinator().deliver([ear])
    assert heard(ear) == [(number, "COMPLETED", [f"{epoch}-routes"]) for number, epoch in enumerate("abcd", 1)]
    world.audit("a", "b", "c", "d")


def test_what_is_aborted_for_good_is_handed_over_to_be_dropped(world: World, ear: Ear) -> None:  # semantics D4
    trigger_told(world, "a")
    stage(world, "a", "clean", orders="c1")
    stage(world, "a", "routes", orders="r1")
    world.coordinator().restore_latest()  # a wish to start over: nothing of it is ever carried
    world.coordinator().clean()
    world.coordinator().deliver([ear])
    assert heard(ear) == [(1, "FAILED", ["c1", "r1"])]
    assert ear.heard[0].reason is Reason.CHECKPOINT_COORDINATOR_SUSPEND
    trigger_told(world, "a")
    run(world, "a")
    world.coordinator().deliver([ear])
    world.audit("a")


@pytest.mark.parametrize("late", [False, True], ids=["told at once", "told when the epoch has completed with it"])
def test_what_the_next_attempt_has_taken_over_is_not_to_be_dropped(world: World, ear: Ear, late: bool) -> None:
    """semantics D4, F2"""
    trigger_told(world, "a")
    stage(world, "a", "clean", orders="c1")
    world.submit("a", "routes", "first")
    world.coordinator().fail("a", "routes", "first", "killed")
    if not late:
        world.coordinator().deliver([ear])
    run(world, "a")
    world.coordinator().clean()
    world.coordinator().deliver([ear])
    assert heard(ear) == [(1, "FAILED", []), (2, "COMPLETED", ["c1", "a-routes"])]
    world.audit("a")


def test_what_may_still_be_taken_over_is_not_to_be_dropped(world: World, ear: Ear) -> None:  # semantics D2, D4
    trigger_told(world, "a")
    stage(world, "a", "clean", orders="c1")
    world.clock.advance(TIMEOUT)
    world.coordinator().progress("a")
    world.coordinator().deliver([ear])
    assert heard(ear) == [(1, "FAILED", [])]
    run(world, "a")
    world.coordinator().deliver([ear])
    assert heard(ear)[1] == (2, "COMPLETED", ["c1", "a-routes"])


def test_where_the_outcome_is_forgotten_nothing_is_to_be_dropped(world: World, ear: Ear) -> None:  # semantics D4
    """The checkpoint that completed the epoch is not retained any more when the abort is told."""
    completed_at_the_second_try(world)
    for epoch in ("b", "c", "d"):
        trigger_told(world, epoch)
        run(world, epoch)
    world.coordinator().deliver([ear])
    assert heard(ear)[0] == (1, "FAILED", [])


def test_commits_before_a_rewind_are_kept_after_being_forgotten(
    world: World, ear: Ear, monkeypatch: pytest.MonkeyPatch
) -> None:  # semantics C4, D4
    monkeypatch.setattr(history, "MAX_HISTORY", 3)
    run(world, trigger_told(world, "z").pending.epoch)
    completed_at_the_second_try(world)
    world.coordinator().rewind(1)
    for epoch in ("b", "c", "d"):
        trigger_told(world, epoch)
        run(world, epoch)
    assert world.coordinator().head().ended_by_id(3) is None, "nobody but the notices knows of it"
    world.coordinator().deliver([ear])
    assert heard(ear)[1:3] == [(2, "FAILED", []), (3, "COMPLETED", ["c1", "a-routes"])]


@pytest.mark.parametrize("again", [False, True], ids=["undone", "completed anew"])
def test_what_was_committed_before_a_rewind_is_not_to_be_dropped(world: World, ear: Ear, again: bool) -> None:
    # semantics C4, D4: the checkpoint that was undone held it, and its notice still waits
    run(world, trigger_told(world, "z").pending.epoch)
    completed_at_the_second_try(world)
    world.coordinator().rewind(1)
    trigger_told(world, "a")
    stage(world, "a", "clean", orders="c2")
    world.submit("a", "routes", "second")
    world.coordinator().fail("a", "routes", "second", "killed")
    if again:
        world.coordinator().begin("a", "clean", "third")
        run(world, "a")
    world.coordinator().deliver([ear])
    assert heard(ear)[1:4] == [(2, "FAILED", []), (3, "COMPLETED", ["c1", "a-routes"]), (4, "FAILED", [])]


def test_who_read_an_epoch_again_does_not_say_what_it_had_completed_with(
    world: World, ear: Ear, monkeypatch: pytest.MonkeyPatch
) -> None:  # semantics D4, R1
    """Found by the simulation: it holds other executions, so those that had counted were handed over to be dropped."""
    for where in (history, head):
        monkeypatch.setattr(where, "MAX_HISTORY", 1)
    run(world, trigger_told(world, "z").pending.epoch)
    completed_at_the_second_try(world)
    own = (key for key in sorted(world.referred()) if key.startswith("chk-0000000003/") and "totals" in key)
    world.files.delete([next(own)])
    trigger_told(world, "b")
    assert run(world, "b") == 4
    assert world.coordinator().head().completed[-1].replayed == ("a",)
    world.coordinator().deliver([ear])
    dropped_and_committed = [each for each in heard(ear) if each[0] in (2, 3)]
    assert dropped_and_committed == [(2, "FAILED", []), (3, "COMPLETED", ["c1", "a-routes"])]


def test_a_left_out_stage_does_not_commit_its_committables_again(world: World, ear: Ear) -> None:
    # semantics C4, F6: the checkpoint lends its state, and what came with that has been committed
    world.config = REGIONAL
    trigger_told(world, "a")
    run(world, "a")
    trigger_told(world, "b")
    stage(world, "b", "clean")
    fail_permanently(world, "b", "routes")
    stage(world, "b", "airports", orders="1f")
    world.coordinator().complete(2)
    world.coordinator().deliver([ear])
    assert heard(ear) == [(1, "COMPLETED", ["a-routes"]), (2, "COMPLETED", ["1f"])]


@pytest.mark.parametrize("altered", [False, True], ids=["gone", "altered"])
def test_metadata_that_is_damaged_keeps_the_notice(world: World, ear: Ear, altered: bool) -> None:  # semantics C4
    """Nobody knows what was staged, so nothing is told; listeners that are owed nothing of it go on."""
    trigger_told(world, "a")
    run(world, "a")
    trigger_told(world, "b", "warehouse", "mail")
    run(world, "b")
    first, _ = world.coordinator().head().notices
    mail = Ear("mail")
    restored = _damage(world, 1, altered=altered)
    says = r"checkpoint 1 cannot be read; .* cairn forget-listener flights warehouse --checkpoint 1 --yes --storage "
    with raises_code("listener", match=says):
        world.coordinator().deliver([ear, mail])
    assert (ear.heard, heard(mail)) == ([], [(2, "COMPLETED", ["b-routes"])])
    assert world.coordinator().head().notices[0] == first
    restored()
    world.coordinator().deliver([ear])
    assert heard(ear) == [(1, "COMPLETED", ["a-routes"]), (2, "COMPLETED", ["b-routes"])]


def test_one_notice_is_given_up_by_hand(world: World, ear: Ear) -> None:  # semantics C4
    """Somebody has seen to what checkpoint 1 had staged; what comes after it is told as ever."""
    for epoch in ("a", "b"):
        trigger_told(world, epoch, "warehouse", "mail")
        run(world, epoch)
    _damage(world, 1, altered=False)
    assert world.coordinator().forget_listener("warehouse", checkpoint=1) == 1
    assert world.coordinator().forget_listener("warehouse", checkpoint=1) == 0
    world.coordinator().deliver([ear])
    assert heard(ear) == [(2, "COMPLETED", ["b-routes"])]
    assert [(each.checkpoint, each.listeners) for each in world.coordinator().head().notices] == [
        (1, ("mail",)),
        (2, ("mail",)),
    ]


def _damage(world: World, checkpoint: int, *, altered: bool) -> Callable[[], object]:
    """Damage a completed checkpoint's metadata; gives what puts it back."""
    entry = known(world.coordinator().head().completed_by_id(checkpoint))
    key = entry.metadata.key
    data = world.files.get(key, max_bytes=100_000).data
    world.files.delete([key])
    if altered:
        world.files.create_bytes(key, data.replace(b"a-routes", b"a-router"))

    def put_back() -> None:
        world.files.delete([key])
        world.files.create_bytes(key, data)

    return put_back


def epoch_of(world: World, epoch: str, uid: str) -> Epoch:
    """Epoch as the application of a stage has it, without a session."""
    handover = world.submit(epoch, uid).handover
    return Epoch(cast(Any, None), world.store, handover, Runtime(world.clock, world.new_token))


def test_an_application_stages(world: World, ear: Ear) -> None:  # semantics C4, D4
    trigger_told(world, "a")
    world.run_stage("a", "clean")
    epoch = epoch_of(world, "a", "airports")
    with pytest.raises(InvalidStateError, match="commit_on_complete was called before"):
        epoch.commit_on_complete("orders", 1)
    with epoch:
        epoch.commit_on_complete("orders", {"staging": "0f"})
    with pytest.raises(ZeroDivisionError):
        _stage_and_fail(epoch_of(world, "a", "routes"))
    assert world.coordinator().progress("a").reason is Reason.CHECKPOINT_DECLINED  # type: ignore[union-attr]
    run(world, "a")
    world.coordinator().deliver([ear])
    assert heard(ear) == [(1, "FAILED", []), (2, "COMPLETED", ["a-routes", {"staging": "0f"}])]


def _stage_and_fail(epoch: Epoch) -> None:
    with epoch:
        epoch.commit_on_complete("orders", {"staging": "1f"})
        raise ZeroDivisionError


@pytest.mark.parametrize(
    ("name", "value", "error", "text"),
    [
        ("../x", 1, InvalidKeyError, "committable"),
        ("orders", object(), InvalidStateError, "the committable 'orders' cannot be kept"),
        ("orders", float("nan"), InvalidStateError, "the committable 'orders' cannot be kept"),
        ("orders", "x" * MAX_BYTES, InvalidStateError, "are too large"),
        ("first", 2, InvalidStateError, "was given before"),
    ],
)
def test_what_is_refused(name: str, value: Any, error: type[Exception], text: str) -> None:  # semantics W1, W5
    committables = Committables("routes")
    committables.add("first", 1)
    with pytest.raises(error, match=text):
        committables.add(name, value)
    assert committables.values == {"first": 1}
