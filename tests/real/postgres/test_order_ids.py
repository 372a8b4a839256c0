"""The documented hook on a real PostgreSQL: after a crash and a restore the sequence yields the same ids again."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest

from airflow_cairn.checkpoint import Coordinator, MasterHook, Runtime
from airflow_cairn.checkpoint.answers import Triggered
from airflow_cairn.checkpoint.store import attempt_documents
from airflow_cairn.storage import open_store
from scripts.harness.postgres_server import PostgresServer
from tests.support.documented import documented
from tests.support.errors import raises_code
from tests.support.world.world import JOB, World

SIZE = 1_000_000


def order_ids(dsn: str) -> MasterHook:
    hook: MasterHook = documented("how-to/master-hooks.md", "OrderIds")(dsn)
    return hook


@pytest.fixture
def dsn(postgres: PostgresServer) -> Iterator[str]:
    with psycopg.connect(postgres.dsn) as connection:
        connection.execute("CREATE SEQUENCE order_ids")
    yield postgres.dsn
    with psycopg.connect(postgres.dsn) as connection:
        connection.execute("DROP SEQUENCE order_ids")


@pytest.fixture
def world(world_on_files: World) -> World:
    return world_on_files


def position(dsn: str) -> tuple[Any, ...]:
    with psycopg.connect(dsn) as connection:
        found = connection.execute("SELECT last_value, is_called FROM order_ids").fetchone()
    assert found is not None
    return found


def triggered(world: World, epoch: str, hook: MasterHook) -> dict[str, int]:
    """Trigger as the task does; gives the ids that the epoch's stages take."""
    answer = world.coordinator().trigger(replace(world.request(epoch), hooks=(hook.name,)))
    assert isinstance(answer, Triggered)
    world.coordinator().ask_hooks(answer.pending, [hook])
    ref = answer.pending.hooks
    assert ref is not None
    (found,) = attempt_documents.read_hook_answers(world.files, ref)
    return found.value


def complete(world: World, epoch: str) -> None:
    for stage in world.stages:
        world.run_stage(epoch, stage.uid)
    world.coordinator().complete(world.pending_id(epoch))


def range_of(number: int) -> dict[str, int]:
    return {"first": (number - 1) * SIZE + 1, "last": number * SIZE}


def test_each_epoch_has_its_range(world: World, dsn: str) -> None:  # semantics T7
    hook = order_ids(dsn)
    for number, epoch in enumerate(("a", "b", "c"), 1):
        assert triggered(world, epoch, hook) == range_of(number)
        complete(world, epoch)
    world.audit("a", "b", "c")


def test_a_trigger_is_killed_after_it_moved_the_sequence(world: World, dsn: str) -> None:
    # semantics T7, T9: between what the hook has done and the write that says so
    hook = order_ids(dsn)
    triggered(world, "a", hook)
    complete(world, "a")
    world.coordinator().trigger(replace(world.request("b"), hooks=(hook.name,)))
    process = multiprocessing.get_context("spawn").Process(
        target=_ask_and_die, args=(world.store.uri, dsn, world.clock.now_ms)
    )
    process.start()
    process.join(300)
    assert process.exitcode == -signal.SIGKILL
    assert position(dsn) == (2 * SIZE, True), "the sequence was moved"
    assert triggered(world, "b", hook) == range_of(2), "the same ids"
    complete(world, "b")
    world.audit("a", "b")


def test_two_that_trigger_at_once_fix_the_same_range(dsn: str) -> None:  # semantics T7, T9
    one, other = order_ids(dsn), order_ids(dsn)
    for hook in (one, other):
        hook.restore(1, range_of(1))
    assert one.trigger(2, 0) == other.trigger(2, 0) == range_of(2)
    assert position(dsn) == (2 * SIZE, True)


def _ask_and_die(storage: str, dsn: str, now_ms: int) -> None:
    hook = order_ids(dsn)
    ask = hook.trigger

    def die(checkpoint: int, timestamp_ms: int) -> None:
        ask(checkpoint, timestamp_ms)
        os.kill(os.getpid(), signal.SIGKILL)

    hook.trigger = die  # type: ignore[method-assign]
    coordinator = Coordinator(open_store(storage), JOB, Runtime(lambda: now_ms, lambda: "f" * 16))
    (entry,) = coordinator.head().pending
    document = coordinator.pending_document(entry)
    assert document is not None
    coordinator.ask_hooks(document, [hook])


def test_a_restore_by_hand_takes_the_sequence_back(world: World, dsn: str) -> None:  # semantics R5
    hook = order_ids(dsn)
    triggered(world, "a", hook)
    complete(world, "a")
    triggered(world, "b", hook)
    choice = world.coordinator().restore_latest()
    world.coordinator().restore_hooks(choice, [hook])
    assert position(dsn) == (SIZE + 1, False)
    assert triggered(world, "b", hook) == range_of(2)


def test_a_job_that_starts_over_starts_at_one(world: World, dsn: str) -> None:  # semantics R2
    hook = order_ids(dsn)
    triggered(world, "a", hook)
    choice = world.coordinator().restore_latest()
    world.coordinator().restore_hooks(choice, [hook])
    assert position(dsn) == (1, False)


def test_a_database_that_is_away_fails_the_trigger(world: World, tmp_path: Path) -> None:  # semantics T7
    hook = order_ids(f"host={tmp_path} user=postgres")
    with raises_code("master_hook", match="the master hook order-ids failed in reset: OperationalError"):
        triggered(world, "a", hook)
    assert world.coordinator().head().pending == ()
