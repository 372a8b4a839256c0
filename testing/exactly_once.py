"""`assert_exactly_once`: runs the stages of a DAG, kills a driver at each of its writes, and compares what comes out.

The epochs run once without a kill. Then, for each stage and each write of its driver in the last epoch: the job's
folder as it was when the stage began, the driver dies there, the stage is tried again, the rest of the epoch runs, and
the checkpoint must hold the same as without the kill.
"""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..checkpoint import CheckpointConfig, InvalidConfigError, Slice, StageSpec
from ..checkpoint.answers import Ready, StageAcknowledged, Submit, UpstreamsNotReady
from ..checkpoint.documents.layout import epoch_name
from ..checkpoint.documents.metadata import CHECKS
from ..checkpoint.errors import CheckpointFailedError
from ..checkpoint.store.job_files import JobFiles
from ..spark.epoch import Epoch
from ..spark.kinds import raw_files, small_state
from ..spark.stored.outputs import Stored, as_text, frame, of_checkpoint, text_of
from ..storage.local.store import LocalStore
from .local_job import LocalJob
from .mortal_store import KilledError, MortalStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Contents = dict[str, Counter[str]]
"""What a checkpoint holds: by stage, kind and name how often each row or value is in it."""


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage, and what its application does with an epoch."""

    spec: StageSpec
    run: Callable[[Epoch], object]


@dataclass(frozen=True, slots=True)
class Plan:
    """What is run: the stages in an order in which each follows its upstreams, and an epoch for each slice."""

    spark: SparkSession
    stages: tuple[Stage, ...]
    slices: tuple[Slice, ...]
    config: CheckpointConfig


def run_with_kills(plan: Plan, kill: Sequence[str]) -> int:
    """Run it without and with kills.

    Args:
        plan: what to run.
        kill: uids of the stages whose drivers are killed.

    Returns:
        How many drivers were killed.

    Raises:
        AssertionError: a checkpoint holds something else after a kill than without.
        InvalidConfigError: there is no such stage.
    """
    unknown = sorted(set(kill) - {stage.spec.uid for stage in plan.stages})
    if unknown:
        raise InvalidConfigError(
            "kill names what is no stage",
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
    """Kill a driver, then let the run go on as Airflow does; give how many were killed."""
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
    """Give the stages that have to run, one after the other, until all have acknowledged."""
    for _ in range(len(stages) + 1):
        if isinstance(job.coordinator.progress(epoch_name(run)), Ready):
            return
        yield from stages
    raise CheckpointFailedError("the checkpoint does not complete", run=run)


def _try(plan: Plan, job: LocalJob, run: str, stage: Stage, store: MortalStore) -> None:
    """Do what one try of a stage's task does: claim, and run the application if there is something to run."""
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
                continue  # names any three of the rows that break a check
            found[f"the value {name!r} of {stage.stage}"] = Counter([repr(value)])
        for stored in stage.outputs.values():
            what = f"the {stored.output.kind} {stored.output.name!r} of {stage.stage}"
            found[what] = Counter(_rows(plan.spark, files, stored))
    return found


def _rows(spark: SparkSession, files: JobFiles, stored: Stored) -> list[str]:
    if stored.output.items is not None:
        return [repr(stored.output.items)]
    if stored.output.kind == raw_files.KIND:
        return [f"{file.handle.path.rpartition('/')[2]} {file.handle.checksum}" for file in stored.files]
    if stored.output.schema is None:
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
