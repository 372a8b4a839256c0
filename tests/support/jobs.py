"""Jobs to look at: wide stages whose acknowledgements hold many subtasks, with times and sizes that differ.

Few files stand for many: subtasks whose numbers differ by a multiple of seven name the same one.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from airflow_cairn.checkpoint.documents import layout
from airflow_cairn.checkpoint.documents.acknowledgement import AckMetrics, Output, StateHandle, SubtaskAck
from airflow_cairn.checkpoint.documents.attempt import Handover, StageSpec
from airflow_cairn.checkpoint.reasons import AckAnswer
from airflow_cairn.storage import Written
from airflow_cairn.storage.port import ObjectStore
from tests.support.acking import ack_of
from tests.support.world.world import CONFIG, World


def dump(store: ObjectStore, folder: Path) -> str:
    """Write what is in a store as one of files, without its care for every write; gives the URI."""
    for found in store.list(""):
        path = folder / found.key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(store.get(found.key).data)
    return f"file://{folder}"


def wide(store: ObjectStore, stages: int, group: str = "flights") -> World:
    """Make a job of stages in a row, each reading from the one before."""
    uids = [f"{group}.stage_{number:02d}" for number in range(stages)]
    specs = tuple(StageSpec(uid, tuple(uids[max(0, number - 1) : number])) for number, uid in enumerate(uids))
    return World(store, replace(CONFIG, timeout=timedelta(hours=12)), specs)


def drive(world: World, handover: Handover, subtasks: int, metrics: AckMetrics) -> AckAnswer:
    """Acknowledge with one file a subtask."""
    folder = layout.output_folder(
        handover.checkpoint, handover.stage, handover.attempt, handover.token, "0" * 16, "state.totals"
    )
    handles = []
    for number in range(min(subtasks, 7)):
        data = b"x" * (1_000 + number * 40_000)
        written = world.files.create_bytes(f"{folder}part-{number}", data)
        assert isinstance(written, Written)
        rows = 10 + number * 1_200
        handles.append(StateHandle("state.totals", f"{folder}part-{number}", len(data), written.etag, rows=rows))
    return world.coordinator().acknowledge(
        ack_of(
            handover,
            tuple(SubtaskAck(index, (handles[index % 7],)) for index in range(subtasks)) or (SubtaskAck(0),),
            run="0" * 16,
            outputs=(Output("state", "totals", folder),) if subtasks else (),
            metrics=metrics,
        )
    )


def run(world: World, epoch: str, subtasks: int) -> int:
    """Run a whole epoch, its stages one after another; gives its checkpoint."""
    world.trigger(epoch)
    waited = 0
    for number, spec in enumerate(world.stages):
        took = 2_000 + 1_700 * (number % 5)
        handover = world.submit(epoch, spec.uid).handover
        world.clock.advance(timedelta(milliseconds=took))
        drive(world, handover, subtasks, AckMetrics(waited, took // 3, took // 20, 0, waited + took))
        waited += took
    checkpoint = world.pending_id(epoch)
    world.coordinator().complete(checkpoint)
    return checkpoint
