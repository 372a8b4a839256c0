"""`assert_exactly_once`: kills the drivers of a DAG's stages at each of their writes, and compares the checkpoints.

The epochs run once without a kill. Then, for each stage and each write of its driver in the last epoch: copy the job's
folder as it was when the stage began, kill the driver at that write, retry the stage, run the rest of the epoch, and
compare the checkpoint with that of the run without a kill.
"""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from graphlib import TopologicalSorter
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from ..checkpoint import CheckpointConfig, InvalidConfigError, Slice, StageSpec
from ..checkpoint.answers import Ready, StageAcknowledged, Submit, UpstreamsNotReady
from ..checkpoint.documents.layout import epoch_name
from ..checkpoint.documents.metadata import CHECKS
from ..checkpoint.documents.programs import RAW
from ..checkpoint.errors import CheckpointFailedError
from ..checkpoint.store.job_files import JobFiles
from ..operators.graph.declaration import TriggerOperator
from ..operators.graph.stages import StageTask, instances_of, is_stage
from ..operators.stage.function import SparkEpochFunctionOperator
from ..operators.stage.submit_options import folder_of, place_beside
from ..operators.trigger.operator import TriggerCheckpointOperator
from ..spark.epoch import Epoch
from ..spark.kinds import raw_files, small_state
from ..spark.stored.outputs import Stored, as_text, frame, of_checkpoint, text_of
from ..storage.local.store import LocalStore
from ..storage.port import Blob, DeleteFailures, ObjectStat, PendingUpload, WriteResult
from ..storage.records import dataclass
from .by_hand import run_in
from .epochs import LocalJob, Moment, window_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# The store of a driver that dies: after a given number of writes it ignores all further calls of the driver. Spark's
# own writes bypass the store. The listing that follows them counts as a write, so the driver also dies between the two.


class KilledError(BaseException):
    """The driver is dead. No application code catches this error, as no code runs after a SIGKILL."""


class MortalStore(LocalStore):
    """A folder as a store that dies after a number of writes.

    Args:
        root: the folder.
        dies_after: the number of writes; None: the driver lives.
    """

    def __init__(self, root: Path, dies_after: int | None = None) -> None:
        super().__init__(root)
        self._dies_after = dies_after
        self.writes = 0
        self.died = False

    def get(self, key: str, *, max_bytes: int | None = None) -> Blob:
        self._live()
        return super().get(key, max_bytes=max_bytes)

    def read_range(self, key: str, start: int, length: int) -> bytes:
        self._live()
        return super().read_range(key, start, length)

    def stat(self, key: str) -> ObjectStat:
        self._live()
        return super().stat(key)

    def list(self, prefix: str, *, start_after: str | None = None) -> Iterator[ObjectStat]:
        self._live()
        found = list(super().list(prefix, start_after=start_after))
        self.writes += 1
        return iter(found)

    def uploads(self, prefix: str) -> Iterator[PendingUpload]:
        self._live()
        return super().uploads(prefix)

    def create(self, key: str, data: bytes) -> WriteResult:
        self._live()
        answer = super().create(key, data)
        self.writes += 1
        return answer

    def create_from(self, key: str, source: IO[bytes]) -> WriteResult:
        self._live()
        answer = super().create_from(key, source)
        self.writes += 1
        return answer

    def replace(self, key: str, data: bytes, *, expected_etag: str) -> WriteResult:
        self._live()
        answer = super().replace(key, data, expected_etag=expected_etag)
        self.writes += 1
        return answer

    def delete(self, keys: Iterable[str]) -> DeleteFailures:
        self._live()
        failures = super().delete(keys)
        self.writes += 1
        return failures

    def _live(self) -> None:
        if self._dies_after is not None and self.writes >= self._dies_after:
            self.died = True
        if self.died:
            raise KilledError(f"killed after {self._dies_after} writes")


