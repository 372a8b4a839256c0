"""`local_epoch`: one epoch of one stage on this machine, without Airflow, and the stage's outputs.

The real protocol also makes what the stage finds: an epoch before writes its state, stages of the same epoch write its
inputs. So a test restores and reads as a real run does.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ..checkpoint import (
    CheckpointConfig,
    Coordinator,
    InvalidStateError,
    StageSpec,
    TriggerRequest,
)
from ..checkpoint.answers import BeginAnswer, EpochCompleted, Ready, Submit, Triggered
from ..checkpoint.documents.acknowledgement import AckDocument
from ..checkpoint.documents.attempt import Execution, Handover, Slice
from ..checkpoint.documents.layout import epoch_name
from ..checkpoint.documents.strict_json import Json, plain_json
from ..checkpoint.errors import CheckpointFailedError, InvalidConfigError
from ..checkpoint.source import Reading, RunFacts, Shelf
from ..checkpoint.store import acks
from ..checkpoint.store.job_files import JobFiles
from ..spark.bootstrap import Keyed
from ..spark.epoch import Epoch
from ..spark.event_time.event_time import RESERVED
from ..spark.kinds import raw_files, small_state
from ..spark.stored.outputs import Stored, frame, of_acknowledgement
from ..storage.clock import Runtime, system_runtime
from ..storage.local.store import LocalStore
from ..storage.names import StorageUri
from ..storage.port import ObjectStore
from ..storage.records import dataclass

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    Inputs = Mapping[str, DataFrame | Mapping[str, DataFrame]]


@dataclass(frozen=True, slots=True)
class Written:
    """The outputs of a stage in an epoch, by name, including those carried over."""

    outputs: dict[str, DataFrame] = field(default_factory=dict)
    """Written by `write`, for downstream stages."""
    states: dict[str, DataFrame] = field(default_factory=dict)
    """Written by `snapshot`."""
    tables: dict[str, DataFrame] = field(default_factory=dict)
    """Written by `publish`."""
    values: dict[str, Json] = field(default_factory=dict)
    """Written by `put`."""
    lists: dict[str, list[list[Any]]] = field(default_factory=dict)
    """Written by `snapshot_list`: the items of each subtask, as the next epoch gets them."""
    files: dict[str, list[str]] = field(default_factory=dict)
    """Written by `snapshot_files`: the names of the files below the folder, sorted."""
    committables: dict[str, Json] = field(default_factory=dict)
    """Written by `commit_on_complete`."""


def written(spark: SparkSession, files: JobFiles, handover: Handover, ack: AckDocument) -> Written:
    """Read the outputs that an acknowledgement names."""
    own = {name: value for name, value in ack.values.items() if not name.startswith(RESERVED)}
    found = Written(values=own, committables=dict(ack.committables))
    frames = {"exchange": found.outputs, "state": found.states, "table": found.tables}
    for stored in of_acknowledgement(files, ack).outputs.values():
        kind, name = stored.output.kind, stored.output.name
        if kind in frames:
            frames[kind][name] = frame(spark, files, stored)
        elif kind == small_state.LIST_KIND:
            found.lists[name] = small_state.given_out_items(files, stored, handover)
        elif kind == raw_files.KIND:
            found.files[name] = sorted(_below(stored))
        else:
            found.values[name] = small_state.read(files, stored)
    return found


def _below(stored: Stored) -> list[str]:
    folder = f"{stored.output.folder.rstrip('/')}/"
    return [file.handle.path.removeprefix(folder) for file in stored.files]


@dataclass(frozen=True, slots=True)
class _Place:
    """The job, its stage, and the number of the next run."""

    job: LocalJob
    stage: str
    parallelism: int | None
    max_parallelism: int | None
    run: int

    @property
    def run_id(self) -> str:
        return f"local__{self.run}"

    def spec(self, upstream: Sequence[str] = ()) -> StageSpec:
        return StageSpec(self.stage, tuple(upstream), self.parallelism, self.max_parallelism)

    def after(self) -> _Place:
        return _Place(self.job, self.stage, self.parallelism, self.max_parallelism, self.run + 1)


class LocalEpoch(Epoch):
    """An epoch on this machine. `local_epoch` makes it; leaving its block completes the checkpoint."""

    def __init__(self, spark: SparkSession, place: _Place, submit: Submit) -> None:
        super().__init__(spark, place.job.store, submit.handover, place.job.runtime)
        self._place = place
        self._execution = Execution(submit.handover.token, submit.handover.checkpoint, submit.handover.attempt)
        self._written: Written | None = None

    @property
    def written(self) -> Written:
        """The outputs of the stage; their DataFrames can be read while the epoch's folder exists.

        Raises:
            InvalidStateError: the block has not ended, or the stage has declined.
        """
        if self._written is None:
            raise InvalidStateError(
                "the stage has not acknowledged: look at what it has written after its block, if that ends without an "
                "exception",
                stage=self.stage,
            )
        return self._written

    def next(
        self,
        inputs: Inputs | None = None,
        *,
        start: Moment | None = None,
        end: Moment | None = None,
        detail: Mapping[str, Json] | None = None,
        files: Sequence[str | Path] | None = None,
    ) -> LocalEpoch:
        """Make the next epoch, which restores this epoch's checkpoint; arguments as for `local_epoch`.

        Raises:
            InvalidStateError: this epoch has not completed.
            InvalidConfigError: the window is invalid, or was read before.
        """
        _ = self.written
        return _opened(self.spark, self._place.after(), inputs or {}, window_of(start, end, detail), files)

    def __enter__(self) -> LocalEpoch:
        super().__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Acknowledge and complete the checkpoint, or decline."""
        super().__exit__(kind, error, traceback)
        if acks.has_acknowledged(self._files, self.stage, self._execution):
            ack = acks.read_ack(self._files, self.stage, self._execution)
            self._place.job.complete(self._place.run_id)
            self._written = written(self.spark, self._files, self._handover, ack)


