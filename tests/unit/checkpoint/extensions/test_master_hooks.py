"""Master hooks: asked at the trigger, kept in the checkpoint, and given their own state back."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import pytest

from airflow_cairn.checkpoint.answers import FailedOver, Ready, Triggered, Waiting
from airflow_cairn.checkpoint.documents import layout
from airflow_cairn.checkpoint.errors import (
    CheckpointFailedError,
    CheckpointNotReadyError,
    InvalidConfigError,
    InvalidStateError,
)
from airflow_cairn.checkpoint.extensions.contracts import MAX_ANSWER_BYTES, check_hooks
from airflow_cairn.checkpoint.extensions.master_hooks import call, close_all
from airflow_cairn.checkpoint.reasons import Reason
from airflow_cairn.storage.errors import InvalidKeyError
from tests.support.errors import raises_code
from tests.support.narrowing import expect, known
from tests.support.world.master_hooks import SECOND, asking, run, states, triggered
from tests.support.world.parties import Ear, Ids
from tests.support.world.world import CONFIG, JOB, TIMEOUT, World
from tests.support.wrapped_stores import RecordingStore


def test_who_has_no_hooks_pays_nothing() -> None:  # semantics T7
    """Without hooks a trigger makes the same requests, and no document mentions hooks."""
    counted = []
    for hooks in (False, True):
        world = World()
        store = RecordingStore(world.store)
        answer = expect(Triggered, world.coordinator(store).trigger(world.request("a")))
        if hooks:
            assert world.coordinator(store).ask_hooks(answer.pending, ()) is False
        counted.append(store.total)
        world.run_stages("a")
        assert not any(
            "hook" in key or b"hook" in world.files.get(key, max_bytes=10**6).data for key in world.standing()
        )
    assert counted[0] == counted[1]


def test_hooks_are_told_which_checkpoints_no_longer_count(world: World) -> None:  # semantics R5, T7
    """After a rewind and after damage, before they are asked, until an epoch has completed; owed notices come first."""
    ids, ear = Ids(), Ear("ids")
    for epoch in "abc":
        run(world, epoch, ids)

    def told() -> list[Any]:
        return [call for call in ids.calls if call[0] == "rewound"]

    assert told() == []
    answer = expect(Triggered, world.coordinator().trigger(replace(asking(world, "d", ids), listeners=("ids",))))
    world.coordinator().ask_hooks(answer.pending, (ids,))
    for stage in world.stages:
        world.run_stage("d", stage.uid)
    world.coordinator().complete(world.pending_id("d"))
    world.coordinator().rewind(3)
    says = "checkpoint 4 no longer counts.*cairn forget-listener flights ids --check.*--yes --storage "
    with raises_code("listener", match=says):
        triggered(world, "d", ids)
    assert (told(), len(world.coordinator().head().notices)) == ([], 1)
    world.coordinator().deliver((ear,))
    ids.fails_in = "rewound"
    with raises_code("master_hook", match="failed in rewound"):
        triggered(world, "d", ids)
    ids.fails_in, ids.calls[:] = None, []
    run(world, "d", ids)
    assert [call[0] for call in ids.calls] == ["restore", "rewound", "trigger"]
    through = world.coordinator().head().rewinds[-1].through
    assert told() == [("rewound", 3, through)]
    run(world, "e", ids)
    assert len(told()) == 1


def test_a_rewind_to_what_turns_out_damaged() -> None:  # semantics R1, R5, T7
    world, ids = World(config=replace(CONFIG, retained=4)), Ids()
    for epoch in "abcd":
        run(world, epoch, ids)
    world.coordinator().rewind(2)
    world.files.delete([world.coordinator().head().completed[-1].metadata.key])
    triggered(world, "c", ids)
    assert ("rewound", 1, 4) in ids.calls, "those after the rewind's own checkpoint no longer count either"


@pytest.mark.parametrize("answer", [None, 0, "", False, [], {"a": [1.5, None]}, b"", b"\x00\xff", "ü"], ids=repr)
def test_what_a_hook_may_answer(world: World, answer: Any) -> None:  # semantics T7
    ids = Ids()
    ids.answer = lambda: answer
    run(world, "a", ids)
    assert states(world, 1) == ({} if answer is None else {"ids": answer})
    run(world, "b", ids)
    assert ids.calls[2] == ("restore", 1, answer)
    assert type(ids.calls[2][2]) is type(answer)


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (object, "cannot be kept"),
        (lambda: float("nan"), "cannot be kept"),
        (lambda: [[[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]]], "cannot be kept"),
        (lambda: "x" * MAX_ANSWER_BYTES, "too large"),
        (lambda: b"x" * (MAX_ANSWER_BYTES * 3 // 4), "too large"),
    ],
)
def test_what_cannot_be_kept_aborts_and_names_the_hook(world: World, answer: Any, text: str) -> None:  # semantics T7
    ids = Ids()
    ids.answer = answer
    with pytest.raises(InvalidStateError, match=f"the master hook ids .*{text}|{text}.*hook=`ids`"):
        triggered(world, "a", ids)
    assert [entry.reason for entry in world.coordinator().head().history] == [Reason.TRIGGER_CHECKPOINT_FAILURE]


def test_answers_that_do_not_fit_into_one_document_are_refused(world: World) -> None:  # semantics T7, W5
    hooks = [Ids(f"h{number}") for number in range(5)]
    for number, hook in enumerate(hooks):
        hook.answer = lambda number=number: "x" * (MAX_ANSWER_BYTES - 100 - abs(number - 1))
    with pytest.raises(InvalidStateError, match=r"too large together.*hook=`h1`.*asked=`h0, h1, h2, h3`"):
        triggered(world, "a", *hooks)
    assert not any(each for each in hooks[4].calls if each[0] == "trigger"), "nobody is asked for nothing"
    assert world.coordinator().head().pending == ()


def test_what_a_hook_raises_is_told_whatever_it_is() -> None:
    def leave() -> None:
        raise SystemExit(3)

    with raises_code("master_hook", match=r"SystemExit\(3\)"):
        call("ids", "trigger", SECOND, leave)


def test_the_second_hook_fails_after_the_first_has_answered(world: World) -> None:  # semantics T7
    """Nothing of the first one's answer is kept: the next trigger lets both go back, and asks both."""
    calls: list[tuple[Any, ...]] = []
    one, two = Ids("one", calls=calls), Ids("two", calls=calls)
    two.fails_in = "trigger"
    with raises_code("master_hook", match="two"):
        triggered(world, "a", one, two)
    two.fails_in = None
    calls.clear()
    run(world, "a", one, two)
    assert [each[0] for each in calls] == ["reset", "reset", "trigger", "trigger"]
    assert states(world, 2)["one"] == {"first": 1, "next": 11}
    world.audit("a")


