"""The documented sink on a real PostgreSQL: each row is committed once, also after a death or a second notice."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from airflow_cairn.checkpoint import CheckpointListener, Coordinator
from airflow_cairn.checkpoint.answers import Submit
from airflow_cairn.checkpoint.extensions.committables import CheckpointNotice
from airflow_cairn.storage import open_store
from scripts.harness.postgres_server import PostgresServer
from tests.support.documented import documented
from tests.support.world.listeners import trigger_told
from tests.support.world.world import JOB, World


def orders_sink(dsn: str) -> CheckpointListener:
    sink: CheckpointListener = documented("how-to/two-phase-sinks.md", "OrdersSink")(dsn)
    return sink


@pytest.fixture
def dsn(postgres: PostgresServer) -> Iterator[str]:
    with psycopg.connect(postgres.dsn) as connection:
        connection.execute("CREATE TABLE staged_orders (staging text, epoch text, customer text, amount int)")
        connection.execute("CREATE TABLE orders (customer text, amount int)")
    yield postgres.dsn
    with psycopg.connect(postgres.dsn) as connection:
        connection.execute("DROP TABLE staged_orders, orders")


@pytest.fixture
def world(world_on_files: World) -> World:
    return world_on_files


def rows(dsn: str, table: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(dsn) as connection:
        return connection.execute(f"SELECT customer, amount FROM {table} ORDER BY 1, 2").fetchall()


def stage_orders(world: World, dsn: str, epoch: str, *, dies: bool = False) -> None:
    """Stage orders as `routes` does; a driver that dies has staged, and does not acknowledge."""
    answer = world.coordinator().begin(epoch, "routes", world.new_claimant())
    assert isinstance(answer, Submit)
    staging = world.new_token()
    with psycopg.connect(dsn) as connection:
        connection.execute(
            "INSERT INTO staged_orders VALUES (%s, %s, 'ann', 1), (%s, %s, 'bob', 2)", [staging, epoch] * 2
        )
    if not dies:
        staged = {"orders": {"staging": staging}}
        world.coordinator().acknowledge(replace(world.write(answer.handover), committables=staged))


def complete(world: World, dsn: str, epoch: str) -> None:
    trigger_told(world, epoch, "orders")
    world.run_stage(epoch, "clean")
    stage_orders(world, dsn, epoch)
    for uid in ("airports", "report"):
        world.run_stage(epoch, uid)
    world.coordinator().complete(world.pending_id(epoch))


ONCE = [("ann", 1), ("bob", 2)]


def test_nothing_is_visible_before_the_checkpoint_completes(world: World, dsn: str) -> None:  # semantics C4
    trigger_told(world, "a", "orders")
    world.run_stage("a", "clean")
    stage_orders(world, dsn, "a", dies=True)
    stage_orders(world, dsn, "a")
    world.coordinator().deliver([orders_sink(dsn)])
    assert (rows(dsn, "orders"), len(rows(dsn, "staged_orders"))) == ([], 4)
    for uid in ("airports", "report"):
        world.run_stage("a", uid)
    world.coordinator().complete(world.pending_id("a"))
    world.coordinator().deliver([orders_sink(dsn)])
    assert rows(dsn, "orders") == ONCE
    assert rows(dsn, "staged_orders") == [], "what the dead driver had staged is gone too"


def test_told_twice_is_committed_once(world: World, dsn: str) -> None:  # semantics C4
    complete(world, dsn, "a")
    heard: list[CheckpointNotice] = []
    sink = orders_sink(dsn)
    commit = sink.notify_checkpoint_complete
    sink.notify_checkpoint_complete = heard.append  # type: ignore[assignment,method-assign]
    world.coordinator().deliver([sink])
    for _ in range(2):
        commit(heard[0])
    assert rows(dsn, "orders") == ONCE


@pytest.mark.large
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_notifier_that_is_killed(world: World, dsn: str, when: str) -> None:  # semantics C4
    """A real process and SIGKILL: before the transaction, and between it and the write that takes the notice away."""
    complete(world, dsn, "a")
    process = multiprocessing.get_context("spawn").Process(target=_notify_and_die, args=(world.store.uri, dsn, when))
    process.start()
    process.join(300)
    assert process.exitcode == -signal.SIGKILL
    assert rows(dsn, "orders") == (ONCE if when == "after" else [])
    assert [world.coordinator().deliver([orders_sink(dsn)]) for _ in range(2)] == [1, 0]
    assert rows(dsn, "orders") == ONCE
    complete(world, dsn, "b")
    world.coordinator().deliver([orders_sink(dsn)])
    assert rows(dsn, "orders") == sorted(ONCE * 2)


def _notify_and_die(storage: str, dsn: str, when: str) -> None:
    sink = orders_sink(dsn)
    commit = sink.notify_checkpoint_complete

    def die(notice: CheckpointNotice) -> None:
        if when == "after":
            commit(notice)
        os.kill(os.getpid(), signal.SIGKILL)

    sink.notify_checkpoint_complete = die  # type: ignore[method-assign]
    Coordinator(open_store(storage), JOB).deliver([sink])


def test_what_is_given_up_is_dropped(world: World, dsn: str) -> None:  # semantics D4
    trigger_told(world, "a", "orders")
    world.run_stage("a", "clean")
    stage_orders(world, dsn, "a")
    world.coordinator().restore_latest()
    world.coordinator().deliver([orders_sink(dsn)])
    assert (rows(dsn, "staged_orders"), rows(dsn, "orders")) == ([], [])