Contents = dict[str, Counter[str]]
"""A checkpoint's contents: by stage, kind and name, how often each row or value appears."""


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage, and its application as a function of the epoch."""

    spec: StageSpec
    run: Callable[[Epoch], object]


@dataclass(frozen=True, slots=True)
class Plan:
    """The stages to run, upstreams first, and an epoch for each slice."""

    spark: SparkSession
    stages: tuple[Stage, ...]
    slices: tuple[Slice, ...]
    config: CheckpointConfig


def run_with_kills(plan: Plan, kill: Sequence[str]) -> int:
    """Run a plan without and with kills.

    Args:
        plan: what to run.
        kill: uids of the stages whose drivers are killed.

    Returns:
        The number of drivers killed.

    Raises:
        InvalidConfigError: `kill` names no stage.
    """
    unknown = sorted(set(kill) - {stage.spec.uid for stage in plan.stages})
    if unknown:
        raise InvalidConfigError(
            "kill names an unknown stage",
            kill=", ".join(unknown),
            stages=", ".join(stage.spec.uid for stage in plan.stages),
        )
    with tempfile.TemporaryDirectory(prefix="cairn-exactly-once-") as folder:
        return _run(plan, kill, Path(folder))


def _run(plan: Plan, kill: Sequence[str], folder: Path) -> int:
    whole, last = folder / "whole", f"local__{len(plan.slices)}"
    writes: dict[str, int] = {}
    for number, window in enumerate(plan.slices, 1):
        job = _job(plan, whole)
        run = f"local__{number}"
        job.trigger(run, [stage.spec for stage in plan.stages], window)
        for stage in _rounds(plan.stages, job, run):
            if run == last and stage.spec.uid in kill:
                shutil.copytree(whole, folder / "before" / stage.spec.uid, dirs_exist_ok=True)
            store = MortalStore(whole)
            _try(plan, job, run, stage, store)
            writes[stage.spec.uid] = store.writes
        job.complete(run)
    expected = _contents(plan, _job(plan, whole))
    killed = 0
    for stage in plan.stages:
        for at in range(writes[stage.spec.uid] + 1) if stage.spec.uid in kill else ():
            here = folder / f"killed-{killed}"
            shutil.copytree(folder / "before" / stage.spec.uid, here)
            killed += _after_a_kill(plan, here, last, stage, at)
            where = f"the driver of {stage.spec.uid} was killed after {at} of its {writes[stage.spec.uid]} writes"
            _compare(expected, _contents(plan, _job(plan, here)), where)
            shutil.rmtree(here)
    return killed


def _after_a_kill(plan: Plan, folder: Path, run: str, stage: Stage, at: int) -> int:
    """Kill a driver, then continue the run as Airflow does; return how many drivers were killed."""
    job, store = _job(plan, folder), MortalStore(folder, at)
    with suppress(KilledError):
        _try(plan, job, run, stage, store)
    for each in _rounds(plan.stages, job, run):
        _try(plan, job, run, each, MortalStore(folder))
    job.complete(run)
    return int(store.died)


def _job(plan: Plan, folder: Path) -> LocalJob:
    return LocalJob(folder, store=LocalStore(folder), config=plan.config)


def _rounds(stages: Sequence[Stage], job: LocalJob, run: str) -> Iterator[Stage]:
    """Yield all stages again and again, until all have acknowledged."""
    for _ in range(len(stages) + 1):
        if isinstance(job.coordinator.progress(epoch_name(run)), Ready):
            return
        yield from stages
    raise CheckpointFailedError("the checkpoint does not complete", run=run)


def _try(plan: Plan, job: LocalJob, run: str, stage: Stage, store: MortalStore) -> None:
    """Do one try of a stage's task: claim, and run the application if there is something to run."""
    answer = job.claim(run, stage.spec.uid)
    if isinstance(answer, StageAcknowledged | UpstreamsNotReady):
        return
    if not isinstance(answer, Submit):
        raise CheckpointFailedError("the stage cannot run", stage=stage.spec.uid, answer=str(answer))
    epoch = Epoch(plan.spark, store, answer.handover, job.runtime)
    stage.run(epoch)


def _contents(plan: Plan, job: LocalJob) -> Contents:
    """Read the newest checkpoint."""
    files = job.coordinator.files
    found: Contents = {}
    entry = job.coordinator.head().completed[-1]
    for stage in of_checkpoint(files, entry.metadata, lambda _uid: True):
        for name, value in stage.values.items():
            if name == CHECKS:
                continue  # the value names any three of the rows that break a check
            found[f"the value {name!r} of {stage.stage}"] = Counter([repr(value)])
        for stored in stage.outputs.values():
            what = f"the {stored.output.kind} {stored.output.name!r} of {stage.stage}"
            found[what] = Counter(_rows(plan.spark, files, stored))
    return found


def _rows(spark: SparkSession, files: JobFiles, stored: Stored) -> list[str]:
    if stored.output.items is not None:
        return [repr(stored.output.items)]
    if stored.output.kind == raw_files.KIND or stored.output.format == RAW:
        return [f"{file.handle.path.rpartition('/')[2]} {file.handle.checksum}" for file in stored.files]
    if stored.output.schema is None and not stored.output.format:
        return [repr(small_state.read(files, stored))]
    df = frame(spark, files, stored)
    rows = ([text_of(value) for value in row] for row in as_text(df).collect())
    return [", ".join(f"{name}={value!r}" for name, value in zip(df.columns, row, strict=True)) for row in rows]


def _compare(expected: Mapping[str, Counter[str]], found: Mapping[str, Counter[str]], where: str) -> None:
    for what in sorted({*expected, *found}):
        missing = expected.get(what, Counter()) - found.get(what, Counter())
        extra = found.get(what, Counter()) - expected.get(what, Counter())
        if missing or extra:
            raise AssertionError(
                f"{where}, and {what} is not what it is without that. Missing: {_some(missing)}. Too many: "
                f"{_some(extra)}. Does the application read or write something outside of its epoch?"
            )


def _some(rows: Counter[str]) -> str:
    shown = "; ".join(sorted(rows)[:3])
    return f"{rows.total()} ({shown})" if rows else "none"


