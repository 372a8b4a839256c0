"""States that a stage changes by deltas, as driver and compactor do: updated, aggregated (semantics K1 to K3)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from airflow_cairn.checkpoint.documents import layout
from airflow_cairn.checkpoint.documents.acknowledgement import CompactionDocument, Output, StateHandle, SubtaskAck
from airflow_cairn.checkpoint.documents.attempt import DocumentRef, Handover
from airflow_cairn.checkpoint.rows.reading import DELETED, merged
from airflow_cairn.checkpoint.store import compactions
from airflow_cairn.checkpoint.store.job_files import JobFiles
from airflow_cairn.spark.input.restored import with_adopted_base
from airflow_cairn.spark.stored import deltas
from airflow_cairn.spark.stored.outputs import Stored, of_checkpoint
from airflow_cairn.storage import GoneError
from airflow_cairn.storage.port import ObjectStore

if TYPE_CHECKING:
    from tests.support.world.world import World

Rows = list[dict[str, Any]]

PutFile = Callable[[JobFiles, str, str, bytes], StateHandle]
"""Writes a file of an output, by its `Output.id` and its path."""


class Grown(NamedTuple):
    """Files of a state that a driver has written."""

    output: Output
    handles: list[StateHandle]
    """Handles that the driver acknowledges."""
    there: list[StateHandle]
    """Base and deltas that were restored; none of a state that is new or small."""


JOB = "flights"
UPDATED, AGGREGATED, COUNTED = "newest", "epochs", "count"
"""The first is updated, the others are aggregated. The second is written whole in each epoch, the others by the bounds
that a job has, and so are their deltas merged."""


def changes(before: list[str], new: list[str]) -> dict[str, Rows]:
    """Give what a world's epoch changes: the newest epoch is a key of its own, and the one before it no longer."""
    gone: Rows = [{"k": epoch, "v": None, DELETED: True} for epoch in before[-1:]]
    rows: Rows = [{"k": "last", "v": new[-1], DELETED: False}, {"k": new[-1], "v": 1, DELETED: False}, *gone]
    return {UPDATED: rows, AGGREGATED: [{"k": "all", "v": len(new)}]}


def grow(
    put_file: PutFile,
    files: JobFiles,
    handover: Handover,
    run: str,
    changed: Mapping[str, Rows],
    is_small: Callable[[Sequence[StateHandle]], bool] = lambda _: False,
) -> Iterator[Grown]:
    """Do what a driver does that updates and aggregates states.

    Args:
        put_file: writes a file.
        files: the job's files.
        handover: what the driver is told.
        run: its own token.
        changed: by state, what the epoch changes.
        is_small: whether a state with these files is written whole.
    """
    there = restored(files, handover)
    for name, rows in changed.items():

        def put(kind: str, rows: Rows, name: str = name) -> StateHandle:
            at = handover
            folder = layout.output_folder(at.checkpoint, at.stage, at.attempt, at.token, run, f"{kind}.{name}")
            return put_file(files, f"state.{name}", f"{folder}part-0", json.dumps(rows).encode())

        stored = there.get(f"state.{name}")
        handles = [file.handle for file in stored.files] if stored else []
        due = name == AGGREGATED or deltas.is_due(handles, partials=name == COUNTED)
        if stored is None or is_small(handles) or due:
            base = put("state", changed_at_once(name, folded(files, name, handles) if handles else [], rows))
            output = Output("state", name, base.path.removesuffix("part-0"))
            yield Grown(output, acknowledged(base, handles), handles if due else [])
        else:
            yield _grown(put, files, name, rows, stored)


def changed_at_once(name: str, there: Rows, changed: Rows) -> Rows:
    """Give the rows of a state that is written whole when it changes."""
    if name != UPDATED:
        return [{"k": "all", "v": sum(row["v"] for row in (*there, *changed))}]
    rows = {row["k"]: row["v"] for row in (*there, *changed)}
    gone = {row["k"] for row in changed if row[DELETED]}
    return [{"k": k, "v": v} for k, v in rows.items() if k not in gone]


def _grown(put: Callable[[str, Rows], StateHandle], files: JobFiles, name: str, changed: Rows, there: Stored) -> Grown:
    """Write a delta, or one with what some of the deltas so far have."""
    handles, partials = [file.handle for file in there.files], name == COUNTED
    together = deltas.to_merge(handles, partials=partials)
    parts = [each for each in handles if each.delta in together]
    if not parts:
        rows = changed
    elif partials:
        rows = changed_at_once(name, folded(files, name, parts), changed)
    else:
        rows = as_one(files, parts, changed)
    one = replace(put("merged" if parts else "run", rows), delta=deltas.next_number(handles))
    return Grown(there.output, merged_away(handles, parts, one), handles)


