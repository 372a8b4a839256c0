"""Status of an epoch: one answer from one version of the head, and a look-up only where the head does not know."""

from dataclasses import replace
from typing import NoReturn

from airflow_cairn.checkpoint.answers import EpochCompleted
from airflow_cairn.checkpoint.documents.entries import RewindRecord
from airflow_cairn.checkpoint.documents.head import CompletedNote, Head
from airflow_cairn.checkpoint.reasons import Reason
from airflow_cairn.checkpoint.rules.history import EpochEnded, EpochPending, EpochUnknown, where_is
from tests.support.errors import raises_code
from tests.support.narrowing import expect
from tests.support.world.world import World

GAP = Head(job="flights", revision=9, next_id=5)
"""A head that has forgotten all that there was."""


def _never() -> NoReturn:
    raise AssertionError("the head knows the epoch, so nothing is looked up")


def test_what_the_head_knows_is_not_looked_up(world: World) -> None:  # semantics T9
    world.trigger("a")
    head = world.coordinator().head()
    assert where_is(head, "a", _never) == EpochPending(head.pending[0])
    world.run_epoch("a")
    head = world.coordinator().head()
    assert where_is(head, "a", _never) == EpochCompleted("a", 1)
    assert where_is(head, "z", _never) == EpochUnknown(), "it has forgotten nothing"
    assert where_is(replace(GAP, noted=(CompletedNote("a", 3),)), "a", _never) == EpochCompleted("a", 3)


def test_an_epoch_that_has_ended_and_why(world: World) -> None:  # semantics D3
    world.trigger("a")
    world.coordinator().abort(1, Reason.CHECKPOINT_DECLINED, "no disk")
    place = expect(EpochEnded, where_is(world.coordinator().head(), "a", _never))
    assert (place.newest.reason, place.newest.detail) == (Reason.CHECKPOINT_DECLINED, "no disk")
    assert place.rewind is None


def test_an_epoch_that_was_rewound(world: World) -> None:  # semantics R5
    world.run_epoch("a", "b")
    world.coordinator().rewind(1)
    place = expect(EpochEnded, where_is(world.coordinator().head(), "b", _never))
    assert (place.newest.id, place.rewind and place.rewind.to) == (2, 1)


def test_an_epoch_of_long_ago_is_looked_up() -> None:  # semantics T9
    assert where_is(GAP, "a", lambda: 3) == EpochCompleted("a", 3)
    assert where_is(GAP, "a", lambda: None) == EpochUnknown()


def test_what_completed_long_ago_and_was_rewound_is_not_new() -> None:  # semantics R5
    head = replace(GAP, rewinds=(RewindRecord(2, 4, 0),))
    assert where_is(head, "a", lambda: 3) == EpochUnknown(undone=3)


def test_what_is_no_name_of_an_epoch() -> None:  # semantics W1
    with raises_code("invalid_name"):
        where_is(GAP, "../a", _never)
