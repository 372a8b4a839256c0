"""The epoch's state for applications: states, files and values kept between epochs (semantics A4, K1 to K8, R4)."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any, Literal

from ..checkpoint.documents.strict_json import Json, plain_json
from ..storage.names import check_name
from .epoch_event_time import EpochEventTime
from .event_time.event_time import check_free
from .event_time.ttl import StateTtl
from .input.restored import RestoredState, rows_of_keys
from .kinds import raw_files, small_state
from .output import updates
from .output.outputs import Outputs
from .output.writer import Writer
from .stored import key_groups
from .stored.local_state import LocalState
from .stored.outputs import frame, later

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class EpochState(EpochEventTime):
    """The state of an epoch. Names outside of the grammar (semantics W1) are refused by an `InvalidKeyError`."""

    spark: SparkSession
    """The session that reads and writes."""
    _carried: RestoredState
    _outputs: Outputs
    _writer: Writer
    _local: LocalState | None
    _lock: Lock

    def state(self, name: str, *, subtask: int | None = None, keys: DataFrame | None = None) -> DataFrame | None:
        """Return this stage's state as the restored checkpoint holds it; None if it has no state of that name.

        Writes in this epoch do not change it. Rows that have outlived their `ttl` are left out.

        Args:
            name: the state's name.
            subtask: read only the key groups of this subtask at the stage's current `parallelism`, 0-based; for keyed
                state (semantics R4). None: all of the state.
            keys: read only the rows with one of these keys; needs the state's key columns. Unless the state is small, a
                Spark job looks at these keys now.
        """
        self._check_open("state")
        stored = self._carried.restored(f"state.{check_name('state', name)}")
        output = stored.output if stored else None
        groups = None if subtask is None else key_groups.of_subtask(self._handover, subtask, output)
        if stored is None:
            return None
        touched = None if keys is None else rows_of_keys(stored, keys)
        return self._event_time.to_read(name, frame(self.spark, self._files, stored, groups, self._local, touched))

    def snapshot(
        self,
        name: str,
        df: DataFrame,
        key: str | Sequence[str] = (),
        *,
        background: bool = False,
        ttl: StateTtl | None = None,
    ) -> None:
        """Write a state of this stage; the next epoch reads it by `state(name)`. Runs the DataFrame now.

        Args:
            name: the state's name.
            df: the whole state, not only its changes.
            key: the columns by which the state is keyed: it is stored and can be read by key group (semantics R4).
            background: write while the block goes on (semantics A5, B5); the block's end waits. The input of `df` must
                stay.
            ttl: how long rows live (semantics K6); rows that have outlived it are not written. None: forever.
        """
        self._check_open("snapshot")
        living = self._event_time.to_write(check_free("state", name), df, ttl)
        self._outputs.write("state", name, living, key, background=background)
        self._event_time.let_live(name, ttl)

    def update(
        self,
        name: str,
        changed: DataFrame | None,
        key: str | Sequence[str] = (),
        *,
        deletes: DataFrame | None = None,
        ttl: StateTtl | None = None,
    ) -> DataFrame:
        """Write the changes of a keyed state; its other rows stay (semantics K1 to K3). Runs the DataFrames now.

        Args:
            name: the state's name.
            changed: new rows, and rows that replace those of the same key; each key once. None: only `deletes`.
            key: the columns by which the state is keyed, the same in each epoch.
            deletes: keys to delete; only the key columns are read. A missing key is not an error.
            ttl: how long rows live, those of earlier epochs too (semantics K6). A `ttl` applies from the
                first epoch that gives it with `changed`. None: as before.

        Returns:
            The whole state after the changes, as the next epoch's `state(name)` returns it (semantics K8): read from
            the checkpoint's files at the first use, which must be inside the block.
        """
        self._check_open("update")
        before = self._carried.restored(f"state.{check_free('state', name)}")
        update = updates.checked(name, changed, key, deletes, before)
        if ttl is not None:
            self._event_time.check_lives(name, update.changed, ttl)
        after = self._update("update", update)
        if ttl is not None and update.changed is not None:
            self._event_time.let_live(name, ttl)
        return after

    def aggregate(
        self, name: str, partials: DataFrame, key: str | Sequence[str], *, merge: Mapping[str, str]
    ) -> DataFrame:
        """Write partial aggregates of a keyed state (semantics K1 to K3). Runs the DataFrame now.

        A state that is not small is not read now: reading `state`, or the DataFrame returned, merges the partials with
        everything written before.

        Args:
            name: the state's name.
            partials: rows with the state's columns; a key may appear more than once.
            key: the columns by which the state is keyed, the same in each epoch.
            merge: by column, how its values are merged, the same in each epoch: `sum`, `count`, `min`, `max`,
                `bool_and`, `bool_or`, `bit_and`, `bit_or`, `bit_xor`, `first_by(column)`, `last_by(column)`, or a
                sketch's merge; for each column that is not in the key.

        Returns:
            The whole state with the partials merged, as for `update`.
        """
        self._check_open("aggregate")
        before = self._carried.restored(f"state.{check_free('state', name)}")
        self._event_time.check_lives_on(name)
        return self._update("aggregate", updates.partials(name, partials, key, merge, before))

    def list_state(self, name: str) -> list[list[Any]] | None:
        """Return each subtask's items of a restored list state (semantics R4); None if there is none.

        Returns:
            One list of items for each subtask of the stage's `parallelism`. Without a parallelism: as many lists as
            subtasks wrote the state, and one for broadcast state.
        """
        self._check_open("list_state")
        stored = self._carried.restored(f"{small_state.LIST_KIND}.{check_name('state', name)}")
        return small_state.given_out_items(self._files, stored, self._handover, self._local) if stored else None

    def snapshot_list(
        self,
        name: str,
        per_subtask: Sequence[Sequence[Json]],
        *,
        mode: Literal["split", "union", "broadcast"] = "split",
    ) -> None:
        """Write a list state: items of each subtask, redistributed when the stage is restored (semantics R4).

        Args:
            name: the state's name.
            per_subtask: one list of JSON items for each subtask of the stage's `parallelism`, if it has one.
            mode: `split`: distribute the items evenly, unchanged at the same parallelism. `union`: each subtask gets
                all items. `broadcast`: all subtasks hold the same items, of which one copy is kept.
        """
        self._check_open("snapshot_list")
        items, checked = small_state.items_of(self._handover, name, per_subtask, mode)
        self._outputs.add(
            small_state.LIST_KIND,
            name,
            lambda output_id: small_state.held_items(self._writer, output_id, items, checked),
        )

    def restore_files(self, name: str, into: str | os.PathLike[str]) -> bool:
        """Copy raw files of the restored checkpoint into a folder; return False, with nothing done, if there are none.

        Args:
            name: the state's name.
            into: an empty or a new folder: a path on the driver's disk, or a URL that Spark can write to.
        """
        self._check_open("restore_files")
        stored = self._carried.restored(f"{raw_files.KIND}.{check_name('state', name)}")
        if stored is not None:
            raw_files.restore(self.spark, self._files, stored, into, self._local)
        return stored is not None

    def snapshot_files(self, name: str, folder: str | os.PathLike[str]) -> None:
        """Keep a folder's files as state: a model, an index, a Structured Streaming checkpoint. Copies the files now.

        Args:
            name: the state's name.
            folder: a path on the driver's disk, or a URL that Spark can read; no process may write to it during the
                copy.

        Raises:
            InvalidKeyError: the name does not match the grammar (semantics W1); or a file has a name that no store can
                hold.
        """
        self._check_open("snapshot_files")
        self._outputs.add(
            raw_files.KIND,
            name,
            lambda output_id: raw_files.snapshot(self.spark, self._files, self._writer, output_id, folder),
        )

    def put(self, name: str, value: Json) -> None:
        """Keep a small JSON value as state of this stage (semantics A4); a second `put` replaces it.

        Args:
            name: the value's name.
            value: text, numbers, booleans, None, or lists and dictionaries of them; at most 16 MiB as JSON. Up to 20
                KiB travel inside the acknowledgement; larger values go into a file.
        """
        self._check_open("put")
        what = f"the value {check_free('value', name)!r}"
        plain = plain_json(what, value)
        small_state.check_size(what, plain)
        with self._lock:
            self._carried.put(name, plain)

    def get(self, name: str, default: Any = None) -> Any:
        """Return a value put in this epoch, or else the restored checkpoint's.

        Args:
            name: the value's name.
            default: returned if there is no such value.
        """
        self._check_open("get")
        return self._carried.value(self._files, check_name("value", name), default, self._local)

    def drop(self, name: str, *, kind: Literal["table", "state", "list", "files", "value"] | None = None) -> None:
        """End a state, table or value of the restored checkpoint, which would otherwise be carried over.

        Args:
            name: the name of the state, table or value.
            kind: `table`, `state`, `list`, `files` or `value`, if the name alone is ambiguous.
        """
        self._check_open("drop")
        with self._lock:
            dropped = self._carried.choose(check_name("output", name), kind)
            self._outputs.take(dropped, f"{dropped} was written in this epoch and cannot be dropped in it too")
            self._carried.drop(dropped)

    def _update(self, method: str, update: updates.Update) -> DataFrame:
        to_fold = partial(self._event_time.to_fold, update.name)
        stored = self._outputs.update(update, self._files, self._local, to_fold)

        def after() -> DataFrame:
            self._check_open(method, f"has returned the state {update.name!r}, which was first used")
            rows = frame(self.spark, self._files, stored, local=self._local)
            return self._event_time.to_give_back(update.name, rows)

        return later(update.given, after)
