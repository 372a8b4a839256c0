"""The jobs that the documentation's commands show: each is made anew, by a clock that stands still."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_cairn.checkpoint.documents import layout
from airflow_cairn.checkpoint.documents.acknowledgement import AckMetrics, Output, StateHandle, SubtaskAck
from airflow_cairn.checkpoint.documents.attempt import Owner, Slice, StageSpec
from airflow_cairn.storage import ObjectStore, Written
from tests.support import jobs
from tests.support.acking import RUN, ack_of
from tests.support.world.world import CONFIG, World

FIRST = datetime(2026, 1, 1, tzinfo=UTC)
DEPLOYMENT = "https://airflow.example.com"
_TYPES = {"origin": "string", "destination": "string", "flights": "long"}
_FIELDS = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in _TYPES.items()]
_SCHEMA = json.dumps({"type": "struct", "fields": _FIELDS})
_SUBTASKS = 8
_HEAP = "java.lang.OutOfMemoryError: Java heap space"


def at(world: World, day: int) -> str:
    """Begin the scheduled run of a day of January 2026 four seconds after it is due; gives its epoch."""
    due = FIRST + timedelta(days=day - 1)
    epoch = layout.epoch_name(f"scheduled__{due.isoformat()}")
    world.slices[epoch] = Slice((due - timedelta(days=1)).isoformat(), due.isoformat())
    world.clock.now_ms = int(due.timestamp() * 1000) + 4_000
    return epoch


def wide(store: ObjectStore) -> None:
    """Sixteen stages: two days are complete; of the third one a stage failed, and has acknowledged since."""
    world = jobs.wide(store, 16)
    for day in (1, 2):
        jobs.run(world, at(world, day), _SUBTASKS)
    epoch = at(world, 3)
    world.trigger(epoch)
    for stage in world.stages[:5]:
        jobs.drive(world, world.submit(epoch, stage.uid).handover, _SUBTASKS, AckMetrics(1000, 800, 200, 0, 4000))
    world.clock.advance(timedelta(minutes=125))
    failing = world.submit(epoch, world.stages[5].uid).handover
    world.decline(failing, _HEAP)
    world.coordinator().fail(epoch, failing.stage, failing.claimant, _HEAP)
    again = world.submit(epoch, failing.stage).handover
    jobs.drive(world, again, _SUBTASKS, AckMetrics(0, 5000, 0, 0, 10_000))


def three_days(store: ObjectStore) -> None:
    """Three complete days, all retained, of a DAG in a deployment with a name."""
    world = World(store, replace(CONFIG, retained=3))
    for day in (2, 3, 4):
        epoch = at(world, day)
        world.coordinator().trigger(world.request(epoch, Owner("flights", epoch, DEPLOYMENT)))
        world.run_epoch(epoch)


def counted(store: ObjectStore) -> None:
    """Flights by route: one day, and the day after."""
    world = World(store, CONFIG, (StageSpec("routes"),))
    days = {2: [("ANC", "SEA", 90), ("LAX", "SEA", 401)]}
    days[3] = [("LAX", "SEA", 412), ("ANC", "SEA", 90), ("SEA", "ANC", 3)]
    for day, rows in days.items():
        _keep_totals(world, at(world, day), rows)


def _keep_totals(world: World, epoch: str, rows: list[tuple[str, str, int]]) -> None:
    """Run an epoch of one stage that leaves these totals, in a file as Spark writes it."""
    world.trigger(epoch)
    handover = world.submit(epoch, "routes").handover
    folder = layout.output_folder(
        handover.checkpoint, handover.stage, handover.attempt, handover.token, RUN, "state.totals"
    )
    table = pa.table(dict(zip(("origin", "destination", "flights"), map(list, zip(*rows, strict=True)), strict=True)))
    groups = pa.array(range(len(rows)), pa.int32())
    out = io.BytesIO()
    pq.write_table(table.append_column("_cairn_key_group", groups), out)
    written = world.files.create_bytes(f"{folder}part-0", out.getvalue())
    assert isinstance(written, Written)
    handle = StateHandle("state.totals", f"{folder}part-0", len(out.getvalue()), written.etag)
    output = Output("state", "totals", folder, _SCHEMA, ("origin", "destination"), key_groups=128)
    world.coordinator().acknowledge(ack_of(handover, [SubtaskAck(0, (handle,))], outputs=(output,)))
    world.coordinator().complete(world.pending_id(epoch))


def nothing(_: ObjectStore) -> None:
    """Make no job: the command reads the DAG file of its page."""


JOBS: dict[str, Callable[[ObjectStore], None]] = {
    "cairn jobs": wide,
    "cairn checkpoints flights": wide,
    "cairn checkpoints fligths": wide,
    "cairn show flights": wide,
    "cairn rewind flights": three_days,
    "cairn adopt flights": three_days,
    "cairn state flights": counted,
    "cairn diff flights": counted,
    "cairn regions": nothing,
}
"""Makers of jobs, by how a command begins."""
