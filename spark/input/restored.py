"""A stage's part of the restored checkpoint: what it carries over, and the in-flight data of its backlog (B3, F6).

States, tables and values that a stage does not write again are carried over by reference: the new acknowledgement names
the same files, in the older checkpoint's folder. So state that an epoch does not write is kept, and nothing is copied.
The cleaner keeps a file as long as a checkpoint refers to it (semantics C3).

In-flight data are outputs of upstreams in the epochs of the backlog, read before their new ones. An upstream that was
also left out of such an epoch has no in-flight data for it: its later output includes that epoch.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from copy import deepcopy
from typing import TYPE_CHECKING, Any

from ...checkpoint.documents.acknowledgement import CompactionDocument
from ...checkpoint.documents.attempt import BacklogEpoch, Execution, RestorePointer
from ...checkpoint.documents.strict_json import Json
from ...checkpoint.errors import InvalidStateError
from ...checkpoint.store import compactions
from ...checkpoint.store.job_files import FileCheck, JobFiles
from ...storage.errors import DocumentError
from ..kinds import small_state
from ..stored.deltas import Touched
from ..stored.local_state import LocalState
from ..stored.outputs import File, StageContents, Stored, of_checkpoint, same_type, schema_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


VALUE = "value"
"""Kind of a JSON value: in `values`, or among the outputs if it is too large for an acknowledgement (A4)."""


class RestoredState:
    """One stage's part of the restored checkpoint."""

    def __init__(self, stage: str) -> None:
        self._stage = stage
        self._restored: dict[str, Stored] = {}
        self.outputs: dict[str, Stored] = {}
        """States and tables that are carried over unless this epoch writes them, by `Output.id`."""
        self.values: dict[str, Json] = {}
        """Values that are carried over; `Epoch.put` adds to them."""

    def load(self, files: JobFiles, pointer: RestorePointer | None, backlog: Backlog) -> None:
        """Read the stage's part of a checkpoint, and its backlog. Without a pointer, only check the backlog (R2)."""
        if pointer is not None:
            found = of_checkpoint(files, pointer.metadata, lambda stage: stage == self._stage, backlog.take)
            for contents in found:
                self._restored.update(contents.outputs)
                self.values.update(contents.values)
            self._restored = with_adopted_base(files, self._stage, self._restored)
        backlog.check_whole()
        self.outputs = dict(self._restored)

    def restored(self, output_id: str) -> Stored | None:
        """Return an output as the restored checkpoint holds it, whatever this epoch does to it."""
        return self._restored.get(output_id)

    def put(self, name: str, plain: Json) -> None:
        self.outputs.pop(f"{VALUE}.{name}", None)
        self.values[name] = plain

    def forget(self, name: str) -> None:
        self.outputs.pop(f"{VALUE}.{name}", None)
        self.values.pop(name, None)

    def put_or_forget(self, name: str, plain: Json) -> None:
        """Put a value; None removes it."""
        if plain is None:
            self.forget(name)
        else:
            self.put(name, plain)

    def value(self, files: JobFiles, name: str, default: Any, local: LocalState | None = None) -> Any:
        """Return a copy of a value as it is now, or `default`."""
        stored = self.outputs.get(f"{VALUE}.{name}")
        if stored is not None:
            return small_state.read(files, stored, local)
        return deepcopy(self.values[name]) if name in self.values else default

    def choose(self, name: str, kind: str | None) -> str:
        """Return the id of something carried over: an `Output.id`, or `value.<name>`.

        Raises:
            InvalidStateError: nothing has that name, or several things have it.
        """
        there = [*self.outputs, *(f"{VALUE}.{each}" for each in self.values)]
        found = [each for each in there if each.partition(".")[2] == name and kind in (None, each.partition(".")[0])]
        if len(found) == 1:
            return found[0]
        problem = "nothing" if not found else "more than one thing"
        raise InvalidStateError(
            f"there is {problem} to drop by the name {name!r}" + ("; say which kind" if found else ""),
            stage=self._stage,
            there_is=", ".join(sorted(there)) or "nothing",
        )

    def drop(self, dropped: str) -> None:
        """Leave out an id that `choose` found."""
        if self.outputs.pop(dropped, None) is None:
            del self.values[dropped.partition(".")[2]]


# On restore, a stage uses a compaction's new base instead of the base and the deltas that it replaces (semantics K7).
# The epoch's acknowledgement then names the new base, and completing the checkpoint adopts it. A failed epoch changes
# nothing, and the next one looks again.


log = logging.getLogger("airflow_cairn")


