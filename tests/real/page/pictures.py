"""Makes the pictures of the pages in `docs/images`, in a real Chromium, of a job that is made here.

Run it as `.venv/bin/python -m tests.real.page.pictures` when a page has changed, and look at what it has made.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from airflow_cairn.checkpoint import FixedDelayRestart, TriggerRequest, system_runtime
from airflow_cairn.checkpoint.config import CheckpointConfig
from airflow_cairn.checkpoint.documents import layout
from airflow_cairn.checkpoint.documents.acknowledgement import AckDocument, AckMetrics
from airflow_cairn.checkpoint.documents.attempt import Handover, Owner, Slice
from airflow_cairn.checkpoint.reasons import Reason, RequestKind, Status
from airflow_cairn.plugin.page.server import Schedule
from airflow_cairn.storage.errors import UnavailableError
from scripts.setup.base import ROOT
from tests.real.page.test_browser import ONE, SCRIPT, SignedIn, served
from tests.support.browser import found_by
from tests.support.memory_store import MemoryStore
from tests.support.world.savepoints import Below, asked, take
from tests.support.world.world import JOB, World
from tests.unit.plugin.page.stand_in import ADMIN, STORAGE, dag_of

FOLDER = ROOT / "docs" / "images"
HOURS = 12
FAILED_OVER = (5, HOURS - 1)
"""Epochs in whose first attempt a stage fails; the last of them is still in progress."""
DAMAGED = "s3://lake/damaged"
MOST_BYTES = 150_000
ROWS_OF_A_STAGE = 18_000
"""In each file, more or less."""


class OnSchedule(World):
    """A job whose runs are made by a schedule, and whose drivers start, run and write for some seconds."""

    def request(self, epoch: str, owner: Owner | None = None) -> TriggerRequest:
        return replace(super().request(epoch, owner), kind=RequestKind.PERIODIC)

    def write(self, handover: Handover, **more: Any) -> AckDocument:
        entry = self.coordinator().head().pending[0]
        since = self.clock.now_ms - entry.triggered_at_ms
        took = min(since, 1000 * (20 + 5 * len(handover.stage)))
        metrics = AckMetrics(since - took + 4_000, 5_000, 2_000, end_to_end_ms=since)
        ack = replace(super().write(handover, **more), metrics=metrics)
        rows = ROWS_OF_A_STAGE + 7 * handover.checkpoint
        subtasks = tuple(
            replace(each, handles=tuple(replace(handle, rows=rows) for handle in each.handles)) for each in ack.subtasks
        )
        return replace(ack, subtasks=subtasks)


def pictured(storage: str) -> World:
    """Give a job of twelve hours: one failed over, and the newest has just done so.

    Args:
        storage: where the pages say that it lies.
    """
    config = CheckpointConfig(
        timeout=timedelta(minutes=30),
        retained=3,
        restart_strategy=FixedDelayRestart(3),
        savepoint_target="s3://lake/savepoints",
    )
    world = OnSchedule(MemoryStore(storage.removeprefix("s3://")), config)
    hour = timedelta(hours=1)
    last = datetime.fromtimestamp(system_runtime().now_ms() / 1000, UTC) - timedelta(minutes=4)
    for number in range(HOURS):
        at = last - (HOURS - 1 - number) * hour
        world.clock.now_ms = round(at.timestamp() * 1000)
        end = at.replace(minute=0, second=0, microsecond=0)
        epoch = layout.epoch_name(f"scheduled__{end:%Y-%m-%dT%H:%M:%S}+00:00")
        world.slices[epoch] = Slice((end - hour).isoformat(), end.isoformat())
        run(world, epoch, number)
        if number == HOURS // 2:
            take(world, asked("before the upgrade", "s3://lake/savepoints", actor=ADMIN))
    return world


def run(world: World, epoch: str, number: int) -> None:
    """Run an epoch; the last one stays where its second attempt waits for two stages."""
    world.trigger(epoch)
    stage(world, epoch, "clean", 20 + number)
    if number in FAILED_OVER:
        routes = world.submit(epoch, "routes").handover
        world.clock.advance(timedelta(seconds=31))
        world.coordinator().fail(epoch, "routes", routes.claimant, "ValueError: row 4711 has no departure")
    if number == HOURS - 1:
        stage(world, epoch, "airports", 15)
        return
    for name, seconds in (("routes", 45), ("airports", 15), ("report", 25)):
        stage(world, epoch, name, seconds + 3 * (number % 4))
    world.coordinator().complete(world.pending_id(epoch))


def stage(world: World, epoch: str, name: str, seconds: int) -> None:
    """Run a stage that takes so long."""
    handover = world.submit(epoch, name).handover
    world.clock.advance(timedelta(seconds=seconds))
    world.drive(handover)


def listed() -> SignedIn:
    """Give an Airflow with twelve jobs, in as many states as there are."""
    names = ("airports", "billing", "clicks", "delays", "fares", "inventory", "orders", "prices", "routes", "weather")
    worlds = {name: pictured(f"s3://lake/{name}") for name in names[:-2]}
    for name in ("clicks", "fares", "orders"):
        world = worlds[name]
        for stage_left in ("routes", "report"):
            stage(world, world.coordinator().head().pending[0].epoch, stage_left, 30)
        world.coordinator().complete(world.coordinator().head().pending[0].id)
    worlds["billing"].coordinator().abort(worlds["billing"].coordinator().head().pending[0].id, Reason.JOB_FAILURE, "")
    worlds["delays"].coordinator().pause()
    stopping = replace(asked("upgrade", "s3://lake/savepoints", actor=ADMIN), stop=True)
    worlds["prices"].coordinator().open_savepoint(stopping, lambda uri: Below(worlds["prices"].memory, uri))
    worlds["inventory"].coordinator().ownership.adopt("inventory_v2", "", abort_pending=True)
    stores: dict[str, Any] = {f"s3://lake/{name}": world.memory for name, world in worlds.items()}
    stores |= {
        "s3://lake/routes": MemoryStore("lake/routes"),
        "s3://away/weather": UnavailableError("no answer"),
    }
    stores |= {f"s3://lake/{name}": worlds["airports"].memory for name in ("airports_eu", "airports_us")}
    server = SignedIn([dag_of(uri.rpartition("/")[2], (uri, JOB)) for uri in stores], stores)
    now_ms = system_runtime().now_ms()
    server.due = {dag: Schedule(now_ms + 1_200_000, paused=dag == "delays") for dag in server.dags}
    server.due["routes"] = Schedule(now_ms - 5_400_000, paused=False)
    return server


def main() -> None:
    """Make them."""
    with served(listed()) as base:
        taken = found_by(SCRIPT, "pictures", base, str(FOLDER), "jobs=/cairn/")["files"]
    world = pictured(STORAGE)
    failed = next(each for each in reversed(world.coordinator().head().history) if each.status is Status.FAILED)
    pages = {"overview": ONE, "history": f"{ONE}/history", "checkpoint": f"{ONE}/checkpoints/{failed.id}"}
    pages["doctor"] = f"/cairn/dags/flights_damaged/jobs/{JOB}/doctor"
    damaged = pictured(DAMAGED)
    latest = damaged.coordinator().head().latest_completed()
    assert latest is not None
    damaged.memory.delete([f"{JOB}/{latest.metadata.key}"])
    dags = [dag_of("flights", (STORAGE, JOB)), dag_of("flights_damaged", (DAMAGED, JOB))]
    server = SignedIn(dags, {STORAGE: world.memory, DAMAGED: damaged.memory})
    hour_ms = 3_600_000
    next_run = (system_runtime().now_ms() // hour_ms + 1) * hour_ms
    server.due = {dag: Schedule(next_run, paused=False) for dag in server.dags}
    with served(server) as base:
        made = found_by(SCRIPT, "pictures", base, str(FOLDER), *(f"{name}={path}" for name, path in pages.items()))
    for name in [*taken, *made["files"]]:
        size = Path(FOLDER, name).stat().st_size
        assert size < MOST_BYTES, f"{name} has {size} bytes: make the page shorter"
        print(f"{name}: {size:,} bytes")


if __name__ == "__main__":
    main()
