"""States of a simulated stage that grow by runs, what they have to hold, and who compacts them (K1, K2, K3, K7).

Of the updated state one key changes in each epoch. Another one is set by every fifth epoch, deleted two epochs later,
and not there for three. So a run that is lost, or counts in another order, shows; and so does a delete that is lost.
The other state counts the epochs, so a run that counts twice shows.

Files are filled up to sizes that are drawn by their names, so that all bounds in bytes are reached. These are small
here.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from zlib import crc32

from airflow_cairn.checkpoint import Runtime
from airflow_cairn.checkpoint.documents import layout
from airflow_cairn.checkpoint.documents.acknowledgement import Output, StateHandle, SubtaskAck
from airflow_cairn.checkpoint.rows.reading import DELETED
from airflow_cairn.checkpoint.store.job_files import JobFiles
from airflow_cairn.spark import compaction
from airflow_cairn.spark.output.writer import Writer
from airflow_cairn.spark.stored import deltas, merges
from airflow_cairn.spark.stored.outputs import subtasks
from tests.chaos.inputs import changed_keys, kept_keys
from tests.support.world import grown_state
from tests.support.world.grown_state import COUNTED, UPDATED, Grown, PutFile, Rows

if TYPE_CHECKING:
    from tests.protocol.simulation.processes import Job

STAGE = "report"
NAMES = (UPDATED, COUNTED)
LEASE_MS = 4_000
"""A compaction is soon given up, also one that is only slow."""

SIZES = {"state": (0, 350, 3000, 3000), "run": (0, 0, 450, 2500), "merged": (0, 500)}
"""Bytes that the files of a base, a run and a merged run have at least, as they are drawn."""

Value = dict[str, list[tuple[str, Any]]]


def changes(before: list[str], new: list[str]) -> dict[str, Rows]:
    """Give what an epoch changes in each state."""
    rows = changed_keys(before, new)
    updated = [{"k": key, "v": value, DELETED: value is None} for key, value in rows.items()]
    return {UPDATED: updated, COUNTED: [{"k": "all", "v": len(new)}]}


def expected(folded: list[str]) -> Value:
    """Give what the states hold after these epochs."""
    return {UPDATED: sorted(kept_keys(folded).items()), COUNTED: [("all", len(folded))]}


def held(files: JobFiles, handles: list[StateHandle]) -> Value:
    """Give what the states hold by these files."""
    mine = {name: [each for each in handles if each.output == f"state.{name}"] for name in NAMES}
    return {name: sorted(grown_state.value_of(files, name, mine[name])) for name in NAMES}


def of_all_sizes(put_file: PutFile) -> PutFile:
    """Have files filled up."""
    return lambda files, output_id, path, data: put_file(files, output_id, path, _filled(path, data))


def _filled(path: str, data: bytes) -> bytes:
    sizes = SIZES[path.split("/")[-2].partition(".")[0]]
    return data.ljust(sizes[crc32(path.encode()) % len(sizes)])


def done(grown: Grown) -> str:
    """Tell what a driver has written of a state, and by which bound."""
    there, partials = grown.there, grown.output.name == COUNTED
    if not there:
        return "whole"
    fan_in = deltas.FAN_IN_PARTIALS if partials else deltas.FAN_IN
    number = deltas.next_number(there)
    left = {each.delta for each in grown.handles}
    if left == {0}:
        size = sum(each.size_bytes for each in there if each.delta)
        if number >= deltas.MAX_EPOCHS:
            return "a base: epochs"
        return "a base: bytes" if size > deltas.SMALL_BYTES else "a base: in place of a merge"
    gone = {each.delta for each in there} - left
    if not gone:
        return "a run" if number % fan_in else "a run: the merge is left to the base"
    return "a merge" if min(gone) > number - fan_in else "a merge: of a higher tier"


DONE = (
    "whole",
    "a run",
    "a run: the merge is left to the base",
    "a merge",
    "a merge: of a higher tier",
    "a base: epochs",
    "a base: bytes",
    "a base: in place of a merge",
)
"""All that `done` tells."""


def happened(handles: list[StateHandle]) -> Counter[str]:
    """Tell what has become of the runs of a checkpoint's states."""
    return Counter(
        runs=any(each.delta for each in handles),
        merged=any("/merged." in each.path for each in handles),
        adopted=any(layout.compaction_of(each.path) is not None for each in handles),
    )


def compact(job: Job) -> None:
    """Somebody compacts the states of the newest checkpoint."""
    runtime = Runtime(lambda: job.hub.now_ms, job.new_token)

    def body() -> None:
        no_spark: Any = object()
        for found in compaction.compact_in(job.store, job.auditor.head.job, lambda: no_spark, STAGE, runtime=runtime):
            job.compacted[found.outcome] += 1

    job.process("compactor", body)


def compacted(files: JobFiles, name: str, handles: list[StateHandle]) -> Rows:
    """Give the rows of a compactor's new base."""
    return grown_state.folded(files, name, handles)


def _write(compactor: Any, writer: Writer, candidate: Any, width: int) -> tuple[Output, tuple[SubtaskAck, ...], int]:
    """Stand for the compactor's Spark query."""
    stored = candidate.stored
    rows = compacted(compactor._files, stored.output.name, [file.handle for file in stored.files])
    output = replace(stored.output, folder=writer.folder_of(stored.output.id))
    base = writer.create(output, "part-0", _filled(f"{output.folder}part-0", json.dumps(rows).encode()))
    return output, tuple(SubtaskAck(index, each) for index, each in subtasks([base], width)), 0


IN_PLACE = (
    (compaction._Compactor, "_write", _write),
    (compaction, "LEASE_MS", LEASE_MS),
    (compaction, "MIN_SHARE", 0),
    (deltas, "FAN_IN", 2),
    (deltas, "FAN_IN_PARTIALS", 3),
    (deltas, "MAX_EPOCHS", 5),
    (deltas, "SMALL_BYTES", 700),
    (merges, "WHOLE_BYTES", 300),
)
"""Stand-ins for what else needs Spark, many epochs or many bytes: runs are merged, and bases written, soon."""