def as_one(files: JobFiles, parts: Sequence[StateHandle], changed: Rows) -> Rows:
    """Give the rows of deltas and an update as one delta: of each key the newest, a deleted key as deleted."""
    in_order = sorted(parts, key=lambda each: each.delta)
    rows = [*(row for each in in_order for row in _rows(files, each)), *changed]
    return list({row["k"]: row for row in rows}.values())


def merged_away(handles: list[StateHandle], parts: list[StateHandle], one: StateHandle) -> list[StateHandle]:
    """Give the files that are acknowledged: a delta replaces those that it has in it."""
    return [*(each for each in handles if each not in parts), one]


def folded(files: JobFiles, name: str, handles: Sequence[StateHandle]) -> Rows:
    """Give the rows of base and deltas, or of some deltas of partials, as those of one file."""
    return [{"k": key, "v": value} for key, value in value_of(files, name, handles)]


def acknowledged(base: StateHandle, _: list[StateHandle]) -> list[StateHandle]:
    """Give the files that are acknowledged: a new base replaces base and deltas."""
    return [base]


def value_of(files: JobFiles, name: str, handles: Sequence[StateHandle]) -> list[tuple[str, Any]]:
    """Give keys and values of a state, as one who reads it merges base and deltas."""

    def read(handle: StateHandle, columns: Sequence[str]) -> Iterator[dict[str, Any]]:
        return ({column: row[column] for column in columns} for row in _rows(files, handle))

    if name == UPDATED:
        return [(row["k"], row["v"]) for row in merged(handles, ["k", "v"], ["k"], read)]
    return [("all", sum(row["v"] for handle in handles for row in read(handle, ["v"])))]


def _rows(files: JobFiles, handle: StateHandle) -> Rows:
    rows: Rows = json.loads(files.get(handle.path, max_bytes=10_000).data)
    return rows


def restored(files: JobFiles, handover: Handover) -> dict[str, Stored]:
    """Give what the restored checkpoint holds of the stage, with the compactions that it adopts."""
    if handover.restore is None:
        return {}
    return with_adopted_base(files, handover.stage, _outputs(files, handover.restore.metadata, handover.stage))


def compact(world: World, token: str, store: ObjectStore | None = None, *, finish: bool = True) -> bool:
    """Do what a compactor does with the state of updates; gives whether its new base may be adopted.

    Args:
        world: whose newest checkpoint is compacted.
        token: of the compaction.
        store: what it writes to.
        finish: whether it comes to its end, or dies when all files are there.
    """
    files, stage = JobFiles(store or world.store, JOB), "report"
    entry = world.coordinator().head().completed[-1]
    stored = _outputs(files, entry.metadata, stage)[f"state.{UPDATED}"]
    handles = tuple(file.handle for file in stored.files)
    output = stored.output
    record = compactions.begin(files, CompactionDocument(JOB, stage, token, output, 0, handles))
    folder = layout.output_folder(compactions.home_of(handles), stage, layout.COMPACTOR, token, "1", output.id)
    try:
        data = json.dumps(folded(files, UPDATED, handles)).encode()
    except GoneError:
        files.delete([record.key])
        return False
    base = world.put_file(files, output.id, f"{folder}part-0", data)
    if not finish:
        return False
    if compactions.finish(files, record, replace(output, folder=folder), (SubtaskAck(0, (base,)),)):
        return True
    files.delete([base.path])
    return False


def to_adopt(files: JobFiles, referred: set[str]) -> set[str]:
    """Give the keys of compactions whose every replaced file is one of these, or of such a compaction."""
    found: set[str] = set()
    there = [each.key for each in files.listing("") if layout.compaction_of(each.key)]
    # An adopted compaction that no other epoch may adopt has no record any more.
    left = {key for key in there if layout.compaction_of(key) == key}
    alive = left
    while alive:  # one may replace the base of another
        documents = {key: files.read(CompactionDocument, key)[0] for key in left}
        alive = {
            key
            for key, document in documents.items()
            if not document.given_up and {handle.path for handle in document.replaces} <= referred | found
        }
        left -= alive
        found |= {each for each in there if layout.compaction_of(each) in alive}
    return found - referred


def _outputs(files: JobFiles, metadata: DocumentRef, stage: str) -> dict[str, Stored]:
    found = of_checkpoint(files, metadata, lambda each: each == stage)
    return {output_id: stored for contents in found for output_id, stored in contents.outputs.items()}


def check(world: World, epochs: Sequence[str]) -> None:
    """Check that both states of the newest checkpoint are what these epochs, one after the other, make of them."""
    entry = world.coordinator().head().completed[-1]
    outputs = _outputs(world.files, entry.metadata, "report")
    found = {
        name: sorted(value_of(world.files, name, [file.handle for file in outputs[f"state.{name}"].files]))
        for name in (UPDATED, AGGREGATED)
    }
    assert found == {UPDATED: sorted([("last", epochs[-1]), (epochs[-1], 1)]), AGGREGATED: [("all", len(epochs))]}, (
        "each epoch's delta counts once, in order"
    )
