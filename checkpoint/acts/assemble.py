"""Assembles a completed checkpoint's metadata from its acknowledgements (semantics C1, C5).

The content is a pure function of the pending document, the markers and the stages left out, so two processes that leave
out the same stages write equal bytes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain
from types import MappingProxyType

from ...storage.errors import DocumentError, ForbiddenError, GoneError
from ..documents import layout
from ..documents.acknowledgement import AckDocument, Output, StateHandle
from ..documents.attempt import BacklogEpoch, DocumentRef, Execution, PendingDocument
from ..documents.entries import Slowest
from ..documents.metadata import HandedOn, HandleLine, HookLine, InFlightLine, Line, MetadataHeader, StageLine
from ..errors import CheckpointError, CheckpointNotReadyError
from ..rules import partial_completion
from ..rules.partial_completion import backlogs_after
from ..rules.transitions import Assembled
from ..store import acks, attempt_documents, compactions, metadata_file
from ..store.job_files import JobFiles
from ..store.jsonl import Spool
from ..store.metadata_file import References

IN_CHECKPOINT = frozenset({"state", "table", "list", "files", "value"})
"""Kinds of output that belong to a checkpoint; an exchange is dropped once its epoch has completed and all its readers
have read it."""


class FinalizeError(CheckpointError):
    """The metadata cannot be made or written although every stage has acknowledged (semantics C6)."""


class Assembler:
    """Builds the metadata of one checkpoint.

    Args:
        files: the job's files.
        document: of the pending checkpoint.
        left_out: stages that it completes without (semantics B3, F6), with all their downstream stages.
        found: acknowledgements that were read already, by stage.
    """

    def __init__(
        self,
        files: JobFiles,
        document: PendingDocument,
        left_out: Collection[str] = (),
        found: Mapping[str, AckDocument] = MappingProxyType({}),
    ) -> None:
        self._files = files
        self._found = found
        self._document = document
        self._expected = {spec.uid: spec for spec in document.stages}
        self._left_out = LeftOut(files, document, left_out)
        self._size_bytes = 0
        self._new_bytes = 0
        self._subtasks = 0
        self._slowest: Slowest | None = None
        self._committables = False
        self._owing: list[str] = []
        self._inherited: set[str] | None = None
        self._adopted: dict[str, frozenset[str]] = {}
        """Paths of compacted files that a stage may name, by the key of the compaction's record (semantics K7)."""
        self._tables: dict[str, str] = {}
        self._table_files: Counter[str] = Counter()
        self._owners: dict[str, str] = {}
        self._growing: set[str] = set()
        """`Output.id` of each growing table; unique, as no two stages publish the same table."""
        self.referred = References()
        """References of the metadata, once it is written."""
        self.restored: tuple[DocumentRef, References] | None = None
        """The restored checkpoint's metadata and its references, where it was read."""

    def write(self) -> Assembled:
        """Read every acknowledgement and write the metadata.

        Raises:
            FinalizeError: a marker, or the answer of the hooks, cannot be used; or the right to write the metadata is
                missing, other metadata is there already, or the metadata of the restored checkpoint can no longer be
                read.
        """
        key = layout.metadata(self._document.checkpoint, self._document.token, self._left_out.stages)
        with Spool() as spool:
            try:
                metadata_file.write(self.referred.through(self._counted(self._lines())), spool.put)
            except OSError as error:
                raise FinalizeError(
                    f"the temporary folder of this machine cannot hold the metadata: {error}. Make room there",
                    key=self._files.full(key),
                ) from error
            try:
                created = spool.create(self._files, key)
            except ForbiddenError as error:
                if error.code != "missing_right":
                    raise
                # A retry fails too, and the epoch would hang until an operator grants the right (semantics C6). Any
                # other refusal (a wrong clock, a rotated key) may pass and is waited for (semantics W3).
                raise FinalizeError(
                    f"the store refuses to have the metadata written: {error.message}", key=self._files.full(key)
                ) from error
            if not created:
                raise FinalizeError("other metadata is there already", key=self._files.full(key))
            return Assembled(
                metadata=spool.reference(key),
                size_bytes=self._size_bytes,
                tables=self._tables,
                table_files={name: self._table_files[name] for name in self._tables},
                new_bytes=self._new_bytes,
                subtasks=self._subtasks,
                slowest=self._slowest,
                committables=self._committables,
                owing=tuple(self._owing),
                read=self._document.read,
            )

    def _ack_of(self, uid: str) -> AckDocument:
        execution = self._document.executions[uid]
        try:
            ack = self._found.get(uid) or acks.read_ack(self._files, uid, execution, self._document.epoch)
        except GoneError as error:
            raise CheckpointNotReadyError(
                "the checkpoint cannot complete yet: a stage has not acknowledged. Wait until its progress says ready",
                job=self._document.job,
                checkpoint=self._document.checkpoint,
                stage=uid,
            ) from error
        except DocumentError as error:
            raise _broken(uid, execution, str(error)) from error
        spec = self._expected.get(uid)
        if spec is not None and spec.parallelism not in (None, ack.parallelism):
            raise _broken(uid, execution, f"it has parallelism {ack.parallelism}, expected {spec.parallelism}")
        return ack

    def _note_tables(self, stage: str, outputs: Iterable[Output]) -> str | None:
        """Note the tables that a stage publishes; return the problem where another stage publishes the same table."""
        for output in outputs:
            if output.kind != "table":
                continue
            if output.name in self._tables:
                return f"it publishes the table {output.name!r}, which {self._owners[output.name]} publishes too"
            self._tables[output.name] = output.folder
            self._owners[output.name] = stage
            if output.appended is not None:
                self._table_files[output.name] = output.appended.files
                self._size_bytes += output.appended.size_bytes
                self._growing.add(output.id)
        return None

    def _counted(self, lines: Iterator[Line]) -> Iterator[Line]:
        """Pass lines through and count the files of each table; the output of a growing table holds its own count."""
        for line in lines:
            if isinstance(line, HandleLine) and line.handle.output not in self._growing:
                count_table_file(self._table_files, line)
            yield line

    def _count_bytes(self, handle: StateHandle) -> None:
        """Add a file's bytes; those of a growing table's files were added with the table."""
        if handle.output not in self._growing or metadata_file.is_list(handle):
            self._size_bytes += handle.size_bytes

    def _lines(self) -> Iterator[Line]:
        """Yield the metadata's lines, with one acknowledgement and one of its parts in memory at a time."""
        document = self._document
        yield MetadataHeader(
            job=document.job,
            checkpoint=document.checkpoint,
            epoch=document.epoch,
            attempt=document.attempt,
            slice=document.slice,
            stages=tuple(spec.uid for spec in document.stages),
            restored_from=document.restore.checkpoint if document.restore else None,
            read=document.read,
        )
        yield from self._hook_lines()
        taking_part = [spec.uid for spec in document.stages if spec.uid not in self._left_out.stages]
        unread: list[BacklogEpoch] = []
        kept: list[BacklogEpoch] = []
        for uid in taking_part:
            ack = self._ack_of(uid)
            twice = self._note_tables(uid, ack.outputs)
            if twice is not None:
                raise _broken(uid, document.executions[uid], twice)
            owes = partial_completion.unread_by(document, ack, self._expected.get(ack.stage))
            (kept if ack.skipped else unread).extend(owes)
            if owes:
                self._owing.append(uid)
            yield from self._lines_of(ack, owes)
        yield from self._lines_of_restored(kept)
        awaited = {uid for each in unread for uid in each.inputs}
        for uid in taking_part:
            if uid in awaited or self._left_out.awaits(uid):
                yield from self._in_flight_of(self._ack_of(uid))

    def _lines_of_restored(self, kept: Iterable[BacklogEpoch]) -> Iterator[Line]:
        """Yield lines taken from the restored checkpoint: those of stages left out, and data still in flight."""
        try:
            for line in chain(self._left_out.lent(), self._left_out.in_flight(kept)):
                if isinstance(line, StageLine):
                    twice = self._note_tables(line.stage, line.outputs)
                    if twice is not None:
                        raise FinalizeError(f"the stage {line.stage} is left out, and {twice}")
                elif isinstance(line, HandleLine):
                    self._count_bytes(line.handle)
                yield line
        except (GoneError, DocumentError) as error:
            raise _unreadable(error) from error

    def _in_flight_of(self, ack: AckDocument) -> Iterator[Line]:
        """Keep the exchanges of a stage, because one of their readers has still to read them (semantics B2, B3)."""
        execution = self._document.executions[ack.stage]
        outputs = {output.id: output for output in ack.outputs if output.kind not in IN_CHECKPOINT}
        own = self._folder_of(ack)
        yield InFlightLine(ack.stage, execution, tuple(outputs.values()))
        for index, handle in self._handles_of(ack):
            if handle.output in outputs:
                self._check_origin(ack, own, handle.path)
                self._size_bytes += handle.size_bytes
                self._new_bytes += handle.size_bytes
                yield HandleLine(index, handle)

    def _hook_lines(self) -> Iterator[Line]:
        ref = self._document.hooks
        if ref is None:
            return
        try:
            answers = attempt_documents.read_hook_answers(self._files, ref)
        except GoneError as error:
            raise CheckpointNotReadyError(
                "the checkpoint cannot complete yet: its master hooks have not answered. Run (or clear) the task that "
                "triggers it",
                job=self._document.job,
                checkpoint=self._document.checkpoint,
                hooks=", ".join(ref.names),
            ) from error
        except DocumentError as error:
            raise FinalizeError(
                f"the answers of the master hooks cannot be used: {error}", code="broken_ack", token=ref.token
            ) from error
        for answer in answers:
            yield HookLine(answer)

    def _lines_of(self, ack: AckDocument, owes: tuple[BacklogEpoch, ...]) -> Iterator[Line]:
        execution = self._document.executions[ack.stage]
        self._committables |= bool(ack.committables)
        own = self._folder_of(ack)
        kept = tuple(output for output in ack.outputs if output.kind in IN_CHECKPOINT)
        for output in kept:
            self._check_origin(ack, own, f"{output.folder.rstrip('/')}/")
        yield StageLine(
            stage=ack.stage,
            execution=execution,
            parallelism=ack.parallelism,
            outputs=kept,
            values=ack.values,
            metrics=ack.metrics,
            max_parallelism=self._document.max_parallelism.get(ack.stage),
            owes=owes,
            committables=ack.committables,
            skipped=ack.skipped,
            handed_on=self._handed_on(ack),
        )
        at = size = 0
        largest = (0, 0)
        known, in_checkpoint = {output.id for output in ack.outputs}, {output.id for output in kept}
        for index, handle in self._handles_of(ack):
            if handle.output in in_checkpoint:
                self._check_origin(ack, own, handle.path)
                self._count_bytes(handle)
                new_bytes = handle.size_bytes if handle.path.startswith(own) else 0
                self._new_bytes += new_bytes
                at, size = index, new_bytes + (size if index == at else 0)
                largest = max(largest, (size, -at))
                yield HandleLine(index, handle)
            elif handle.output not in known:
                raise _broken(ack.stage, execution, f"it names a file that belongs to no output: {handle.output}")
        self._note_time(ack, execution, subtask=-largest[1])

    def _handed_on(self, ack: AckDocument) -> HandedOn | None:
        """Count the files and rows of a stage's exchanges; reads the further parts of its ack a second time."""
        ids = {output.id for output in ack.outputs if output.kind == "exchange"}
        if not ids:
            return None
        counted = HandedOn(rows=0)
        for handle in (each for _, each in self._handles_of(ack) if each.output in ids):
            size_bytes = counted.size_bytes + handle.size_bytes
            counted = HandedOn(counted.files + 1, size_bytes, handle.rows_with(counted.rows))
        return counted

    def _note_time(self, ack: AckDocument, execution: Execution, *, subtask: int) -> None:
        self._subtasks += ack.parallelism
        took_ms = ack.metrics.end_to_end_ms
        ran = execution.home == self._document.checkpoint
        if ran and (self._slowest is None or took_ms > self._slowest.end_to_end_ms):
            self._slowest = Slowest(ack.stage, took_ms, subtask)

    def _handles_of(self, ack: AckDocument) -> Iterator[tuple[int, StateHandle]]:
        try:
            for subtask in acks.subtasks_of(self._files, ack):
                for handle in subtask.handles:
                    yield subtask.index, handle
        except (GoneError, DocumentError) as error:
            raise _broken(ack.stage, self._document.executions[ack.stage], str(error)) from error

    def _folder_of(self, ack: AckDocument) -> str:
        execution = self._document.executions[ack.stage]
        return f"{layout.execution_folder(execution.home, ack.stage, execution.attempt, execution.token)}{ack.run}/"

    def _check_origin(self, ack: AckDocument, own: str, path: str) -> None:
        """Refuse a path unless it is of the stage's own driver, of the restored checkpoint, or a compaction of these.

        The cleaner may delete any other file while this checkpoint is pending.
        """
        if path.startswith(own):
            return
        if self._inherited is None:
            self._inherited = self._restored_paths()
        if path not in self._inherited and path not in self._compacted(ack, path, self._inherited):
            problem = f"it names a file that is neither its own nor the restored checkpoint's: {path}"
            raise _broken(ack.stage, self._document.executions[ack.stage], problem)

    def _compacted(self, ack: AckDocument, path: str, restored: set[str]) -> frozenset[str]:
        record = layout.compaction_of(path)
        if record is None:
            return frozenset()
        if record not in self._adopted:
            try:
                self._adopted[record] = compactions.adoptable(self._files, record, ack.stage, restored)
            except DocumentError as error:
                raise _broken(ack.stage, self._document.executions[ack.stage], str(error)) from error
        return self._adopted[record]

    def _restored_paths(self) -> set[str]:
        found: set[str] = set()
        if self._document.restore is None:
            return found
        metadata, referred = self._document.restore.metadata, References()
        try:
            for line in referred.through(metadata_file.read(self._files, metadata)):
                if isinstance(line, StageLine):
                    found.update(f"{output.folder.rstrip('/')}/" for output in line.outputs)
                elif isinstance(line, HandleLine):
                    found.add(line.handle.path)
        except (GoneError, DocumentError) as error:
            raise _unreadable(error) from error
        self.restored = metadata, referred
        return found