def with_adopted_base(files: JobFiles, stage: str, outputs: dict[str, Stored]) -> dict[str, Stored]:
    """Replace a stage's outputs by new bases where they exist; one listing for each folder of a state with deltas."""
    grown = {
        output_id: [file.handle for file in stored.files]
        for output_id, stored in outputs.items()
        if any(file.handle.delta for file in stored.files)
    }
    result = dict(outputs)
    for home in sorted({compactions.home_of(handles) for handles in grown.values()}):
        there = list(compactions.of_stage(files, stage, home))
        for output_id, record in compactions.fitting(there, grown).items():
            result[output_id] = _with_base(files, outputs[output_id], record.document)
    return result


def _with_base(files: JobFiles, stored: Stored, document: CompactionDocument) -> Stored:
    base = [File(ack.index, handle) for ack in document.base or () for handle in ack.handles]
    for handle, problem in FileCheck(files).damaged([file.handle for file in base]):
        log.warning("The compaction of %s is not used: file %s is damaged: %s", stored.output.id, handle.path, problem)
        return stored
    replaced = set(document.replaces)
    left = [file for file in stored.files if file.handle not in replaced]
    log.info("State %s has a new base, by a compaction of %d files", stored.output.id, len(replaced))
    return Stored(document.output, [*base, *left])


# The rows of a keyed state for given keys.


def rows_of_keys(stored: Stored, keys: DataFrame) -> Touched:
    """Describe the read of a state by keys: the keys, the bytes and the values of its files.

    Raises:
        InvalidStateError: the state has no key, or `keys` lacks a key column or has one of another type.
    """
    from pyspark.sql import DataFrame

    output = stored.output
    if not output.key or output.key_groups is None:
        raise InvalidStateError(
            f"{output.id} was written without a key, so its rows cannot be found by keys. Read all of it, or write it "
            f"by epoch.snapshot({output.name!r}, …, key=…)"
        )
    if not isinstance(keys, DataFrame):
        raise InvalidStateError(f"keys must be a Spark DataFrame and is a {type(keys).__name__}", state=output.id)
    schema = schema_of(output)
    for column in output.key:
        if column not in keys.columns:
            raise InvalidStateError(
                f"keys lacks the column {column!r}, by which {output.id} is keyed. Give all columns of the key",
                key=", ".join(output.key),
                columns=", ".join(keys.columns),
            )
        if not same_type(keys.schema[column].dataType, schema[column].dataType):
            raise InvalidStateError(
                f"the column {column!r} of keys is of another type than that of {output.id}. Cast it",
                found=keys.schema[column].dataType.simpleString(),
                expected=schema[column].dataType.simpleString(),
            )
    handles = [file.handle for file in stored.files]
    rows: int | None = 0
    for handle in handles:
        rows = handle.rows_with(rows)
    values = None if rows is None else rows * len(schema)
    return Touched(keys, output.key, output.key_groups, sum(handle.size_bytes for handle in handles), values)


class Backlog:
    """One stage's unread input of older epochs."""

    def __init__(self, unread: Sequence[BacklogEpoch]) -> None:
        self._unread = unread
        self._wanted = {(uid, each.token) for epoch in unread for uid, each in epoch.inputs.items()}
        self._found: dict[tuple[str, str], StageContents] = {}

    def take(self, stage: str, execution: Execution) -> StageContents | None:
        """Return the collector of an execution's outputs; None if the execution is not in this stage's backlog."""
        at = stage, execution.token
        return self._found.setdefault(at, StageContents(stage)) if at in self._wanted else None

    def check_whole(self) -> None:
        """Check that the checkpoint has all in-flight data that the handover lists.

        Raises:
            DocumentError: something is missing.
        """
        missing = sorted(uid for uid, _ in self._wanted - self._found.keys())
        if missing:
            raise DocumentError(
                "the restored checkpoint does not name the in-flight data of this backlog", of=", ".join(missing)
            )

    def readable(self, now: StageContents) -> StageContents:
        """Return an upstream's readable outputs: its new ones, and in-flight ones that it did not write again."""
        older = {output_id: stored for each in self._of(now.stage) for output_id, stored in each.outputs.items()}
        return StageContents(now.stage, {**older, **now.outputs}, now.values)

    def parts(self, now: StageContents, output_id: str) -> list[Stored]:
        """Return the parts of one output of an upstream: the in-flight ones, oldest first, then the new one.

        Only exchanges can be in flight. A state or a table is read as it is now.
        """
        return [each.outputs[output_id] for each in [*self._of(now.stage), now] if output_id in each.outputs]

    def _of(self, stage: str) -> list[StageContents]:
        executions = (epoch.inputs.get(stage) for epoch in self._unread)
        return [self._found[stage, each.token] for each in executions if each is not None]