_FIRST = datetime(2026, 1, 1, tzinfo=UTC)


def assert_exactly_once(
    dag: Any,
    *,
    kill: Sequence[str] | None = None,
    windows: Sequence[tuple[Moment, Moment]] | None = None,
    spark: SparkSession | None = None,
) -> int:
    """Run a DAG's stages on this machine, kill a driver after each of its writes, and compare the checkpoints.

    The epochs run once without a kill. Then each driver of the last epoch is killed after each of its writes; its stage
    is retried, the epoch goes on, and its checkpoint must hold the same states, tables and values.

    Args:
        dag: the DAG, with one `CheckpointedTaskGroup`.
        kill: uids of the stages whose drivers are killed; None: all.
        windows: each epoch's first moment, and the first moment after it; None: two days from the DAG's start date on.
        spark: the applications' session; None: the active one, or a new one.

    Returns:
        The number of drivers killed.

    Raises:
        AssertionError: a checkpoint differs after a kill.
        InvalidConfigError: the DAG has no stages or those of several jobs; `kill` names no stage; or the stages'
            outputs depend on more than their inputs: a source, hooks, `at_least_once`, `unaligned`.
    """
    plan = plan_of(dag, windows, spark)
    return run_with_kills(plan, [stage.spec.uid for stage in plan.stages] if kill is None else kill)


def plan_of(dag: Any, windows: Sequence[tuple[Moment, Moment]] | None, spark: SparkSession | None) -> Plan:
    """Return the stages of a DAG, upstreams first, and the slice of each epoch.

    Raises:
        InvalidConfigError: see `assert_exactly_once`.
    """
    triggers = [task for task in dag.tasks if isinstance(task, TriggerOperator)]
    if len(triggers) != 1 or not isinstance(triggers[0], TriggerCheckpointOperator):
        raise InvalidConfigError(
            "assert_exactly_once takes a DAG with one CheckpointedTaskGroup", dag=dag.dag_id, found=len(triggers)
        )
    trigger = triggers[0]
    _check(dag, trigger)
    if spark is None:
        from pyspark.sql import SparkSession

        spark = SparkSession.getActiveSession() or SparkSession.builder.getOrCreate()
    tasks = {stage.uid: stage for task in dag.tasks if is_stage(task) for stage in instances_of(task)}
    specs = {spec.uid: spec for spec in trigger.declared_stages()}
    order = TopologicalSorter({uid: spec.upstream for uid, spec in specs.items()}).static_order()
    stages = tuple(Stage(specs[uid], _runner(dag, tasks[uid])) for uid in order)
    if trigger.reads_window is False:
        slices = [Slice(detail=trigger.slice_detail or {})] * len(windows or (1, 2))
    else:
        slices = [window_of(*window, trigger.slice_detail) for window in windows or _two_days(dag)]
    return Plan(spark, stages, tuple(slices), CheckpointConfig())


def _check(dag: Any, trigger: TriggerCheckpointOperator) -> None:
    config = trigger.config
    for what, there in (
        ("a source", bool(trigger.sources)),
        ("master hooks", bool(trigger.master_hooks)),
        ("mode='at_least_once'", config.mode == "at_least_once"),
        ("unaligned checkpoints", config.unaligned),
        ("regional checkpoints", config.regional is not None),
    ):
        if there:
            raise InvalidConfigError(
                f"assert_exactly_once does not run a job with {what}: what its stages leave depends on more than on "
                "the slice. Test its applications by run_application",
                dag=dag.dag_id,
            )


def _two_days(dag: Any) -> list[tuple[Moment, Moment]]:
    first = dag.start_date or _FIRST
    return [(first + timedelta(days=day), first + timedelta(days=day + 1)) for day in (0, 1)]


def _runner(dag: Any, task: StageTask) -> Callable[[Epoch], object]:
    operator: Any = task.operator

    def run(epoch: Epoch) -> None:
        def rendered(value: Any) -> Any:
            return operator.render_template(value, _context(dag, epoch))

        if isinstance(operator, SparkEpochFunctionOperator):
            with epoch:
                operator.python_callable(epoch, *rendered(list(operator.op_args)), **rendered(dict(operator.op_kwargs)))
        else:
            application = place_beside(folder_of(dag), "application", rendered(operator.application))
            run_in(epoch, application, [str(each) for each in rendered(operator.application_args or [])])

    return run


def _context(dag: Any, epoch: Epoch) -> dict[str, Any]:
    """Return the context that templates in a DAG's arguments usually use."""
    found: dict[str, Any] = {"dag": dag, "run_id": epoch.run_id, "params": dict(dag.params)}
    if epoch.slice.start is not None and epoch.slice.end is not None:
        start, end = datetime.fromisoformat(epoch.slice.start), datetime.fromisoformat(epoch.slice.end)
        found |= {"data_interval_start": start, "data_interval_end": end, "logical_date": start}
        found |= {"ds": start.date().isoformat(), "ds_nodash": start.strftime("%Y%m%d")}
    return found
