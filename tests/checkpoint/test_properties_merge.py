"""Markers merge: in any order, and however often they come, the checkpoint is the same (semantics A2, C1, C5)."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_cairn.checkpoint import TriggerRequest, layout
from airflow_cairn.checkpoint.errors import InvalidConfigError
from airflow_cairn.checkpoint.model import AckDocument, Slice, StageSpec
from airflow_cairn.checkpoint.reasons import AckAnswer
from airflow_cairn.storage import CairnError
from airflow_cairn.storage.errors import ErrorKind
from tests.checkpoint.world import STAGES, World
from tests.storage.hostile import HOSTILE_NAMES

UIDS = [stage.uid for stage in STAGES]


@cache
def _unacknowledged() -> tuple[World, dict[str, AckDocument], bytes]:
    """A world in which all files of an epoch are written and no marker stands; the markers; the metadata due."""
    world = World()
    world.run_epoch("a")
    world.trigger("b")
    acks = {}
    for uid in UIDS:
        acks[uid] = world.write(world.submit("b", uid).handover)
        world.coordinator().acknowledge(acks[uid])
    before = world.fork()
    before.memory.delete([f"flights/{layout.ack(ack.checkpoint, uid, ack.token)}" for uid, ack in acks.items()])
    return before, acks, _completed(world)


def _completed(world: World) -> bytes:
    world.coordinator().complete(world.pending_id("b"))
    entry = world.coordinator().head().latest_completed()
    assert entry is not None
    return world.files.get(entry.metadata.key, max_bytes=1 << 20).data


@given(st.permutations(UIDS), st.lists(st.tuples(st.sampled_from(UIDS), st.booleans()), max_size=12), st.randoms())
def test_markers_in_any_order_and_number_give_equal_metadata(order, again, random) -> None:  # semantics A2, C1, C5
    base, acks, due = _unacknowledged()
    world = base.fork()
    sent = [(uid, False) for uid in order] + again
    random.shuffle(sent)
    for uid, foreign in sent:
        ack = replace(acks[uid], token="dead") if foreign else acks[uid]
        answer = world.coordinator().acknowledge(ack)
        assert answer is (AckAnswer.DISCARDED if foreign else AckAnswer.SUCCESS)
    assert _completed(world) == due
    world.coordinator().clean()
    world.audit("a", "b")


@pytest.mark.parametrize("name", HOSTILE_NAMES, ids=lambda name: repr(name[:14]))
def test_a_hostile_name_is_refused_wherever_one_is_given_and_writes_nothing(name: str) -> None:  # semantics W1
    world = World()
    world.trigger("a")
    before = {key: world.memory.get(key).data for key in world.memory.all_keys()}
    coordinator = world.coordinator()
    ack = _unacknowledged()[1]["clean"]
    for call in (
        lambda: TriggerRequest("a", Slice(), (StageSpec(name),)),
        lambda: TriggerRequest("a", Slice(), (StageSpec("clean", upstream=(name,)),)),
        lambda: coordinator.trigger(TriggerRequest(name, Slice(), STAGES)),
        lambda: coordinator.begin("a", name, "try"),
        lambda: coordinator.begin(name, "clean", "try"),
        lambda: coordinator.fail("a", name, "try", "boom"),
        lambda: coordinator.progress(name),
        lambda: coordinator.acknowledge(replace(ack, stage=name)),
    ):
        with pytest.raises(CairnError) as raised:
            call()
        assert raised.value.kind is ErrorKind.INVALID or isinstance(raised.value, InvalidConfigError)
    assert {key: world.memory.get(key).data for key in world.memory.all_keys()} == before