def count_table_file(counts: Counter[str], line: HandleLine) -> None:
    """Count the line's file if it belongs to a table."""
    kind, _, name = line.handle.output.partition(".")
    if kind == "table":
        counts[name] += 1


def _unreadable(error: GoneError | DocumentError) -> FinalizeError:
    return FinalizeError(f"the checkpoint that this one started from cannot be read: {error}")


def _broken(stage: str, execution: Execution, problem: str) -> FinalizeError:
    return FinalizeError(
        f"the acknowledgement of {stage} cannot be used: {problem}",
        code="broken_ack",
        stage=stage,
        token=execution.token,
    )


# Metadata of stages that a checkpoint leaves out: borrowed state, backlog, data in flight (semantics B3, F6).
#
# A stage whose task was skipped acknowledges, so it borrows nothing; but its backlog stays in flight too (B2).
#
# The lender is the restored checkpoint. The cleaner keeps it while this checkpoint is pending. Once this checkpoint has
# completed, its metadata names every file that is still needed, so no second rule has to keep them.


class LeftOut:
    """Metadata lines of a checkpoint that do not come from its own acknowledgements.

    Args:
        files: the job's files.
        document: of the pending checkpoint.
        left_out: stages that it completes without, with all their downstream stages.
    """

    def __init__(self, files: JobFiles, document: PendingDocument, left_out: Collection[str]) -> None:
        self._files = files
        self._document = document
        self.stages = frozenset(left_out)
        self._unread = backlogs_after(document, left_out)
        self._in_flight = _inputs(unread for each in self._unread.values() for unread in each)

    def awaits(self, stage: str) -> bool:
        """Tell whether a stage that is left out has still to read what this stage wrote in this checkpoint."""
        return (stage, self._document.executions[stage].token) in self._in_flight

    def lent(self) -> Iterator[Line]:
        """Yield the lines of the stages left out: those of the restored checkpoint, with the backlog as it is now.

        Reads nothing if no stage is left out.
        """
        if not self.stages:
            return
        found: set[str] = set()
        lending = False
        for line in self._restored():
            if isinstance(line, StageLine):
                lending = line.stage in self.stages
                if lending:
                    found.add(line.stage)
                    yield replace(line, owes=self._unread[line.stage], committables={}, skipped=False)
            elif isinstance(line, InFlightLine):
                break
            elif lending:
                yield line
        for spec in self._document.stages:
            if spec.uid in self.stages - found:
                # The stage has never acknowledged, so its only execution is the one that is left out.
                execution = self._document.executions[spec.uid]
                yield StageLine(spec.uid, execution, spec.parallelism or 0, owes=self._unread[spec.uid])

    def in_flight(self, kept: Iterable[BacklogEpoch] = ()) -> Iterator[Line]:
        """Yield data in flight that a stage has still to read; reads nothing where there is none.

        Args:
            kept: the backlog of skipped stages, which take part but keep their backlog.
        """
        awaited = self._in_flight | _inputs(kept)
        wanted = False
        for line in self._restored() if awaited else ():
            if isinstance(line, InFlightLine):
                wanted = (line.stage, line.execution.token) in awaited
                if wanted:
                    yield line
            elif wanted and isinstance(line, HandleLine):
                yield line

    def _restored(self) -> Iterator[Line]:
        if self._document.restore is not None:
            yield from metadata_file.read(self._files, self._document.restore.metadata)


def _inputs(unread: Iterable[BacklogEpoch]) -> set[tuple[str, str]]:
    return {(uid, execution.token) for each in unread for uid, execution in each.inputs.items()}