def local_epoch(
    spark: SparkSession,
    inputs: Inputs | None = None,
    state: Mapping[str, DataFrame | Keyed] | None = None,
    *,
    values: Mapping[str, Json] | None = None,
    lists: Mapping[str, Sequence[Sequence[Json]]] | None = None,
    start: Moment | None = None,
    end: Moment | None = None,
    detail: Mapping[str, Json] | None = None,
    files: Sequence[str | Path] | None = None,
    stage: str = "stage",
    parallelism: int | None = None,
    max_parallelism: int | None = None,
    folder: str | Path | None = None,
    clock: Callable[[], int] | None = None,
) -> LocalEpoch:
    """Make an epoch on this machine, for a test of a stage.

    Args:
        spark: the session that reads and writes.
        inputs: by upstream stage, its output in this epoch: a DataFrame, or DataFrames by name.
        state: the states that the epoch restores, by name: a DataFrame, or `Keyed(df, key)`.
        values: the values that `epoch.get` returns, by name.
        lists: the items that `epoch.list_state` returns, by name, one list for each subtask (`mode="split"`).
        start: the first moment of the epoch's slice; None: the slice has no window.
        end: the first moment after the slice.
        detail: `slice_detail`, as for the group.
        files: the files that `epoch.files()` returns.
        stage: the stage's uid.
        parallelism: as for the operator.
        max_parallelism: as for the operator.
        folder: the checkpoint's folder; None: a new folder that is deleted when the process ends.
        clock: the epoch's clock, such as a `FakeClock`; None: the system's.

    Raises:
        InvalidConfigError: a moment has no time zone, or the window ends before it starts.
        InvalidStateError: a given state or input is invalid.
        InvalidKeyError: a name does not match the grammar (semantics W1).
    """
    window = window_of(start, end, detail)
    job = LocalJob(Path(folder) if folder is not None else _temporary(), clock=clock)
    place = _Place(job, stage, parallelism, max_parallelism, 0)
    if state or values or lists:
        job.trigger(place.run_id, [place.spec()], Slice())
        with LocalEpoch(spark, place, job.begin(place.run_id, stage)) as before:
            for name, given in (state or {}).items():
                keyed = given if isinstance(given, Keyed) else Keyed(given, ())
                before.snapshot(name, keyed.df, keyed.key)
            for name, value in (values or {}).items():
                before.put(name, value)
            for name, items in (lists or {}).items():
                before.snapshot_list(name, items)
    return _opened(spark, place.after(), inputs or {}, window, files)


