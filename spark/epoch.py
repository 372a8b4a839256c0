"""`Epoch`: one stage's part in one epoch, as its Spark application sees it.

The handover says which slice to read, which checkpoint to restore and which upstream executions to read. The epoch
writes below a folder of its own driver; its files count once the acknowledgement is judged (semantics A2, W4). There
are no locks: a driver may die anywhere, and the next process settles what it left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from functools import partial
from threading import Lock
from types import TracebackType
from typing import TYPE_CHECKING, Literal

from ..checkpoint.acts.acknowledgements import ExecutionReports
from ..checkpoint.documents.acknowledgement import AckMetrics
from ..checkpoint.documents.attempt import Handover
from ..checkpoint.documents.metadata import CHECKS
from ..checkpoint.documents.strict_json import Json
from ..checkpoint.errors import FencedError, InvalidStateError
from ..checkpoint.store.head_store import OpenJob
from ..checkpoint.store.job_files import JobFiles
from ..storage.clock import Runtime, system_runtime
from ..storage.errors import GoneError
from ..storage.names import StorageUri, check_name
from ..storage.port import ObjectStore
from . import acknowledging
from .acknowledging import Committables
from .data_checks import DataChecks
from .epoch_state import EpochState
from .event_time.event_time import EventTime, Parts
from .execution import log_lines
from .execution.fence import Fence, already_acknowledged
from .execution.log_lines import print_log_lines
from .execution.transport import conf_of, session
from .handover import conf
from .input import inputs
from .input.inputs import Inputs
from .input.restored import Backlog, RestoredState
from .input.slices import SourceFiles
from .kinds import raw_files, small_state
from .output.background import BeforeSnapshot
from .output.outputs import Outputs
from .output.writer import Writer
from .stored import key_groups
from .stored.local_state import LocalState
from .stored.outputs import nothing, united

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from .branches import Branches
    from .staged_tables import EpochTable, StagedTables

OutputKind = Literal["exchange", "table", "state"]


class Epoch(EpochState):
    """One execution of a stage in one epoch, as a context manager. Applications get it from `Epoch.current()`.

    Leaving the block normally, or by `sys.exit()` with status 0 or none, acknowledges the stage. Any other exception,
    `KeyboardInterrupt` and `sys.exit(1)` included, deletes what was written, declines with the reason, and propagates.

    Args:
        spark: the session that reads and writes.
        store: the storage.
        handover: what the operator handed over.
        runtime: clock and ids; the system's by default.
        local: copies of state beside the Spark server (semantics V3); None: no copies.
        sources: the folder of each of the DAG's sources that has one, by name; files elsewhere are not read. None: the
            caller has made the lists of files itself.

    Raises:
        InvalidKeyError: the handover's job name does not match the grammar (semantics W1).
    """

    def __init__(
        self,
        spark: SparkSession,
        store: ObjectStore,
        handover: Handover,
        runtime: Runtime | None = None,
        local: LocalState | None = None,
        sources: Mapping[str, StorageUri] | None = None,
    ) -> None:
        runtime = runtime or system_runtime()
        self.spark = spark
        self._reports = ExecutionReports(OpenJob(store, handover.job, runtime))
        files = self._reports.files
        super().__init__(handover, files, SourceFiles(handover, files, partial(raw_files.look, spark), sources))
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
        self._tables: StagedTables | None = None
        self._branches: Branches | None = None
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
        """Return the epoch that this application was submitted for.

        Args:
            spark: the session; by default the active one, or else a new one with the submitted conf.

        Raises:
            InvalidConfigError: the application was not submitted by a SparkEpochOperator.
            FencedError: the application's attempt has been replaced and cleaned, or this process has acknowledged it.
            DocumentError: the handover is broken, or of another job or a newer format.
            UnavailableError: the store did not answer.
            ForbiddenError: the store refused this driver's credentials.
        """
        made = _MADE_HERE.get()
        if made is not None:
            return made
        print_log_lines()
        spark = session(spark)
        settings = conf_of(spark, *conf.READ, *log_lines.READ)
        handed = conf.parse(settings.get)
        log_lines.announce(spark, settings)
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
        if handover.token in acknowledging.ACKNOWLEDGED:
            raise already_acknowledged(handover)
        owner = f"{handed.storage}/{handed.job}/{handover.stage}"
        local = LocalState.beside(handed.local_state, handed.local_state_bytes, owner)
        return cls(spark, store, handover, local=local, sources=handed.sources)

    @property
    def was_entered(self) -> bool:
        """True once the block has begun."""
        return self._phase != "new"

    def hook(self, name: str) -> Json | bytes:
        """Return a master hook's answer for this epoch; see `inputs.answer_of`."""
        return inputs.answer_of(self._files, self._handover, name)

    def read(
        self,
        stage: str,
        name: str | None = None,
        *,
        kind: OutputKind | None = None,
        schema: StructType | str | None = None,
    ) -> DataFrame:
        """Read the output of an upstream stage in this epoch (semantics B1).

        Data of the epochs in this stage's backlog come first, oldest first (semantics B2, B3, F6). With
        `mode="at_least_once"` an upstream may not have acknowledged yet. Then this returns only the backlog; for a
        table or a state, its contents in the restored checkpoint; and where there is nothing, an empty DataFrame.

        Args:
            stage: the upstream's uid. The uid of a mapped task reads all its instances, in order; `<uid>-0` reads the
                first.
            name: the output's name; None for the upstream's only exchange, or for its only output of the kind.
            kind: `exchange`, `table` or `state`, if the name alone is ambiguous.
            schema: columns of the empty DataFrame, as Spark takes a schema; none by default. Required if the upstream
                wrote nothing in this epoch: it was skipped, or had nothing to write.

        Raises:
            InvalidStateError: the stage is not a declared upstream, has not acknowledged, or has no such output, or
                several; or it was skipped, and no schema is given.
            DocumentError: the upstream's acknowledgement is broken.
        """
        self._check_open("read")
        empty = None if schema is None else nothing(self.spark, schema)
        parts = self._inputs.parts(stage, name, kind, required=empty is None)
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
        """Register a short step that runs once, before the first snapshot or table is written (semantics B5).

        Without snapshot and table the step runs when the block ends without an error. If the step fails, the stage
        declines.

        Args:
            step: takes nothing; it may `put` values, but must not write a snapshot, table or exchange.

        Raises:
            InvalidStateError: outside the block, called twice, after the first snapshot, or the step is not a function.
        """
        self._check_open("before_snapshot")
        self._before_snapshot.set(step)

    def publish(self, name: str, df: DataFrame, *, background: bool = False, to: str | None = None) -> None:
        """Write a table; readers see it once the checkpoint completes (semantics C4).

        Args:
            name: the table's name, unique in the job.
            df: the whole table.
            background: write while the block goes on (semantics A5, B5); the block's end waits. The input of `df` must
                stay.
            to: one of the group's `tables` whose rows these replace, as by `epoch.table(to).replace`; they are copied
                from the published files, so `df` runs once.

        Raises:
            InvalidStateError: the name was used before in this epoch, or `df` is not a DataFrame; `to` is not a table
                of the group, does not take these rows, or is given with `background`.
            InvalidKeyError: the name does not match the grammar (semantics W1).
            InvalidConfigError: Spark's output committer cannot be trusted.
        """
        self._check_open("publish")
        if to is not None and background:
            raise InvalidStateError(
                f"the table {to!r} gets the rows of the files of {name!r}, which a write in the background has not "
                "written yet: leave background out, or to",
            )
        copy = None if to is None else self.table(to)
        if copy is not None:
            copy.check(df)
        published = self._outputs.write("table", name, df, background=background)
        if copy is not None and published is not None:
            copy.replace(united(df.sparkSession, self._files, [published]))

    def append(
        self,
        name: str,
        df: DataFrame,
        *,
        partition_by: str | Sequence[str] = (),
        overwrite_partitions: bool = False,
    ) -> None:
        """Add rows to a table; readers see them once the checkpoint completes (semantics C4). Runs the DataFrame now.

        A retry adds the same rows to the same table: the restored checkpoint's.

        Args:
            name: the table's name, unique in the job.
            df: the rows to add. They may have columns that the table lacks, and wider types.
            partition_by: columns that partition the table's files; the same in each epoch.
            overwrite_partitions: replace the existing rows of each partition that `df` has rows of.

        Raises:
            InvalidStateError: the name was used before in this epoch; `df` is not a DataFrame, lacks a column of the
                table or has one of another type; or the table has other partition columns.
            InvalidKeyError: the name does not match the grammar (semantics W1).
            InvalidConfigError: Spark's output committer cannot be trusted.
            DocumentError: a manifest of the table is broken or altered.
        """
        self._check_open("append")
        before = self._carried.outputs.get(f"table.{check_name('table', name)}")
        self._outputs.append(name, df, before, partition_by, overwrite_partitions=overwrite_partitions)

    def table(self, name: str) -> EpochTable:
        """Return one of the group's `tables`: Iceberg, Delta or PostgreSQL, read by everybody (semantics C4).

        Args:
            name: the name by which the group knows the table.

        Raises:
            InvalidKeyError: the name does not match the grammar (semantics W1).
            InvalidStateError: the group has no such table.
        """
        from .staged_tables import StagedTables  # most drivers start without

        self._check_open("table")
        with self._lock:
            self._tables = self._tables or StagedTables(
                self._files,
                self._handover,
                self._run,
                self._writer,
                self._fence,
                self._before_snapshot,
                self._committables,
                self.spark,
            )
        return self._tables.table(name)

    def branch(self, name: str, *, wap: bool = False) -> AbstractContextManager[str]:
        """Return a block in which any SQL changes a branch of one of the group's `tables`; the block's value names it.

        The branch begins with the table's newest rows. It becomes `main` when the checkpoint completes (semantics C4).

        Args:
            name: the name by which the group knows the table, an `IcebergTable` with `branch=True`.
            wap: whether the block sets `spark.wap.branch`, so that a program which says the table's own name, such as
                dbt, reads and writes the branch. Write no other table with `write.wap.enabled` in the block: its rows
                would go to a branch that never becomes `main`.

        Raises:
            InvalidKeyError: the name does not match the grammar (semantics W1).
            InvalidStateError: the group has no such table, a block of it was entered before in this epoch, Spark
                lacks Iceberg's extensions, the table's catalog or the right to make a branch, or `wap` is given for a
                table without `write.wap.enabled`.
        """
        from .branches import Branches  # most drivers start without

        self._check_open("branch")
        with self._lock:
            self._branches = self._branches or Branches(
                self._files,
                self._handover,
                self._run,
                self._fence,
                self._before_snapshot,
                self._committables,
                self.spark,
            )
        return self._branches.block(name, wap=wap)

    def write(self, df: DataFrame, name: str = "main") -> None:
        """Write an exchange: data that downstream stages read in this epoch; dropped once it has completed.

        Args:
            df: the data.
            name: the exchange's name, for stages that write several.

        Raises:
            InvalidStateError: the name was used before in this epoch, or `df` is not a DataFrame.
            InvalidKeyError: the name does not match the grammar (semantics W1).
            InvalidConfigError: Spark's output committer cannot be trusted.
        """
        self._check_open("write")
        self._outputs.write("exchange", name, df)

    def commit_on_complete(self, name: str, value: Json) -> None:
        """Stage a value for the job's listeners, which get it once the checkpoint has ended; see `Committables.add`."""
        self._check_open("commit_on_complete")
        self._committables.add(name, value)

    def check(
        self, name: str, condition: Column | str | bool, df: DataFrame | None = None, *, warn: bool = False
    ) -> bool:
        """Check data now. If the check fails, the stage declines, and nothing of the epoch counts.

        Args:
            name: the check's statement, for people.
            condition: a Column or SQL text that must be true for each row of `df`; null breaks it. Without `df`: a
                truth value.
            df: the rows.
            warn: only record the failure, in the log and with the checkpoint.

        Returns:
            True if the check passed.

        Raises:
            DataCheckError: the check failed. If the application catches this, the end of the block raises it again.
            InvalidStateError: outside the block; or name, condition or DataFrame is invalid.
        """
        self._check_open("check")
        return self._checks.check(name, condition, df, warn=warn)

    def __enter__(self) -> Epoch:
        """Restore the state.

        Raises:
            InvalidStateError: the block was entered before.
            FencedError: the attempt can no longer count, or is known to have acknowledged already.
        """
        if self._phase != "new":
            raise InvalidStateError("an epoch is entered once; use one `with Epoch.current() as epoch:` an application")
        if self._handover.program is not None:
            raise InvalidStateError(
                "the DAG gives this program places in application_args, so the operator acknowledges what it writes "
                "there. Take the epoch's block out of the program, or the places out of application_args"
            )
        with ThreadPoolExecutor(1, "cairn-restore") as beside:
            # Each request to a bucket takes a while. What a checkpoint names never changes, so it may be read before it
            # is known whether this driver is still wanted. If it is not, that is the error, whatever the read has met.
            read = beside.submit(self._carried.load, self._files, self._handover.restore, self._backlog)
            self._triggered_at_ms = self._fence.enter()
        self._start_delay_ms = self._since_trigger_ms()
        try:
            read.result()
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
            InvalidStateError: the step before the snapshot failed, a source's file changed while it was read, others
                have moved `main` of a table twice while this epoch wrote its branch, or the outputs and values do not
                fit into a marker.
            RetryLaterError: others have moved `main` of a table while this epoch wrote its branch.
            DataCheckError: a check failed, and the application caught the error.
            FencedError: the attempt was replaced; its files have been deleted.
            BackgroundSnapshotError: a write in the background failed.
            UnavailableError: whether the acknowledgement arrived is unknown.
        """
        if error is not None and not (isinstance(error, SystemExit) and error.code in (None, 0)):
            self._phase = "left"
            self._decline(error)
            return
        try:
            # The block is still open to the step: it may put values.
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
            if self._branches:
                self._branches.finish()
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
        if self._tables:
            self._tables.delete_all()
        if self._branches:
            self._branches.delete_all()
        acknowledging.decline(self._reports, self._handover, self._writer, error)

    def _check_open(self, method: str, used: str = "was called") -> None:
        if self._phase == "open":
            return
        when = "before" if self._phase == "new" else "after"
        raise InvalidStateError(
            f"epoch.{method} {used} {when} the epoch's block. Use it inside `with Epoch.current() as epoch:`"
        )


_MADE_HERE: ContextVar[Epoch | None] = ContextVar("cairn_epoch", default=None)
"""The epoch that this process made itself; None: the operator hands one over."""


@contextmanager
def as_current(epoch: Epoch) -> Iterator[None]:
    """Make `Epoch.current()` return this epoch inside the block, for applications that a test runs in its process."""
    before = _MADE_HERE.set(epoch)
    try:
        yield
    finally:
        _MADE_HERE.reset(before)
