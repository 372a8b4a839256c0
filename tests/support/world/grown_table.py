"""The table that a world's `report` appends to: a file an epoch, written by the product's own listing."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from airflow_cairn.checkpoint.documents import layout
from airflow_cairn.checkpoint.documents.acknowledgement import Appended, Output, StateHandle
from airflow_cairn.checkpoint.documents.attempt import Handover
from airflow_cairn.checkpoint.documents.metadata import HandleLine, StageLine
from airflow_cairn.checkpoint.store import metadata_file
from airflow_cairn.checkpoint.store.job_files import JobFiles
from airflow_cairn.spark.stored import growing_table
from airflow_cairn.spark.stored.outputs import Stored, of_checkpoint

if TYPE_CHECKING:
    from tests.support.world.world import World

NAME = "log"


def append(
    world: World, files: JobFiles, handover: Handover, run: str, new: list[str]
) -> tuple[Output, list[StateHandle]]:
    """Do what a driver does that appends."""
    at = handover
    folder = layout.output_folder(at.checkpoint, at.stage, at.attempt, at.token, run, f"table.{NAME}")
    added = [
        world.put_file(files, f"table.{NAME}", f"{folder}part-{epoch}", json.dumps([epoch]).encode()) for epoch in new
    ]
    there = growing_table.before(files, _restored(files, handover))
    output = Output("table", NAME, folder, appended=Appended())
    listing = growing_table.Listing(files, output)
    draft = listing.draft(there, added)
    small, others = growing_table.alike_files(draft.older)
    merged = [_merged(world, files, f"{folder}small-0", small)] if small else []
    listed, count, size_bytes = listing.write(draft, [*others, *merged])
    output = Output("table", NAME, folder, appended=Appended(count, size_bytes))
    return output, sorted([listed, *added, *merged], key=lambda handle: handle.path)


def _merged(world: World, files: JobFiles, path: str, small: list[StateHandle]) -> StateHandle:
    rows = [epoch for each in small for epoch in _rows(files, each)]
    return world.put_file(files, f"table.{NAME}", path, json.dumps(rows).encode())


def _rows(files: JobFiles, handle: StateHandle) -> list[str]:
    return list(json.loads(files.get(handle.path, max_bytes=10_000).data))


def _restored(files: JobFiles, handover: Handover) -> Stored | None:
    if handover.restore is None:
        return None
    found = of_checkpoint(files, handover.restore.metadata, lambda stage: stage == handover.stage)
    return next((each.outputs.get(f"table.{NAME}") for each in found), None)


def appended(world: World) -> list[str]:
    """Give the epochs that the table of the newest checkpoint holds, in the order of its files."""
    entry = world.coordinator().head().completed[-1]
    found: list[list[str]] = []
    total = None
    for line in metadata_file.flattened(world.files, metadata_file.read(world.files, entry.metadata)):
        if isinstance(line, StageLine):
            total = next((each.appended for each in line.outputs if each.name == NAME), total)
        elif isinstance(line, HandleLine) and line.handle.output == f"table.{NAME}":
            found.append(_rows(world.files, line.handle))
    assert total is not None
    assert total.files == len(found) == entry.table_files[NAME]
    return [epoch for rows in found for epoch in rows]
