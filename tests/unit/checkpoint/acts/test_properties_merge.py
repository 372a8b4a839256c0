"""Markers merge: in any order, and however often they come, the checkpoint is the same (semantics A2, C1, C5)."""

from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_cairn.checkpoint import TriggerRequest
from airflow_cairn.checkpoint.answers import Failed, Ready
from airflow_cairn.checkpoint.documents import layout
from airflow_cairn.checkpoint.documents.acknowledgement import AckDocument, DeclineDocument
from airflow_cairn.checkpoint.documents.attempt import Slice, StageSpec
from airflow_cairn.checkpoint.errors import InvalidConfigError
from airflow_cairn.checkpoint.reasons import AckAnswer, Reason
from airflow_cairn.checkpoint.store import acks as ack_parts
from airflow_cairn.checkpoint.store.acks import read_ack
from airflow_cairn.storage import CairnError
from airflow_cairn.storage.errors import ErrorKind
from tests.support.narrowing import expect, known
from tests.support.world.world import STAGES, World
from tests.unit.storage.hostile import HOSTILE_NAMES

UIDS = [stage.uid for stage in STAGES]


@dataclass(frozen=True)
class Unmerged:
    """An epoch's second attempt of which every file is written and no marker stands, and what may still arrive."""

    world: World
    acks: dict[str, AckDocument]
    """Acknowledgements of the executions that count."""
    zombies: dict[str, AckDocument]
    """Acknowledgements of the executions of the first attempt that a failover has replaced."""
    due: bytes
    """The metadata that must come of it."""


@cache
def _unmerged() -> Unmerged:
    world = World()
    world.run_epoch("a")
    world.trigger("b")
    zombies = {}
    for uid in ("clean", "airports"):
        claimed = world.submit("b", uid, f"first {uid}")
        zombies[uid] = world.write(claimed.handover)
        if uid == "clean":
            world.coordinator().acknowledge(zombies.pop(uid))  # carried over into the second attempt
    world.coordinator().fail("b", "airports", "first airports", "killed")
    acks = {"clean": _ack_of_clean(world)}
    for uid in UIDS[1:]:
        acks[uid] = world.write(world.submit("b", uid).handover)
        world.coordinator().acknowledge(acks[uid])
    before = world.fork()
    before.memory.delete([f"flights/{layout.ack(ack.checkpoint, uid, ack.token)}" for uid, ack in acks.items()])
    return Unmerged(before, acks, zombies, _completed(world))


def _ack_of_clean(world: World) -> AckDocument:
    """Acknowledgement of `clean` in the first attempt."""
    entry = world.coordinator().head().pending[0]
    document = known(world.coordinator().pending_document(entry))
    execution = document.executions["clean"]
    assert execution.home < document.checkpoint, "carried over"
    return read_ack(world.files, "clean", execution)


def _completed(world: World) -> bytes:
    world.coordinator().complete(world.pending_id("b"))
    entry = known(world.coordinator().head().latest_completed())
    return world.files.get(entry.metadata.key, max_bytes=1 << 20).data


class Message(StrEnum):
    """Message that may arrive, of any stage, at any time, any number of times."""

    ACK = "the acknowledgement again"
    RIVAL = "another driver of the same execution"
    ZOMBIE = "the acknowledgement of the replaced execution"
    STRANGER = "the acknowledgement of an execution that never was"
    DECLINE = "a decline, after the acknowledgement"
    ZOMBIE_DECLINE = "a decline of the replaced execution"


def _send(of: Unmerged, world: World, uid: str, message: Message) -> AckAnswer | None:
    """Send one message and give the answer that is due, None for none."""
    ack = of.acks[uid]
    sent = {
        Message.ACK: (ack, AckAnswer.SUCCESS),
        Message.RIVAL: (replace(ack, run="rival"), AckAnswer.DUPLICATE),
        Message.ZOMBIE: (of.zombies.get(uid), AckAnswer.DISCARDED),
        Message.STRANGER: (replace(ack, token="dead"), AckAnswer.DISCARDED),
    }
    if message in sent:
        document, due = sent[message]
        if document is None:
            return None
        assert world.coordinator().acknowledge(document) is due, message
        return due
    declining = ack if message is Message.DECLINE else of.zombies.get(uid)
    if declining is not None:
        world.coordinator().decline(
            DeclineDocument(
                declining.job, declining.checkpoint, "b", uid, declining.token, Reason.CHECKPOINT_DECLINED, "late"
            )
        )
    return None


@settings(max_examples=40)
@given(
    st.permutations(UIDS),
    st.lists(st.tuples(st.sampled_from(UIDS), st.sampled_from(Message)), max_size=14),
    st.sets(st.sampled_from(UIDS)),
    st.randoms(),
)
def test_markers_in_any_order_and_number_give_equal_metadata(
    order, more, in_parts, random
) -> None:  # semantics A2, C1, C5
    """Duplicates, rivals, zombies, strangers and late declines mixed in; some stages acknowledge in parts."""
    of = _unmerged()
    world = of.world.fork()
    messages = [(uid, Message.ACK) for uid in order] + more
    random.shuffle(messages)
    arrived: set[str] = set()
    for uid, message in messages:
        if message in (Message.RIVAL, Message.DECLINE) and uid not in arrived:
            continue  # these come second, or they are the first and count
        with pytest.MonkeyPatch.context() as patch:
            if uid in in_parts:
                patch.setattr(ack_parts, "MARKER_BYTES", 200)
            _send(of, world, uid, message)
        if message is Message.ACK:
            arrived.add(uid)
    assert arrived == set(UIDS)
    assert world.coordinator().progress("b") == Ready(world.pending_id("b")), "no late decline has harmed it"
    assert _completed(world) == of.due
    world.coordinator().clean()
    world.audit("a", "b")


@settings(max_examples=15)
@given(st.sampled_from(UIDS), st.lists(st.sampled_from(UIDS), unique=True), st.randoms())
def test_a_decline_in_time_fails_the_attempt_in_any_order(
    declined: str, before: list[str], random
) -> None:  # semantics D1
    of = _unmerged()
    world = of.world.fork()
    messages = [(uid, Message.ACK) for uid in before if uid != declined] + [(declined, Message.DECLINE)]
    random.shuffle(messages)
    for uid, message in messages:
        _send(of, world, uid, message)
    failed = expect(Failed, world.coordinator().progress("b"))
    assert (failed.reason, failed.detail) == (Reason.CHECKPOINT_DECLINED, f"{declined}: late")
    world.run_epoch("b")
    world.audit("a", "b")


@pytest.mark.parametrize("name", HOSTILE_NAMES, ids=lambda name: repr(name[:14]))
def test_a_hostile_name_is_refused_everywhere_and_writes_nothing(name: str) -> None:  # semantics W1
    world = World()
    world.trigger("a")
    before = {key: world.memory.get(key).data for key in world.memory.all_keys()}
    coordinator = world.coordinator()
    ack = _unmerged().acks["clean"]
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