def _opened(
    spark: SparkSession, place: _Place, inputs: Inputs, window: Slice, files: Sequence[str | Path] | None
) -> LocalEpoch:
    """Trigger an epoch, write the inputs, and begin the stage."""
    job, run = place.job, place.run_id
    job.trigger(run, [*map(StageSpec, inputs), place.spec(tuple(inputs))], window, files)
    for uid, given in inputs.items():
        with Epoch(spark, job.store, job.begin(run, uid).handover, job.runtime) as upstream:
            for name, df in (given if isinstance(given, Mapping) else {"main": given}).items():
                upstream.write(df, name)
    return LocalEpoch(spark, place, job.begin(run, place.stage))


def _temporary() -> Path:
    folder = tempfile.mkdtemp(prefix="cairn-local-epoch-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


_FIRST = datetime(2026, 1, 1, tzinfo=UTC)


class FakeClock:
    """A clock that only the test moves; pass it to `local_epoch` as the epoch's clock.

    Args:
        now: the first moment, with a time zone.

    Raises:
        InvalidConfigError: the moment has no time zone.
    """

    def __init__(self, now: datetime = _FIRST) -> None:
        self.set(now)

    def __call__(self) -> int:
        """Return the time as Cairn reads it, in milliseconds since 1970 UTC."""
        return round(self._now.timestamp() * 1000)

    @property
    def now(self) -> datetime:
        """The clock's current moment."""
        return self._now

    def set(self, now: datetime) -> None:
        """Set the clock; also backwards, since another machine's clock may be behind.

        Raises:
            InvalidConfigError: the moment has no time zone.
        """
        if now.utcoffset() is None:
            raise InvalidConfigError(
                "a FakeClock is set to a moment with a time zone: write datetime(…, tzinfo=UTC)", now=now.isoformat()
            )
        self._now = now

    def advance(self, by: timedelta) -> None:
        """Advance the clock."""
        self.set(self._now + by)


# One job in a folder of this machine, and the acts of Airflow's tasks around its applications. The protocol is the
# real one: coordinator, head, handovers and acknowledgements, on a `LocalStore`.


Moment = datetime | str
"""A moment with a time zone: a datetime, or ISO 8601 text."""


class LocalJob:
    """A job on this machine.

    Args:
        folder: the folder of its checkpoints.
        name: the job's name.
        clock: returns milliseconds since 1970 UTC; None: the system's clock.
        config: the checkpoint configuration.
        store: the storage; None: the folder.
    """

    def __init__(
        self,
        folder: Path,
        *,
        name: str = "local",
        clock: Callable[[], int] | None = None,
        config: CheckpointConfig | None = None,
        store: ObjectStore | None = None,
    ) -> None:
        self.store = store or LocalStore(folder.resolve())
        real = system_runtime()
        self.runtime = Runtime(now_ms=clock or real.now_ms, new_token=real.new_token)
        self.coordinator = Coordinator(self.store, name, self.runtime)
        # A test may delete the files between two epochs.
        self._config = config or CheckpointConfig(allow_non_restored_state=True)

    def trigger(
        self, run_id: str, stages: Sequence[StageSpec], window: Slice, files: Sequence[str | Path] | None = None
    ) -> Triggered:
        """Trigger a checkpoint, as the trigger task does.

        Args:
            run_id: the run's id.
            stages: the job's stages.
            window: the input of the epoch.
            files: the files that a `FileSource` fixes for the epoch; None: the job has none.

        Raises:
            InvalidConfigError: the stages do not make a job; or no checkpoint was triggered, as the job has read this
                window.
        """
        sources = () if files is None else (GivenFiles(tuple(map(_url, files))),)
        request = TriggerRequest(
            epoch_name(run_id), window, tuple(stages), self._config, sources=sources, run=RunFacts(run_id)
        )
        answer = self.coordinator.trigger(request)
        if not isinstance(answer, Triggered):
            raise InvalidConfigError(
                "the epoch cannot begin. An epoch after another one reads a window of its own: give it another start "
                "and end",
                run=run_id,
                start=window.start,
                end=window.end,
                answer=type(answer).__name__,
            )
        return answer

    def claim(self, run_id: str, stage: str) -> BeginAnswer:
        """Claim a stage, as its task does before it submits; each call is a new try."""
        return self.coordinator.begin(epoch_name(run_id), stage, f"try-{self.runtime.new_token()}")

    def begin(self, run_id: str, stage: str) -> Submit:
        """Claim a stage that has not run yet.

        Raises:
            CheckpointFailedError: the stage has nothing to submit.
        """
        answer = self.claim(run_id, stage)
        if not isinstance(answer, Submit):
            raise CheckpointFailedError(
                "the stage has nothing to run", run=run_id, stage=stage, answer=type(answer).__name__
            )
        return answer

    def complete(self, run_id: str) -> None:
        """Complete the checkpoint, as the last task does.

        Raises:
            CheckpointFailedError: a stage has not acknowledged.
        """
        progress = self.coordinator.progress(epoch_name(run_id))
        if isinstance(progress, EpochCompleted):
            return
        if not isinstance(progress, Ready):
            raise CheckpointFailedError(
                "the checkpoint does not complete", run=run_id, answer=f"{type(progress).__name__}: {progress}"
            )
        self.coordinator.complete(progress.checkpoint)


@dataclass(frozen=True, slots=True)
class GivenFiles:
    """A source that fixes the files that a test names, whatever was read before."""

    urls: tuple[str, ...]
    name: str = "files"
    positioned: bool = False

    def read(self, _run: RunFacts, _position: Json) -> Reading:
        return Reading({"uri": "file:///", "files": [{"key": url, "url": url} for url in self.urls]})

    def advance(self, _position: Json, _part: Json, _shelf: Shelf, /) -> Json:
        return 0


def window_of(start: Moment | None, end: Moment | None, detail: Mapping[str, Json] | None) -> Slice:
    """Make the slice of an epoch.

    Raises:
        InvalidConfigError: a moment is invalid or has no time zone; the window ends before it starts; or `detail` does
            not survive JSON unchanged.
    """
    first, after = _moment("start", start), _moment("end", end)
    if first is not None and after is not None and datetime.fromisoformat(first) > datetime.fromisoformat(after):
        raise InvalidConfigError("the window ends before it starts", start=first, end=after)
    return Slice(first, after, plain_json("detail", dict(detail or {}), refusal=InvalidConfigError))


def _moment(name: str, given: Moment | None) -> str | None:
    if given is None:
        return None
    try:
        moment = given if isinstance(given, datetime) else datetime.fromisoformat(given)
    except (TypeError, ValueError):
        moment = None
    if moment is None or moment.utcoffset() is None:
        raise InvalidConfigError(
            f"{name} must be a moment with a time zone: datetime(2026, 1, 1, tzinfo=UTC), or the text "
            "'2026-01-01T00:00:00+00:00'",
            **{name: str(given)},
        )
    return moment.isoformat()


def _url(file: str | Path) -> str:
    text = str(file)
    return text if "://" in text else str(StorageUri("file", "", str(Path(text).resolve())))