def test_a_hook_that_closes_badly_fails_nothing(caplog: pytest.LogCaptureFixture) -> None:  # semantics T7
    calls: list[tuple[Any, ...]] = []
    one, two = Ids("one", calls=calls), Ids("two", calls=calls)
    one.fails_in = "close"
    close_all([one, two])
    assert calls == [("close",), ("close",)]
    assert "The master hook one could not be closed" in caplog.text


def test_a_retried_trigger_asks_only_where_nobody_has_answered(world: World) -> None:  # semantics T7, T9
    ids = Ids()
    answer = triggered(world, "a", ids)
    assert world.coordinator().ask_hooks(answer.pending, [ids]) is False
    assert [each[0] for each in ids.calls] == ["reset", "trigger"]


def test_a_crash_before_the_answers_are_kept(world: World) -> None:  # semantics T7, C1
    """No stage begins, the checkpoint does not complete, progress says why; the next trigger gives the same ids."""
    ids = Ids()
    world.coordinator().trigger(asking(world, "a", ids))
    ids.reset()
    ids.trigger(1, world.clock.now_ms)  # and the process was killed here
    with pytest.raises(CheckpointNotReadyError, match=r"have not answered.*hooks=`ids`"):
        world.submit("a", "clean")
    assert world.coordinator().progress("a") == Waiting(1, 1, (), ("airports", "clean", "report", "routes"), ("ids",))
    triggered(world, "a", ids)
    assert states(world, run(world, "a", ids)) == {"ids": {"first": 1, "next": 11}}
    world.audit("a")


