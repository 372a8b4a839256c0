"""`Epoch`: one stage's part in one epoch, as its Spark application sees it.

The handover says what to do: which slice to read, which checkpoint to start from, which executions are upstream. What
is written lies below a folder of this driver alone and counts once the acknowledgement is judged (semantics A2, W4).
There are no locks: a driver may die anywhere, and the next process settles what it left.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from threading import Lock
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

from ..checkpoint.attempts.acknowledgements import ExecutionReports
from ..checkpoint.documents.acknowledgement import AckMetrics
from ..checkpoint.documents.attempt import Handover
from ..checkpoint.documents.metadata import CHECKS
from ..checkpoint.documents.strict_json import Json, plain_json
from ..checkpoint.errors import FencedError, InvalidStateError
from ..checkpoint.open_job import OpenJob
from ..checkpoint.runtime import Runtime, system_runtime
from ..checkpoint.store.job_files import JobFiles
from ..storage.errors import GoneError
from ..storage.names import check_name
from ..storage.port import ObjectStore
from . import acknowledging, application
from .data_checks import DataChecks
from .epoch_event_time import EpochEventTime
from .event_time.event_time import EventTime, Parts, check_free
from .event_time.ttl import StateTtl
from .execution.fence import Fence
from .execution.log_lines import print_log_lines
from .execution.transport import conf_of
from .handover import conf
from .input import hook_answers, keyed
from .input.backlog import Backlog
from .input.inputs import Inputs
from .input.restored import RestoredState
from .kinds import list_state, places, raw_files, small_state
from .output import updates
from .output.before_snapshot import BeforeSnapshot
from .output.committables import Committables
from .output.outputs import Outputs
from .output.writer import Writer
from .session import session
from .stored import key_groups
from .stored.local_state import LocalState
from .stored.outputs import frame, nothing, united

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

OutputKind = Literal["exchange", "table", "state"]


class Epoch(EpochEventTime):
    """One execution of a stage in one epoch, as a context manager. Applications take it from `Epoch.current()`.

    Leaving the block normally, or by `sys.exit()` with status 0 or none, acknowledges the stage. Any other exception,
    `KeyboardInterrupt` and `sys.exit(1)` included, deletes what was written, declines with the reason, and goes on.

    Args:
        spark: the session that reads and writes.
        store: the storage.
        handover: what the operator handed over.
        runtime: clock and ids; the system's by default.
        local: copies of state beside the Spark server (semantics V3); None: there are none.

    Raises:
        InvalidNameError: the handover's job is no name (semantics W1).
    """

    def __init__(
        self,
        spark: SparkSession,
        store: ObjectStore,
        handover: Handover,
        runtime: Runtime | None = None,
        local: LocalState | None = None,
    ) -> None:
        runtime = runtime or system_runtime()
        self.spark = spark
        self._reports = ExecutionReports(OpenJob(store, handover.job, runtime))
        super().__init__(handover, self._reports.files, partial(places.look, spark))
        self._now_ms = runtime.now_ms
        self._run = runtime.new_token()
        self._writer = Writer(self._files, handover, self._run, runtime.now_ms, local)
        self._local = local
        self._before_snapshot = BeforeSnapshot(runtime.now_ms)
        self._fence = Fence(self._reports, handover, runtime.now_ms)
        self._outputs = Outputs(handover.stage, self._writer, self._before_snapshot, self._fence)
        self._carried = RestoredState(handover.stage)
        self._backlog = Backlog(handover.backlog)
        self._committables = Committables(handover.stage)
        self._checks = DataChecks(handover.stage)
        self._inputs = Inputs(self._files, handover, self._backlog)
        self._event_time = EventTime(
            Parts(spark, self._files, handover, self._carried, self._inputs, self._outputs, local)
        )
        self._lock = Lock()
        self._triggered_at_ms: int | None = None
        self._start_delay_ms = 0
        self._phase: Literal["new", "open", "left"] = "new"

    @classmethod
    def current(cls, spark: SparkSession | None = None) -> Epoch:
        """Give the epoch that this application was submitted for.

        Args:
            spark: the session; the active one, or a new one by the submitted conf, if it is not given.

        Raises:
            InvalidConfigError: the application was not submitted by a SparkEpochOperator.
            FencedError: the attempt that it was submitted for has been replaced and cleaned.
            DocumentError: the handover is broken, of another job or of a newer format.
            UnavailableError: the store did not answer.
            ForbiddenError: the store refused this driver's credentials.
        """
        made = _MADE_HERE.get()
        if made is not None:
            return made
        print_log_lines()
        spark = session(spark)
        settings = conf_of(spark, *conf.READ, *application.READ)
        handed = conf.parse(settings.get)
        application.announce(spark, settings)
        store = handed.open_store()
        try:
            handover, _ = JobFiles(store, handed.job).read(Handover, handed.handover_key)
        except GoneError as error:
            raise FencedError(
                "this attempt has been replaced: its handover is gone. There is nothing to repair, the current attempt "
                "does the work",
                job=handed.job,
                key=handed.handover_key,
                store=store.describe(),
            ) from error
        owner = f"{handed.storage}/{handed.job}/{handover.stage}"
        local = LocalState.beside(handed.local_state, handed.local_state_bytes, owner)
        return cls(spark, store, handover, local=local)

    @property
    def was_entered(self) -> bool:
        """Whether the block has begun."""
        return self._phase != "new"

    def hook(self, name: str) -> Json | bytes:
        """Give what a master hook answered for this epoch; see `hook_answers.answer_of`."""
        return hook_answers.answer_of(self._files, self._handover, name)

    def state(self, name: str, *, subtask: int | None = None, keys: DataFrame | None = None) -> DataFrame | None:
        """Give this stage's state as the restored checkpoint holds it; None if it holds none of that name.

        What this epoch writes does not change it. Rows that have outlived their `ttl` are left out.

        Args:
            name: the state's name.
            subtask: read only the key groups that this subtask has at the stage's `parallelism` of now, 0-based; for
                keyed state (semantics R4). None: all of it.
            keys: read only the rows that have one of these keys; it has the state's key columns. Where the state is not
                small, a job looks at it now.

        Raises:
            InvalidStateError: outside the `with` block; or a subtask is named and is none of the stage's, or the stage
                names no parallelism, or the state has no key, or `keys` lacks a column of it.
            InvalidNameError: the name does not match the grammar (semantics W1).
        """
        self._check_open("state")
        stored = self._carried.restored(f"state.{check_name('state', name)}")
        output = stored.output if stored else None
        groups = None if subtask is None else key_groups.of_subtask(self._handover, subtask, output)
        if stored is None:
            return None
        touched = None if keys is None else keyed.touched(stored, keys)
        return self._event_time.to_read(name, frame(self.spark, self._files, stored, groups, self._local, touched))

    def read(
        self,
        stage: str,
        name: str | None = None,
        *,
        kind: OutputKind | None = None,
        schema: StructType | str | None = None,
    ) -> DataFrame:
        """Read what an upstream stage wrote in this epoch (semantics B1).

        What it wrote in the epochs of this stage's backlog comes first, oldest first (semantics B2, B3, F6). With
        `mode="at_least_once"` an upstream may not have acknowledged yet. Then only the backlog is read; of a table or a
        state, what the restored checkpoint has; and where there is nothing, an empty DataFrame.

        Args:
            stage: the upstream's uid. That of a mapped task reads all its instances, in order; `<uid>-0` the first.
            name: which of its outputs; None for its only exchange, or its only output.
            kind: `exchange`, `table` or `state`, where the name alone is ambiguous.
            schema: columns of the empty DataFrame, as Spark takes a schema; none by default. Needed where the upstream
                wrote nothing in this epoch: it was skipped, or had nothing to write.

        Raises:
            InvalidStateError: it is no declared upstream, has not acknowledged, or has no such output, or several; or
                it was skipped, and no schema is given.
            DocumentError: its acknowledgement is broken.
        """
        self._check_open("read")
        empty = None if schema is None else nothing(self.spark, schema)
        parts = self._inputs.parts(stage, name, kind, columns=None if empty is None else empty.columns)
        self._event_time.note_read()
        if not parts and schema is None and self._inputs.skipped(stage):
            raise InvalidStateError(
                f"the upstream stage {stage!r} was skipped in this epoch, so it wrote nothing. Give the columns of the "
                "empty DataFrame: schema='…'",
                stage=stage,
            )
        if parts:
            return united(self.spark, self._files, parts)
        return nothing(self.spark, None) if empty is None else empty

    def before_snapshot(self, step: Callable[[], object]) -> None:
        """Have a short step run once, before the first snapshot or table is written (semantics B5).

        With neither it runs when the block ends without an error. If it fails, the stage declines.

        Args:
            step: takes nothing; it may `put` values, and writes no snapshot, table or exchange.

        Raises:
            InvalidStateError: outside the block, called twice, after the first snapshot, or it is no function.
        """
        self._check_open("before_snapshot")
        self._before_snapshot.set(step)

    def snapshot(
        self,
        name: str,
        df: DataFrame,
        key: str | Sequence[str] = (),
        *,
        background: bool = False,
        ttl: StateTtl | None = None,
    ) -> None:
        """Write a state of this stage; the next epoch gets it from `state(name)`. Runs the DataFrame now.

        Args:
            name: the state's name.
            df: all of the state, not what changed.
            key: columns by which the state is keyed: it is stored by key group, and can be read so (semantics R4).
            background: write while the block goes on (semantics A5, B5); its end waits. What `df` reads must stay.
            ttl: how long rows live (semantics K6); those that have outlived it are not written. None: forever.

        Raises:
            InvalidStateError: the name was used before in this epoch, a key column is missing or of a type that cannot
                be hashed, the column of the `ttl` holds no timestamps, or `df` is none.
            InvalidNameError: the name does not match the grammar (semantics W1).
            InvalidConfigError: Spark's output committer cannot be trusted.
            BackgroundSnapshotError: what was to be written in the background before has failed.
        """
        self._check_open("snapshot")
        living = self._event_time.to_write(check_free("state", name), df, ttl)
        self._outputs.write("state", name, living, key, background=background)

    def update(
        self,
        name: str,
        changed: DataFrame | None,
        key: str | Sequence[str] = (),
        *,
        deletes: DataFrame | None = None,
        ttl: StateTtl | None = None,
    ) -> None:
        """Write what changed in a keyed state; the rest of it stays (semantics K1 to K3). Runs the DataFrames now.

        Args:
            name: the state's name.
            changed: rows that are new, or replace those of the same key; each key once. None: nothing but `deletes`.
            key: the columns by which the state is keyed, the same in each epoch.
            deletes: keys that are deleted; only its key columns are looked at. A key that is not there is no error.
            ttl: how long rows live, those of earlier epochs too (semantics K6). It begins with the first epoch that
                gives it with `changed`. None: as before.

        Raises:
            InvalidStateError: the name was used before in this epoch; a key column is missing, of a type that cannot be
                hashed, or another than before; the columns differ from the state's; a key is there twice; the state
                was written without a key; or it has another `ttl`, whose column has to hold timestamps.
            InvalidNameError: the name does not match the grammar (semantics W1).
            InvalidConfigError: Spark's output committer cannot be trusted.
            BackgroundSnapshotError: what was to be written in the background before has failed.
        """
        self._check_open("update")
        before = self._carried.restored(f"state.{check_free('state', name)}")
        update = updates.checked(name, changed, key, deletes, before)
        if ttl is not None:
            self._event_time.check_lives(name, update.changed, ttl)
        self._update(update)
        if ttl is not None and update.changed is not None:
            self._event_time.let_live(name, ttl)

    def aggregate(self, name: str, partials: DataFrame, key: str | Sequence[str], *, merge: Mapping[str, str]) -> None:
        """Write partial aggregates of a keyed state (semantics K1 to K3). Runs the DataFrame now.

        A state that is not small is not read: `state` merges the partials with all that was written before.

        Args:
            name: the state's name.
            partials: rows with the state's columns; a key may be there more than once.
            key: the columns by which the state is keyed, the same in each epoch.
            merge: by column, how its values are merged, the same in each epoch: `sum`, `count`, `min`, `max`,
                `bool_and`, `bool_or`, `bit_and`, `bit_or`, `bit_xor`, `first_by(column)`, `last_by(column)`, or
                that of a sketch; for each column that is not in the key.

        Raises:
            InvalidStateError: the name was used before in this epoch; key, columns or merge differ from the state's; a
                merge is missing, unknown or does not take its column; or the state is one of `update`, or has a `ttl`.
            InvalidNameError: the name does not match the grammar (semantics W1).
            InvalidConfigError: Spark's output committer cannot be trusted, or this version of Spark lacks a sketch.
            BackgroundSnapshotError: what was to be written in the background before has failed.
        """
        self._check_open("aggregate")
        before = self._carried.restored(f"state.{check_free('state', name)}")
        self._event_time.check_lives_on(name)
        self._update(updates.partials(name, partials, key, merge, before))

    def list_state(self, name: str) -> list[list[Any]] | None:
        """Give each subtask its items of a list state of the restored checkpoint (semantics R4); None if there is none.

        Args:
            name: the state's name.

        Returns:
            A list of items for each subtask, as many as the stage's `parallelism`. Without one, as many as wrote the
            state, and one for broadcast state.

        Raises:
            InvalidStateError: outside the `with` block.
            InvalidNameError: the name does not match the grammar (semantics W1).
            DocumentError: the file that holds a large one has been altered.
        """
        self._check_open("list_state")
        stored = self._carried.restored(f"{list_state.KIND}.{check_name('state', name)}")
        return list_state.given_out(self._files, stored, self._handover, self._local) if stored else None

    def snapshot_list(
        self,
        name: str,
        per_subtask: Sequence[Sequence[Json]],
        *,
        mode: Literal["split", "union", "broadcast"] = "split",
    ) -> None:
        """Write a list state: what each subtask holds, given out anew when the stage is restored (semantics R4).

        Args:
            name: the state's name.
            per_subtask: a list of JSON items for each subtask, as many as the stage's `parallelism`, if it names one.
            mode: `split`: evenly among the subtasks, untouched at the same parallelism. `union`: each gets all
                items. `broadcast`: all hold the same items, of which one copy is kept.

        Raises:
            InvalidStateError: the name was used before in this epoch, an item is no JSON, the number of subtasks is
                another than the stage's, or broadcast items differ.
            InvalidNameError: the name does not match the grammar (semantics W1).
        """
        self._check_open("snapshot_list")
        items, checked = list_state.items_of(self._handover, name, per_subtask, mode)
        self._outputs.add(
            list_state.KIND, name, lambda output_id: list_state.held(self._writer, output_id, items, checked)
        )

    def restore_files(self, name: str, into: str | os.PathLike[str]) -> bool:
        """Copy raw files of the restored checkpoint into a folder; False, and nothing done, if there are none.

        Args:
            name: the name under which they were kept.
            into: an empty folder, or one to be made: a path on the driver's disk, or a URL that Spark can write to.

        Raises:
            InvalidStateError: the folder is not empty.
            InvalidNameError: the name does not match the grammar (semantics W1).
        """
        self._check_open("restore_files")
        stored = self._carried.restored(f"{raw_files.KIND}.{check_name('state', name)}")
        if stored is not None:
            raw_files.restore(self.spark, self._files, stored, into, self._local)
        return stored is not None

    def snapshot_files(self, name: str, folder: str | os.PathLike[str]) -> None:
        """Keep a folder's files as state: a model, an index, a Structured Streaming checkpoint. Copies them now.

        Args:
            name: the state's name.
            folder: a path on the driver's disk, or a URL that Spark can read; no process may write to it meanwhile.

        Raises:
            InvalidStateError: the name was used before in this epoch, there is no such folder, or it changed meanwhile.
            InvalidNameError: the name does not match the grammar (semantics W1).
            InvalidKeyError: a file has a name that no store can hold.
        """
        self._check_open("snapshot_files")
        self._outputs.add(
            raw_files.KIND,
            name,
            lambda output_id: raw_files.snapshot(self.spark, self._files, self._writer, output_id, folder),
        )

    def publish(self, name: str, df: DataFrame, *, background: bool = False) -> None:
        """Write a table; readers see it when the checkpoint completes, and not before (semantics C4).

        Args:
            name: the table's name, unique in the job.
            df: all of the table.
            background: write while the block goes on (semantics A5, B5); its end waits. What `df` reads must stay.

        Raises:
            InvalidStateError: the name was used before in this epoch, or `df` is no DataFrame.
            InvalidNameError: the name does not match the grammar (semantics W1).
            InvalidConfigError: Spark's output committer cannot be trusted.
        """
        self._check_open("publish")
        self._outputs.write("table", name, df, background=background)

    def append(
        self,
        name: str,
        df: DataFrame,
        *,
        partition_by: str | Sequence[str] = (),
        overwrite_partitions: bool = False,
    ) -> None:
        """Add rows to a table; readers see them when the checkpoint completes (semantics C4). Runs the DataFrame now.

        A try that runs again adds the same rows to the same table: that of the restored checkpoint.

        Args:
            name: the table's name, unique in the job.
            df: the rows to add. It may have columns that the table lacks, and wider types.
            partition_by: columns by which rows are kept apart in files; always the same ones.
            overwrite_partitions: let the rows so far of each partition that `df` has rows of go.

        Raises:
            InvalidStateError: the name was used before in this epoch; `df` is no DataFrame, or lacks a column of the
                table, or has one of another type; the table is partitioned otherwise.
            InvalidNameError: the name does not match the grammar (semantics W1).
            InvalidConfigError: Spark's output committer cannot be trusted.
            DocumentError: a manifest of the table is broken or altered.
        """
        self._check_open("append")
        before = self._carried.outputs.get(f"table.{check_name('table', name)}")
        self._outputs.append(name, df, before, partition_by, overwrite_partitions=overwrite_partitions)

    def write(self, df: DataFrame, name: str = "main") -> None:
        """Write what downstream stages read in this epoch; it is dropped once the epoch has completed.

        Args:
            df: the data.
            name: for stages that write more than one.

        Raises:
            InvalidStateError: the name was used before in this epoch, or `df` is no DataFrame.
            InvalidNameError: the name does not match the grammar (semantics W1).
            InvalidConfigError: Spark's output committer cannot be trusted.
        """
        self._check_open("write")
        self._outputs.write("exchange", name, df)

    def put(self, name: str, value: Json) -> None:
        """Keep a small JSON value as state of this stage (semantics A4); putting it again replaces it.

        Args:
            name: the value's name.
            value: text, numbers, booleans, None, lists and dictionaries of them; at most 16 MiB as JSON. Up to 20 KiB
                travel inside the acknowledgement, more goes into a file.

        Raises:
            InvalidStateError: it is not JSON, or too large.
            InvalidNameError: the name does not match the grammar (semantics W1).
        """
        self._check_open("put")
        what = f"the value {check_free('value', name)!r}"
        plain = plain_json(what, value)
        small_state.check_size(what, plain)
        with self._lock:
            self._carried.put(name, plain)

    def get(self, name: str, default: Any = None) -> Any:
        """Give a value: as it was put in this epoch, else as the restored checkpoint holds it.

        Args:
            name: the value's name.
            default: what to give where there is none.

        Raises:
            InvalidStateError: outside the `with` block.
            DocumentError: the file that holds a large one has been altered.
        """
        self._check_open("get")
        return self._carried.value(self._files, check_name("value", name), default, self._local)

    def commit_on_complete(self, name: str, value: Json) -> None:
        """Hand what was staged outside to the job's listeners when the checkpoint has ended; see `Committables.add`."""
        self._check_open("commit_on_complete")
        self._committables.add(name, value)

    def check(
        self, name: str, condition: Column | str | bool, df: DataFrame | None = None, *, warn: bool = False
    ) -> bool:
        """Check data: where the check fails, the stage declines, and nothing of the epoch counts. Runs now.

        Args:
            name: what the check says, for people.
            condition: what must be true of each row of `df`, a Column or SQL text; where it is null, the row breaks it.
                Without `df`: a truth value.
            df: the rows.
            warn: only note that it failed, in the log and with the checkpoint.

        Returns:
            Whether it passed.

        Raises:
            DataCheckError: it failed. If the application catches that, the end of the block raises it again.
            InvalidStateError: outside the block; or name, condition or DataFrame are none.
        """
        self._check_open("check")
        return self._checks.check(name, condition, df, warn=warn)

    def drop(self, name: str, *, kind: Literal["table", "state", "list", "files", "value"] | None = None) -> None:
        """Let a state, table or value of the restored checkpoint end here; otherwise each is carried over.

        Args:
            name: its name.
            kind: `table`, `state`, `list`, `files` or `value`, where the name alone is ambiguous.

        Raises:
            InvalidStateError: there is none of that name, there is more than one, or this epoch has written it.
        """
        self._check_open("drop")
        with self._lock:
            dropped = self._carried.choose(check_name("output", name), kind)
            self._outputs.take(dropped, f"{dropped} was written in this epoch and cannot be dropped in it too")
            self._carried.drop(dropped)

    def __enter__(self) -> Epoch:
        """Restore.

        Raises:
            InvalidStateError: entered before.
            FencedError: the attempt can no longer count, or has acknowledged already.
        """
        if self._phase != "new":
            raise InvalidStateError("an epoch is entered once; use one `with Epoch.current() as epoch:` an application")
        self._triggered_at_ms = self._fence.enter()
        self._start_delay_ms = self._since_trigger_ms()
        try:
            self._carried.load(self._files, self._handover.restore, self._backlog)
            self._event_time.load()
            restored = (stored.output for stored in self._carried.outputs.values())
            self._writer.key_groups = key_groups.number_of(self._handover, restored)
        except Exception as error:
            self._decline(error)
            raise
        self._phase = "open"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Acknowledge, or decline.

        Raises:
            InvalidStateError: the step before the snapshot failed, a file of a source changed while it was read, or
                what the stage leaves does not fit into a marker.
            DataCheckError: a check failed, and the application has caught that.
            FencedError: the attempt was replaced meanwhile; what it wrote has been deleted.
            BackgroundSnapshotError: what was to be written in the background has failed.
            UnavailableError: it is not known whether the acknowledgement arrived.
        """
        if error is not None and not (isinstance(error, SystemExit) and error.code in (None, 0)):
            self._phase = "left"
            self._decline(error)
            return
        try:
            # The block is still open to the step, which may put values.
            self._checks.raise_if_failed()
            self._before_snapshot.run()
            self._event_time.finish()
            self._carried.put_or_forget(CHECKS, self._checks.to_keep(self._handover.token))
        except BaseException as problem:
            self._decline(problem)
            raise
        finally:
            self._phase = "left"
        try:
            outputs = {**self._carried.outputs, **self._outputs.finish()}
            self._source_files.check_unchanged()
            outputs, values = small_state.settle(self._writer, outputs, self._carried.values)
            sync_ms = self._before_snapshot.took_ms + self._writer.times.sync_ms
            metrics = AckMetrics(
                self._start_delay_ms, sync_ms, self._writer.times.async_ms, end_to_end_ms=self._since_trigger_ms()
            )
            staged, consumed = self._committables.values, self._inputs.consumed
            ack = acknowledging.acknowledgement(self._handover, self._run, outputs, values, metrics, staged, consumed)
        except BaseException as problem:
            self._decline(problem)
            raise
        acknowledging.acknowledge(self._reports, self._handover, ack)

    def _since_trigger_ms(self) -> int:
        return 0 if self._triggered_at_ms is None else max(0, self._now_ms() - self._triggered_at_ms)

    def _decline(self, error: BaseException) -> None:
        self._outputs.abort()
        acknowledging.decline(self._reports, self._handover, self._writer, error)

    def _update(self, update: updates.Update) -> None:
        self._outputs.update(update, self._files, self._local, partial(self._event_time.to_fold, update.name))

    def _check_open(self, method: str) -> None:
        if self._phase == "open":
            return
        when = "before" if self._phase == "new" else "after"
        raise InvalidStateError(
            f"epoch.{method} was called {when} the epoch's block. Use it inside `with Epoch.current() as epoch:`"
        )


_MADE_HERE: ContextVar[Epoch | None] = ContextVar("cairn_epoch", default=None)
"""The epoch that this process has made itself; None: the operator hands one over."""


@contextmanager
def as_current(epoch: Epoch) -> Iterator[None]:
    """Have `Epoch.current()` give this epoch inside the block, to an application that a test runs in its process."""
    before = _MADE_HERE.set(epoch)
    try:
        yield
    finally:
        _MADE_HERE.reset(before)
