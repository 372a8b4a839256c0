"""One run of a program that knows nothing of Cairn: its rendered arguments, and the acknowledgement in its name.

**Arguments**: folders to read, new folders to write, and values of the slice. The handover, documents that never
change, and the DAG's arguments decide each of them. The only write is an empty Parquet file for an input without rows,
so another try gets the same arguments.

**Acknowledgement** (A1, A2, A5), once the program has ended well. Order: ask whether the execution still counts, list
each output once, check that its write was committed, describe the files, write the marker; then the head judges. None
of this needs the process that submitted: the handover names the outputs, and the execution's token names their folder.
So a try that has taken over a driver acknowledges as the first try would have. If two tries acknowledge at once, they
write one marker, with the same files.

A crash before the marker leaves files to which nothing refers. The next try finds no acknowledgement: it waits for the
driver if that still runs, acknowledges if the driver has ended well, and fails over otherwise. A crash after the marker
leaves a valid acknowledgement (A6). A program that was replaced writes into a folder that no later attempt reads.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timezone
from functools import cached_property
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from ...checkpoint.documents import acknowledgement, layout
from ...checkpoint.documents.acknowledgement import AckMetrics
from ...checkpoint.documents.attempt import Handover, moment_in_slice
from ...checkpoint.documents.metadata import CHECKS
from ...checkpoint.documents.programs import RAW, Program, ProgramOutput
from ...checkpoint.errors import InvalidStateError
from ...checkpoint.sources.file_names import is_hidden
from ...checkpoint.store.job_files import JobFiles
from ...storage.clock import system_runtime
from ...storage.names import StorageUri
from ...storage.port import ObjectStat
from ...storage.records import dataclass
from .. import acknowledging
from ..execution.fence import replaced
from ..input.inputs import Inputs
from ..input.restored import Backlog, RestoredState
from ..input.slices import SourceFiles, hull_of, slices_of
from ..output.writer import SUCCESS, Writer
from ..stored.key_groups import COLUMN
from ..stored.outputs import File, Stored, data_files
from .arguments import (
    NO_PARTS,
    Argument,
    Joined,
    Moment,
    NewState,
    Output,
    Publish,
    Read,
    SliceEnd,
    SliceFiles,
    SliceStart,
    SliceValue,
    State,
)
from .schemas import empty_file, footer_of, schema_of_text

if TYPE_CHECKING:
    from ...checkpoint.coordinator import Coordinator

EMPTY = "part-00000-without-rows.parquet"
_MOST_BYTES = 64 * 1024
"""Longest pattern for an input with several paths: Linux allows 128 KiB for one argument."""
_PATTERN = frozenset("*?[]{},\\")
"""Special characters of a Hadoop pattern."""


def filled(
    arguments: Sequence[str | Argument],
    handover: Handover,
    files: JobFiles,
    sources: Mapping[str, StorageUri] | None = None,
) -> list[str]:
    """Return a program's rendered arguments.

    `sources` has the folder of each of the DAG's sources that has one, by name.

    Raises:
        InvalidStateError: an input is missing, or is not a whole folder; or the slice has no such value.
        InvalidConfigError: pyarrow, which an input without rows needs, is not installed.
    """
    inputs = _Inputs(handover, files, sources)
    return [_text(inputs, each) for each in arguments]


def run_folder(handover: Handover) -> str:
    """Return the folder of all outputs of an execution's program; relative to the job's prefix."""
    at = handover
    return f"{layout.execution_folder(at.checkpoint, at.stage, at.attempt, at.token)}{at.token}/"


def output_folder(handover: Handover, output_id: str) -> str:
    """Return the folder of one output; relative to the job's prefix.

    A driver has a token of its own, and a program has none. An execution submits its program once, so the execution's
    token names the folder.
    """
    at = handover
    return layout.output_folder(at.checkpoint, at.stage, at.attempt, at.token, at.token, output_id)


def _text(inputs: _Inputs, argument: str | Argument) -> str:
    match argument:
        case Joined():
            return "".join(_text(inputs, each) for each in argument.parts)
        case SliceStart():
            return inputs.moment("start", argument)
        case SliceEnd():
            return inputs.moment("end", argument)
        case SliceFiles():
            return argument.separator.join(inputs.source_files.fixed(argument.source))
        case SliceValue():
            return inputs.value(argument)
        case Read():
            return inputs.read(argument)
        case State():
            return inputs.state(argument)
        case Output() | Publish() | NewState():
            return inputs.url(output_folder(inputs.handover, argument.declared().id))
    return str(argument)


@dataclass(frozen=True)
class _Inputs:
    """The inputs of one execution."""

    handover: Handover
    files: JobFiles
    sources: Mapping[str, StorageUri] | None

    @cached_property
    def source_files(self) -> SourceFiles:
        return SourceFiles(self.handover, self.files, lambda urls: [None] * len(urls), self.sources)

    @cached_property
    def _loaded(self) -> tuple[RestoredState, Inputs]:
        backlog = Backlog(self.handover.backlog)
        restored = RestoredState(self.handover.stage)
        restored.load(self.files, self.handover.restore, backlog)
        return restored, Inputs(self.files, self.handover, backlog)

    def url(self, folder: str) -> str:
        return self.files.spark_url(folder.rstrip("/"))

    def moment(self, which: str, argument: Moment) -> str:
        text = getattr(hull_of(self.handover), which)
        if text is None:
            raise InvalidStateError(f"the slice has no {which}: the run has no data interval, and no source a window")
        moment = moment_in_slice(which, text)
        zone = timezone.utc if argument.timezone == "UTC" else ZoneInfo(argument.timezone)
        here = moment.astimezone(zone)
        return here.isoformat() if argument.format is None else here.strftime(argument.format)

    def value(self, argument: SliceValue) -> str:
        slices = slices_of(self.handover)
        if len(slices) > 1:
            raise InvalidStateError(
                f"this epoch has to fold in {len(slices) - 1} older ones too, and a program can be handed one value of "
                f"the source {argument.source!r}, not several. Give the stage an Epoch block, which reads each of "
                "epoch.slices, or go back to before them by `cairn rewind`",
                job=self.handover.job,
            )
        found: Any = slices[0].sources or {}
        for step in (argument.source, *argument.path):
            try:
                found = found[step]
            except (KeyError, IndexError, TypeError) as error:
                there = list(found) if isinstance(found, dict) else type(found).__name__
                raise InvalidStateError(
                    f"the slice has no {step!r}, on the way to {argument!r}", there_is=str(there)[:200]
                ) from error
        return found if isinstance(found, str) else json.dumps(found, ensure_ascii=False, separators=(",", ":"))

    def read(self, argument: Read) -> str:
        if self.handover.at_least_once:
            raise InvalidStateError(NO_PARTS, job=self.handover.job, stage=self.handover.stage)
        parts = self._loaded[1].parts(
            argument.stage, argument.name, argument.kind, required=argument.default is None and argument.schema is None
        )
        return self._place(parts, argument)

    def state(self, argument: State) -> str:
        outputs = self._loaded[0].outputs
        found = [outputs[each] for each in (f"state.{argument.name}", f"files.{argument.name}") if each in outputs]
        return self._place(found, argument)

    def _place(self, parts: Sequence[Stored], argument: Read | State) -> str:
        """Return a folder, or a Hadoop pattern for several paths."""
        for part in parts:
            _check_whole(part)
        there = [data_files(self.files, part) for part in parts]
        filled = [part for part in there if part.files]
        if not filled:
            return self._nothing(there, argument)
        places = [place for part in filled for place in self._places_of(part)]
        return self.url(places[0]) if len(places) == 1 else self._pattern(places, filled)

    def _places_of(self, part: Stored) -> list[str]:
        """Return the output's folder if the folder holds only the output's files; otherwise the files."""
        folder = f"{part.output.folder.rstrip('/')}/"
        named = {file.handle.path for file in part.files}
        if all(path.startswith(folder) for path in named):
            found = {each.key for each in self.files.listing(folder)}
            if {each for each in found if not is_hidden(each.removeprefix(folder))} == named:
                return [folder]
        return sorted(named)

    def _pattern(self, places: Sequence[str], parts: Sequence[Stored]) -> str:
        prefix = self.url("")
        below = ",".join(place.rstrip("/") for place in places)
        if len(below.encode()) > _MOST_BYTES or any(_PATTERN & set(place) for place in places):
            raise InvalidStateError(
                f"{parts[0].output.id} lies in {len(places)} places, and no argument can name them all. Let the stage "
                "that writes it publish the whole table, or read it in a stage with an Epoch block",
                output=parts[0].output.id,
            )
        return f"{prefix.rstrip('/')}/{{{below}}}"

    def _nothing(self, parts: Sequence[Stored], argument: Read | State) -> str:
        """Return the argument in place of an output that is not there, or has no files."""
        schema = next((part.output.schema for part in parts if part.output.schema is not None), None)
        if schema is None and argument.schema is not None:
            schema = schema_of_text(argument.schema)
        if schema is None and argument.default is not None:
            return argument.default
        if schema is None:
            raise InvalidStateError(
                f"{argument!r} has nothing to give to the program: what it reads was not written in this epoch, for "
                "example because a task was skipped. Say what the program gets then: default='', or "
                "schema='key STRING, n BIGINT'"
            )
        what = argument.stage if isinstance(argument, Read) else self.handover.stage
        folder = f"{run_folder(self.handover)}without-rows.{what}.{argument.name or 'main'}/"
        self.files.create_bytes(folder + EMPTY, empty_file(schema))
        return self.url(folder)


def _check_whole(part: Stored) -> None:
    """Check that a program can read an output's files as they are: no deltas, no columns of Cairn's own."""
    output = part.output
    if any(file.handle.delta for file in part.files) or output.key_groups is not None:
        kept = "base and deltas" if any(file.handle.delta for file in part.files) else f"key groups ({COLUMN})"
        raise InvalidStateError(
            f"{output.id} is kept as {kept}, which only Cairn reads, and a program gets whole folders. Let the stage "
            "that writes it also publish or write it: epoch.publish('totals', epoch.state('totals')), or "
            "epoch.snapshot without key",
            output=output.id,
        )
    if output.items is not None or output.kind in ("list", "value"):
        raise InvalidStateError(f"{output.id} is not a folder that a program could read", output=output.id)


_UNCOMMITTED = ("_temporary", "__magic", ".spark-staging")
"""Beginnings of the folders in which committers keep what they have not committed."""
_AT_ONCE = 8
_STATES = ("state", "files")


def acknowledge(coordinator: Coordinator, handover: Handover, program: Program) -> None:
    """Acknowledge what a program has written.

    Raises:
        InvalidStateError: an output is missing, not committed or unreadable; nothing was written.
        InvalidConfigError: pyarrow is not installed.
        FencedError: another attempt has replaced the execution.
        UnavailableError: whether the acknowledgement arrived is unknown; nothing was deleted.
    """
    standing = coordinator.standing(handover)
    if standing.completed is not None:
        return  # the caller asks whether this execution is part of it
    paused = standing.ended is not None and standing.ended.paused
    if not standing.may_count and not paused:
        raise replaced(handover, standing.over)
    files, clock = coordinator.files, system_runtime().now_ms
    began_ms = clock()
    writer = Writer(files, handover, handover.token, clock)
    carried = RestoredState(handover.stage)
    carried.load(files, handover.restore, Backlog(handover.backlog))
    carried.forget(CHECKS)
    for declared in program.outputs:
        if declared.kind in _STATES:
            # A state has one form at a time: the restored one may hold rows and the new one raw files, or vice versa.
            for kind in _STATES:
                carried.outputs.pop(f"{kind}.{declared.name}", None)
    written = {declared.id: _written(writer, coordinator, declared) for declared in program.outputs}
    now_ms = clock()
    since_trigger_ms = 0 if standing.triggered_at_ms is None else max(0, now_ms - standing.triggered_at_ms)
    metrics = AckMetrics(async_ms=max(0, now_ms - began_ms), end_to_end_ms=since_trigger_ms)
    ack = acknowledging.acknowledgement(
        handover, handover.token, {**carried.outputs, **written}, carried.values, metrics
    )
    acknowledging.acknowledge(coordinator, handover, ack)


def _written(writer: Writer, coordinator: Coordinator, declared: ProgramOutput) -> Stored:
    """Describe one output: its files, and the columns of a Parquet file."""
    files, folder = coordinator.files, writer.folder_of(declared.id)
    found = {each.key.removeprefix(folder): each for each in files.listing(folder)}
    uploads = [each.key for each in files.store.uploads(files.full(folder))]
    _check_committed(declared, found, files.full(folder), uploads)
    raw = declared.format == RAW or declared.kind == "files"
    kept = [name for name in sorted(found) if name != SUCCESS and not name.endswith("/")]
    handles = writer.handles(declared.id, [found[name] for name in kept if raw or not is_hidden(name)])
    output = acknowledgement.Output(
        declared.kind, declared.name, folder, format=declared.format, options=declared.options
    )
    if raw or declared.format:
        return Stored(output, [File(0, handle) for handle in handles])
    if not handles:
        raise _refused(
            declared,
            files.full(folder),
            "is committed but holds no Parquet file, so its columns are unknown. Spark writes a file even for no rows; "
            "if the files are hidden or of another format, say which: format='csv', or format='raw'",
        )
    with ThreadPoolExecutor(_AT_ONCE, "cairn-footers") as pool:
        footers = list(pool.map(lambda handle: footer_of(files, handle), handles))
    schemas = sorted({footer.schema for footer in footers})
    if len(schemas) > 1:
        raise _refused(
            declared,
            files.full(folder),
            "has files with different columns, so no one schema reads them all. Let the program write it once, as one "
            "DataFrame",
            columns=" and ".join(each[:200] for each in schemas[:2]),
        )
    counted = [File(0, replace(each, rows=footer.rows)) for each, footer in zip(handles, footers, strict=True)]
    return Stored(replace(output, schema=schemas[0]), counted)


def _check_committed(declared: ProgramOutput, found: dict[str, ObjectStat], where: str, uploads: Sequence[str]) -> None:
    """Check that the write of an output has come to its end."""
    pending = [name for name in found if any(part.startswith(_UNCOMMITTED) for part in name.split("/"))]
    if pending or uploads:
        raise _refused(
            declared,
            where,
            f"was not committed: {(pending or list(uploads))[0]!r} is still there, as a running or failed write "
            "leaves it. Let the program end only when its writes have, with an exit status other than 0 if one fails",
        )
    if declared.success_file and SUCCESS not in found:
        what = "was not written" if not found else f"has {len(found)} files and no {SUCCESS}, so it may be incomplete"
        raise _refused(
            declared,
            where,
            f"{what}, although the program ended with status 0. Let it write to the place that its arguments name. If "
            f"it writes without {SUCCESS}, as other programs than Spark do, say so: success_file=False",
        )


def _refused(declared: ProgramOutput, where: str, why: str, **facts: object) -> InvalidStateError:
    return InvalidStateError(f"the output {declared.id} {why}", folder=where, **facts)
