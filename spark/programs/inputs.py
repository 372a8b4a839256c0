"""Renders a program's arguments: folders to read, new folders to write, and values of the slice.

The handover, documents that never change, and the DAG's arguments decide each of them. The only write is an empty
Parquet file for an input without rows, so another try gets the same arguments.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import timezone
from functools import cached_property
from typing import Any
from zoneinfo import ZoneInfo

from ...checkpoint.documents import layout
from ...checkpoint.documents.attempt import Handover, moment_in_slice
from ...checkpoint.errors import InvalidStateError
from ...checkpoint.sources.file_names import is_hidden
from ...checkpoint.store.job_files import JobFiles
from ...storage.names import StorageUri
from ...storage.records import dataclass
from ..input.inputs import Inputs
from ..input.restored import Backlog, RestoredState
from ..input.slices import SourceFiles, hull_of, slices_of
from ..stored.key_groups import COLUMN
from ..stored.outputs import Stored, data_files
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
from .schemas import empty_file, schema_of_text

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

    Args:
        arguments: as the DAG file gives them, rendered.
        handover: of the execution.
        files: the job's files.
        sources: the folder of each of the DAG's sources that has one, by name.

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
        """Return what the program gets in place of an output that is not there, or has no files."""
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
    """Check that a program can read an output's files as they are: no deltas, no columns of Cairn's own.

    Raises:
        InvalidStateError: the output has deltas, or was written by key.
    """
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
        raise InvalidStateError(f"{output.id} is no folder that a program could read", output=output.id)