def test_it_does_not_complete_without_the_answers(world: World) -> None:  # semantics C1
    ids = Ids()
    ref = known(triggered(world, "a", ids).pending.hooks)
    world.run_stage("a")
    assert world.coordinator().progress("a") == Ready(1)
    key = layout.hook_answers(ref.home, ref.token)
    kept = world.files.get(key, max_bytes=10_000).data
    world.files.delete([key])
    assert world.coordinator().progress("a") == Waiting(1, 1, ("airports", "clean", "report", "routes"), (), ("ids",))
    with pytest.raises(CheckpointNotReadyError, match="its master hooks have not answered"):
        world.coordinator().complete(1)
    world.files.create_bytes(key, kept)
    world.coordinator().complete(1)


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:-5],
        lambda data: data.replace(b'"ids"', b'"xyz"'),
        lambda data: data.replace(b'"first":1', b'"first":NaN'),
        lambda data: data.replace(b'"format":2', b'"format":99'),
        lambda data: data.replace(b'"value":{"first":1,"next":11}', b'"data":"?"'),
        lambda data: data.replace(JOB.encode(), b"others"),
    ],
    ids=["truncated", "other hooks", "NaN", "newer", "no base64", "another job"],
)
def test_broken_answers_abort_and_are_asked_anew(world: World, damage: Callable[[bytes], bytes]) -> None:
    # semantics C1, W5: nor does the next attempt take over what was computed with them
    ids = Ids()
    ref = known(triggered(world, "a", ids).pending.hooks)
    world.run_stage("a")
    key = layout.hook_answers(ref.home, ref.token)
    data = world.files.get(key, max_bytes=10_000).data
    assert damage(data) != data
    world.files.delete([key])
    world.files.create_bytes(key, damage(data))
    with pytest.raises(CheckpointFailedError, match="the answers of the master hooks cannot be used"):
        world.coordinator().complete(1)
    again = triggered(world, "a", ids).pending
    assert again.hooks not in (None, ref)
    assert {execution.home for execution in again.executions.values()} == {2}
    run(world, "a", ids)
    world.audit("a")


@pytest.mark.parametrize("expires", [False, True], ids=["fails over", "expires, and is taken up"])
def test_the_next_attempt_takes_the_answers_over(world: World, expires: bool) -> None:  # semantics T7, F2, D2
    """Neither a callback nor a stage asks hooks: the epoch may use the ids that it had."""
    ids = Ids()
    ref = triggered(world, "a", ids).pending.hooks
    world.run_stage("a", "clean")
    if expires:
        world.clock.advance(TIMEOUT)
        world.coordinator().progress("a")
    else:
        world.submit("a", "routes", "first")
        answer = expect(FailedOver, world.coordinator().fail("a", "routes", "first", "killed"))
        assert answer.pending.hooks == ref
    world.coordinator().clean()
    assert world.submit("a", "routes").handover.hooks == ref
    assert [each[0] for each in ids.calls] == ["reset", "trigger"]
    assert states(world, run(world, "a", ids)) == {"ids": {"first": 1, "next": 11}}
    world.audit("a")


def test_a_hook_that_cannot_be_given_for_the_job(world: World) -> None:  # semantics T7
    """The checkpoint is aborted, as where any other step fails."""

    class Unbound(Ids):
        def of_job(self, job: str, storage: str) -> Ids:
            raise ConnectionError(f"{job} in {storage} is unknown")

    with raises_code("master_hook", match="failed in of_job: .* is unknown"):
        triggered(world, "a", Unbound())
    assert world.coordinator().head().pending == ()


def test_a_new_trigger_after_a_restore_by_hand_asks_anew(world: World) -> None:  # semantics R5
    ids = Ids()
    run(world, "a", ids)
    ref = triggered(world, "b", ids).pending.hooks
    choice = world.coordinator().restore_latest()
    world.coordinator().restore_hooks(choice, [ids])
    again = triggered(world, "b", ids).pending
    assert again.hooks != ref
    assert ids.calls[-3:] == [
        ("restore", 1, {"first": 1, "next": 11}),
        ("restore", 1, {"first": 1, "next": 11}),
        ("trigger", 3, world.clock.now_ms),
    ]
    assert states(world, run(world, "b", ids)) == {"ids": {"first": 11, "next": 21}}


def test_on_other_ground_the_hooks_are_asked_anew(world: World) -> None:  # semantics R1, T7
    """The newest checkpoint turns out damaged: the attempt goes back further, and so must the hooks."""
    ids = Ids()
    run(world, "a", ids)
    run(world, "b", ids)
    ref = triggered(world, "c", ids).pending.hooks
    world.submit("c", "clean", "first")
    assert world.coordinator().head().latest_completed() is not None
    lost = next(key for key in sorted(world.referred()) if key.startswith(layout.folder(2)) and "totals" in key)
    world.files.delete([lost])
    answer = expect(FailedOver, world.coordinator().fail("c", "clean", "first", "killed"))
    assert answer.pending.hooks not in (None, ref)
    with pytest.raises(CheckpointNotReadyError, match="run \\(or clear\\) the task that triggers"):
        world.submit("c", "clean")
    triggered(world, "c", ids)
    assert ids.calls[-3:-1] == [("restore", 1, {"first": 1, "next": 11}), ("rewound", 1, 2)], "checkpoint 2 is damaged"
    run(world, "c", ids)
    assert world.folded()["clean"] == ["a", "b", "c"]


