"""When a server that a job's stages share ends (semantics V1)."""

from dataclasses import replace

import pytest

from airflow_cairn.checkpoint.documents.entries import Stopped
from airflow_cairn.checkpoint.documents.head import Head
from airflow_cairn.checkpoint.documents.server_record import ServerEntry, ServerState
from airflow_cairn.checkpoint.rules.server import Activity, Limits, why_end
from tests.support.world.world import World

ENTRY = ServerEntry("first", "here", ServerState.UP, 0, 60_000, port=15002)
LIMITS = Limits(idle_ms=600_000, max_age_ms=3_600_000, max_sessions=10, max_memory_bytes=2**30)
BUSY = Activity(open_sessions=1, sessions=1, quiet_ms=0, age_ms=0, memory_bytes=0)
IDLE = replace(BUSY, open_sessions=0)
HEAD = Head("flights", revision=1)


@pytest.fixture
def pending(world: World) -> Head:
    """A head with one epoch pending."""
    world.trigger("e1")
    head: Head = world.coordinator().head()
    assert [each.epoch for each in head.pending] == ["e1"]
    return head


def test_one_that_is_used_or_was_a_moment_ago_goes_on() -> None:
    assert why_end(ENTRY, HEAD, BUSY, LIMITS) is None
    assert why_end(ENTRY, HEAD, replace(IDLE, quiet_ms=599_999), LIMITS) is None


@pytest.mark.parametrize(
    ("entry", "head", "activity", "why"),
    [
        (None, HEAD, BUSY, "another server has replaced it"),
        (ENTRY, None, BUSY, "its job is not there any more"),
        (ENTRY, replace(HEAD, stopped=Stopped.SHUTDOWN), BUSY, "its job was drained or stopped"),
        (replace(ENTRY, use="e1"), HEAD, BUSY, "its epoch has ended"),
        (ENTRY, HEAD, replace(IDLE, quiet_ms=600_000), "no stage has used it for 600 seconds"),
        (ENTRY, HEAD, replace(IDLE, age_ms=3_600_000), "it is 60 minutes old"),
        (ENTRY, HEAD, replace(BUSY, sessions=10), "it has had 10 sessions"),
        (ENTRY, HEAD, replace(BUSY, memory_bytes=2**30), "it takes 1024 MiB of memory"),
    ],
)
def test_what_ends_it(entry: ServerEntry | None, head: Head | None, activity: Activity, why: str) -> None:
    assert why_end(entry, head, activity, LIMITS) == why


def test_a_pause_of_the_dag_alone_does_not_end_it() -> None:
    assert why_end(ENTRY, replace(HEAD, stopped=Stopped.PAUSED), IDLE, LIMITS) is None


def test_one_that_is_worn_lasts_until_the_epoch_has_ended_or_twice_as_long(pending: Head) -> None:
    old = replace(IDLE, age_ms=3_600_000)
    assert why_end(ENTRY, pending, old, LIMITS) is None
    assert why_end(ENTRY, pending, replace(old, age_ms=7_200_000), LIMITS) == "it is 120 minutes old"
    assert why_end(ENTRY, pending, replace(IDLE, sessions=20), LIMITS) == "it has had 20 sessions"
    assert why_end(ENTRY, pending, replace(IDLE, memory_bytes=2**31 - 1), LIMITS) is None
    assert why_end(ENTRY, pending, replace(IDLE, memory_bytes=2**31), LIMITS) == "it takes 2048 MiB of memory"


def test_the_server_of_an_epoch_lasts_as_long_as_that_is_pending(pending: Head) -> None:
    assert why_end(replace(ENTRY, use="e1"), pending, IDLE, LIMITS) is None
    assert why_end(replace(ENTRY, use="e2"), pending, IDLE, LIMITS) == "its epoch has ended"
