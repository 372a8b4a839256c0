"""Compaction: merges base and deltas of a state into a new base, while no epoch waits for it (semantics K7).

Order: write the record, which keeps the cleaner away; write the files; write the record again, which now names them.
The new base counts once a later epoch adopts it. A compactor that dies leaves an unfinished record, which the next one
gives up after a lease. So a wrong clock costs work, never a row.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from ..checkpoint.documents import layout
from ..checkpoint.documents.acknowledgement import CompactionDocument, Output, SubtaskAck
from ..checkpoint.documents.attempt import Handover, Slice, moment_in_slice
from ..checkpoint.documents.entries import CompletedEntry
from ..checkpoint.documents.metadata import MetadataHeader
from ..checkpoint.documents.strict_json import Json
from ..checkpoint.errors import NoCheckpointError
from ..checkpoint.store import compactions, metadata_file
from ..checkpoint.store.head_store import OpenJob
from ..checkpoint.store.job_files import GONE, FileCheck, JobFiles
from ..storage import S3Options
from ..storage.clock import Runtime, system_runtime
from ..storage.errors import CairnError
from ..storage.port import ObjectStore
from ..storage.records import dataclass
from .event_time import moments, ttl
from .event_time.watermark import STAGE, StageWatermark
from .execution.transport import session
from .handover import conf
from .kinds import small_state
from .output.writer import Writer
from .stored import key_groups
from .stored.outputs import StageContents, Stored, frame, of_checkpoint, subtasks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger("airflow_cairn")

LEASE_MS = 6 * 3600 * 1000
"""Age of an unfinished compaction at which another compactor gives it up."""
MIN_SHARE = 0.25
"""Smallest ratio of delta bytes to base bytes that is compacted where no state is named. At three times this ratio, an
epoch writes a new base itself."""

Outcome = Literal["compacted", "small", "over budget", "waits", "under way", "lost"]


@dataclass(frozen=True, slots=True)
class Compaction:
    """The outcome for one state with deltas."""

    stage: str
    """Uid of the stage."""
    state: str
    """The state's name."""
    outcome: Outcome
    """`compacted`: an epoch that begins from now on adopts the new base. `small`: the deltas are too small beside the
    base. `over budget`: compacting would read more than `max_bytes` leaves. `waits`: a new base waits to be adopted.
    `under way`: another compactor is at work. `lost`: during the compaction an epoch replaced its input, or another
    compactor gave it up."""
    deltas: int
    """Number of live deltas."""
    base_bytes: int
    """Bytes of the base."""
    delta_bytes: int
    """Bytes of these deltas."""
    written_bytes: int = 0
    """Bytes of the new base."""

    @property
    def runs(self) -> int:
        """The name of `deltas` until version 0.2."""
        return self.deltas

    @property
    def run_bytes(self) -> int:
        """The name of `delta_bytes` until version 0.2."""
        return self.delta_bytes


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A state with deltas."""

    contents: StageContents
    stored: Stored

    @property
    def delta_bytes(self) -> int:
        return sum(file.handle.size_bytes for file in self.stored.files if file.handle.delta)

    @property
    def base_bytes(self) -> int:
        return sum(file.handle.size_bytes for file in self.stored.files if not file.handle.delta)

    def became(self, outcome: Outcome, written_bytes: int = 0) -> Compaction:
        deltas = {file.handle.delta for file in self.stored.files if file.handle.delta}
        name = self.stored.output.name
        size = self.base_bytes, self.delta_bytes
        return Compaction(self.contents.stage, name, outcome, len(deltas), *size, written_bytes)


def compact(
    spark: SparkSession,
    storage: str,
    job: str,
    stage: str | None = None,
    state: str | None = None,
    *,
    max_bytes: int | None = None,
    s3: S3Options | None = None,
    runtime: Runtime | None = None,
) -> list[Compaction]:
    """Merge base and deltas of the newest checkpoint's states into new bases, which the job's next epochs adopt.

    Args:
        spark: the session that reads and writes; for a storage in a bucket it must reach that by `s3a://`, `gs://` or `abfss://`.
        storage: storage URI.
        job: the job's name.
        stage: the uid of the stage whose states are considered; None for all.
        state: the state's name; None for all whose deltas have at least a quarter of their base's bytes.
        max_bytes: limit for the bytes of base and deltas read of one checkpoint, and so in one epoch: by this call, and
            by other compactions of the checkpoint's states, past or running, in all stages. None: no limit.
        s3: access of this process to S3; None takes the session's `spark.cairn.s3.*`.
        runtime: clock and ids; the system's by default.

    Returns:
        The outcome for each state with deltas, those with the largest deltas first.

    Raises:
        NoCheckpointError: no checkpoint has completed, or it has no such state.
        InvalidConfigError: Spark's output committer cannot be trusted.
        UnsupportedStorageError: the URI's scheme is unknown.
        InvalidKeyError: the URI has no accepted form; or the job's name does not match the grammar (semantics W1).
        DocumentError: a document is broken or of a newer format.
    """
    options = s3 or conf.store_options(lambda key: spark.conf.get(key, None), storage)
    store = conf.open_driver_store(storage, options)
    return list(compact_in(store, job, lambda: spark, stage, state, max_bytes=max_bytes, runtime=runtime))


def compact_in(
    store: ObjectStore,
    job: str,
    spark: Callable[[], SparkSession] | None = None,
    stage: str | None = None,
    state: str | None = None,
    *,
    max_bytes: int | None = None,
    on_begin: Callable[[Compaction], None] = lambda _: None,
    runtime: Runtime | None = None,
) -> Iterator[Compaction]:
    """Compact states of an open store; yield each state's outcome before the next state is considered.

    `spark` is called when there is something to merge, and `on_begin` before each state is merged, with the outcome
    `under way`. The rest is as for `compact`.

    Raises:
        NoCheckpointError: no checkpoint has completed.
    """
    runtime = runtime or system_runtime()
    opened = OpenJob(store, job, runtime)
    head = opened.heads.load()
    entry = head.latest_completed()
    if entry is None:
        raise NoCheckpointError("no checkpoint of the job has completed yet, so there is nothing to compact", job=job)

    # All states of the checkpoint share the budget. A checkpoint's contents do not change, so they are read once.
    sharing = _candidates(opened.files, entry, None, None) if max_bytes is not None else []

    def is_over_budget(candidate: _Candidate) -> bool:
        size = candidate.base_bytes + candidate.delta_bytes
        return max_bytes is not None and size > max_bytes - _spent(opened.files, sharing, runtime)

    for candidate in _candidates(opened.files, entry, stage, state):
        found = _judge(opened.files, candidate, runtime, named=state is not None)
        if found is not None:
            yield found
        elif is_over_budget(candidate):
            yield candidate.became("over budget")
        else:
            on_begin(candidate.became("under way"))
            begun = session(None) if spark is None else spark()
            if is_over_budget(candidate):  # another call began one while Spark started
                yield candidate.became("over budget")
            else:
                yield _Compactor(begun, opened.files, entry, runtime).run(candidate)


def _candidates(files: JobFiles, entry: CompletedEntry, stage: str | None, state: str | None) -> list[_Candidate]:
    contents = of_checkpoint(files, entry.metadata, lambda uid: stage is None or uid == stage)
    there = [
        _Candidate(each, stored)
        for each in contents
        for stored in each.outputs.values()
        if stored.output.kind == "state" and (state is None or stored.output.name == state)
    ]
    if not there and (stage is not None or state is not None):
        raise NoCheckpointError(
            "the newest checkpoint has no such state. `cairn show` names the states of each stage",
            job=files.job,
            checkpoint=entry.id,
            stage=stage or "any",
            state=state or "any",
        )
    grown = [each for each in there if each.delta_bytes]
    return sorted(grown, key=lambda each: each.delta_bytes, reverse=True)


def _spent(files: JobFiles, candidates: Sequence[_Candidate], runtime: Runtime) -> int:
    """Sum the bytes of base and deltas that compactions of a checkpoint's states have read or are reading.

    A record that replaces exactly the files that the checkpoint names was made from this checkpoint, by whatever
    process. A compaction that was given up, or will be, does not count: a job without a next epoch could never repeat
    it.
    """
    spent = 0
    for candidate in candidates:
        output, handles = candidate.stored.output, [file.handle for file in candidate.stored.files]
        there = compactions.of_stage(files, candidate.contents.stage, compactions.home_of(handles))
        spent += (candidate.base_bytes + candidate.delta_bytes) * sum(
            record.document.output.id == output.id
            and set(record.document.replaces) == set(handles)
            and not record.document.given_up
            and not _is_left(record.document, runtime)
            for record in there
        )
    return spent


def _judge(files: JobFiles, candidate: _Candidate, runtime: Runtime, *, named: bool) -> Compaction | None:
    """Return why a state is left alone; None if it is to be compacted."""
    output, handles = candidate.stored.output, [file.handle for file in candidate.stored.files]
    stage = candidate.contents.stage
    there = list(compactions.of_stage(files, stage, compactions.home_of(handles)))
    if compactions.fitting(there, {output.id: handles}):
        return candidate.became("waits")
    for record in there:
        overlaps = not set(record.document.replaces).isdisjoint(handles)
        if record.document.output.id == output.id and _unfinished(record.document) and overlaps:
            if not _is_left(record.document, runtime):
                return candidate.became("under way")
            log.warning("The compaction %s was left unfinished, and is given up", files.full(record.key))
            compactions.give_up(files, record)
    if not named and candidate.delta_bytes < MIN_SHARE * candidate.base_bytes:
        return candidate.became("small")
    return None


def _unfinished(document: CompactionDocument) -> bool:
    return document.base is None and not document.given_up


def _is_left(document: CompactionDocument, runtime: Runtime) -> bool:
    """Tell whether a compaction was left unfinished, so that another compactor gives it up."""
    return _unfinished(document) and runtime.now_ms() >= document.began_at_ms + LEASE_MS


class _Compactor:
    """Writes new bases for states of one checkpoint."""

    def __init__(self, spark: SparkSession, files: JobFiles, entry: CompletedEntry, runtime: Runtime) -> None:
        self._spark = spark
        self._files = files
        self._entry = entry
        self._runtime = runtime

    def run(self, candidate: _Candidate) -> Compaction:
        """Write a new base, and name it in its record."""
        stored, stage, token = candidate.stored, candidate.contents.stage, self._runtime.new_token()
        handles = tuple(file.handle for file in stored.files)
        home = compactions.home_of(handles)
        # Use as many files as the stage has written: files are by key group, so any number of subtasks can read its
        # part. A single file may come from a state that was small; then Spark chooses by size.
        width = max((file.subtask for file in stored.files if not file.handle.delta), default=0) + 1
        at = Handover(
            home,
            self._entry.epoch,
            layout.COMPACTOR,
            token,
            self._files.job,
            stage,
            "compact",
            Slice(),
            parallelism=width if width > 1 else None,
            max_parallelism=stored.output.key_groups,
        )
        writer = Writer(self._files, at, self._runtime.new_token(), self._runtime.now_ms)
        writer.key_groups = key_groups.number_of(at, [stored.output])
        document = CompactionDocument(self._files.job, stage, token, stored.output, self._runtime.now_ms(), handles)
        record = compactions.begin(self._files, document)
        try:
            output, base, size = self._write(writer, candidate, width)
        except BaseException as error:
            _undo(self._files, writer, record)
            gone = [handle for handle, problem in FileCheck(self._files).damaged(handles) if problem == GONE]
            if not gone or not isinstance(error, Exception):
                raise
            return candidate.became("lost")
        # From here on nothing is deleted: an epoch may already have adopted the base.
        if compactions.finish(self._files, record, output, base):
            return candidate.became("compacted", size)
        writer.delete_all()
        return candidate.became("lost")

    def _write(self, writer: Writer, candidate: _Candidate, width: int) -> tuple[Output, tuple[SubtaskAck, ...], int]:
        stored, output = candidate.stored, candidate.stored.output
        df = self._lasting(candidate.contents, output.name, frame(self._spark, self._files, stored))
        written = writer.write(writer.plan("state", output.name, df, output.key, output.merge))
        acks = tuple(SubtaskAck(index, each) for index, each in subtasks([written], width))
        size = sum(file.handle.size_bytes for file in written.files)
        # The columns stay the state's own: as Spark reads files, each column may be null.
        return replace(output, folder=written.output.folder), acks, size

    def _lasting(self, contents: StageContents, name: str, df: DataFrame) -> DataFrame:
        """Leave out rows whose time to live ended before the checkpoint's own epoch (semantics K6)."""
        lives = ttl.parse(self._value(contents, ttl.VALUE)).get(name)
        if lives is None or not self._written_last(contents.outputs[f"state.{name}"]):
            return df
        if lives.time == "event":
            mark = StageWatermark(contents.stage, (), self._value(contents, STAGE))
            return ttl.alive(f"the state {name!r}", df, lives, lambda: mark.at_start)
        end = self._interval_end()
        return df if end is None else ttl.alive(f"the state {name!r}", df, lives, lambda: end)

    def _written_last(self, stored: Stored) -> bool:
        """Tell whether this checkpoint wrote the newest file; in an older checkpoint, other rows have ended."""
        newest = max((file.handle for file in stored.files), key=lambda handle: handle.delta)
        return layout.checkpoint_of(newest.path) == self._entry.id

    def _value(self, contents: StageContents, name: str) -> Json:
        stored = contents.outputs.get(f"value.{name}")
        return contents.values.get(name) if stored is None else small_state.read(self._files, stored)

    def _interval_end(self) -> int | None:
        header = next(iter(metadata_file.read(self._files, self._entry.metadata)))
        assert isinstance(header, MetadataHeader), "it is the first line"
        end = header.slice.end
        return None if end is None else moments.micros_of(moment_in_slice("end", end))


def _undo(files: JobFiles, writer: Writer, record: compactions.Record) -> None:
    """Delete the written files, the record last; log problems, so that the caller sees the cause."""
    try:
        writer.delete_all()
        for failure in files.delete([record.key]):
            log.warning("Could not delete %s (%s). A later compaction gives it up.", failure.key, failure.reason)
    except CairnError as problem:
        log.warning("What an unfinished compaction wrote could not be deleted: %s", problem)