def test_a_hook_that_comes_or_goes_while_pending_opens_another_attempt(world: World) -> None:  # semantics T7, T9
    one, two = Ids("one"), Ids("two")
    triggered(world, "a", one)
    world.run_stage("a", "clean")
    for hooks in ((one, two), (two,), ()):
        pending = triggered(world, "a", *hooks).pending
        assert pending.executions["clean"].home == pending.checkpoint, "it was computed with what others had fixed"
    assert pending.hooks is None
    run(world, "a")
    world.audit("a")


def test_a_hook_without_state_may_go(world: World) -> None:  # semantics T7
    ids = Ids()
    ids.answer = lambda: None
    run(world, "a", ids)
    run(world, "b")
    world.audit("a", "b")


def test_other_hooks_than_expected_are_refused(world: World) -> None:  # semantics T7
    pending = triggered(world, "a", Ids()).pending
    with pytest.raises(InvalidConfigError, match="expects other master hooks"):
        world.coordinator().ask_hooks(pending, [Ids("other")])


def test_two_triggers_at_once(world: World) -> None:  # semantics T7, T9
    """The first answers that are kept stay; the other process goes on with them."""
    slow, quick = Ids(), Ids()

    def overtaken() -> dict[str, str]:
        triggered(world, "a", quick)
        return {"first": "late"}

    slow.answer = overtaken
    triggered(world, "a", slow)
    assert states(world, run(world, "a", slow)) == {"ids": {"first": 1, "next": 11}}


def test_answers_do_not_count_where_another_process_has_failed(world: World) -> None:  # semantics T7, W4
    """The process that failed let the hooks go back after another had asked the first: that answer holds no more."""
    slow, quick = Ids(), Ids()
    refs = []

    def overtaken_and_failing() -> None:
        refs.append(triggered(world, "a", quick).pending.hooks)
        raise ConnectionError("the database is down")

    slow.answer = overtaken_and_failing
    with raises_code("master_hook"):
        triggered(world, "a", slow)
    assert triggered(world, "a", quick).pending.hooks not in refs
    assert [each[0] for each in quick.calls] == ["reset", "trigger", "reset", "trigger"]
    run(world, "a", quick)
    world.audit("a")


@dataclass
class Bad:
    name: str = "bad"
    calls: list[str] = field(default_factory=list)


def _bad() -> Iterator[tuple[Any, type[Exception], str]]:
    late, never, text = Ids(), Ids(), Ids()
    late.timeout, never.timeout = timedelta(0), timedelta(seconds=-1)
    text.timeout = "60"  # type: ignore[assignment]  # what an author may write
    yield [Ids(), Ids()], InvalidConfigError, "two hooks have one name"
    yield [Ids("../x")], InvalidKeyError, "hook"
    yield [Ids("")], InvalidKeyError, "hook"
    yield [Ids], InvalidConfigError, "derive from MasterHook"
    yield [Bad()], InvalidConfigError, "derive from MasterHook"
    yield ["a.b"], InvalidConfigError, "derive from MasterHook"
    yield Ids(), InvalidConfigError, "must be a list"
    yield 7, InvalidConfigError, "must be a list"
    for hook in (late, never, text):
        yield [hook], InvalidConfigError, "must be a timedelta of more than zero"


@pytest.mark.parametrize(("hooks", "error", "text"), list(_bad()))
def test_bad_hooks_are_refused_at_parse(hooks: Any, error: type[Exception], text: str) -> None:  # semantics T7, S3
    with pytest.raises(error, match=text):
        check_hooks(hooks, 1)


def test_a_hook_that_may_take_longer_than_its_checkpoint_is_refused() -> None:  # semantics T7, D2
    hook = Ids()
    assert check_hooks([hook], 1, hook.timeout) == (hook,)
    with pytest.raises(InvalidConfigError, match="the timeout of a hook must be at most that of the checkpoint"):
        check_hooks([hook], 1, hook.timeout - timedelta(milliseconds=1))


def test_hooks_and_two_epochs_at_once_are_refused() -> None:  # semantics T7, S3
    assert len(check_hooks([Ids("a"), Ids("b")], 1)) == 2
    assert check_hooks(None, 2) == check_hooks([], 2) == ()
    with pytest.raises(InvalidConfigError, match="max_concurrent_checkpoints must be 1 with master hooks"):
        check_hooks([Ids()], 2)
