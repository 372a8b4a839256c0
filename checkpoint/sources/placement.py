"""Fixing an epoch's input, and moving the sources' positions over it (semantics T8).

The input is fixed once, at the epoch's first trigger. The positions after it are worked out each time that an attempt
is opened on another completed checkpoint; a source refuses if that checkpoint has read some of the input.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import replace
from functools import partial
from types import UnionType
from typing import TypeVar

from ...storage.errors import CairnError, ErrorKind, GoneError
from ...storage.names import shorten
from ...storage.port import ConditionFailed
from ...storage.records import dataclass
from ..answers import AlreadyRead, InputRefused, TriggerRequest
from ..config import REFUSE
from ..documents import codec, layout
from ..documents.attempt import MAX_SLICE_BYTES, EpochDocument, Slice
from ..documents.head import Head
from ..documents.read_windows import ReadWindows
from ..documents.strict_json import Json, plain_json, to_json
from ..errors import CallbackError, InvalidStateError
from ..masking import one_line
from ..rules import restored_state
from ..rules.restored_state import ALLOWING, RestoreChoice, check_claimed_by_sources
from ..source import Reading, Refusal, RunFacts, Shelf, Source
from ..store import verification
from ..store.job_files import JobFiles
from ..store.source_lists import SideLists
from .values import DataInterval


def positions_at(choice: RestoreChoice, sources: tuple[Source, ...], shelf: Shelf) -> dict[str, Json] | InputRefused:
    """Give the positions after the newest completed epoch, even if its checkpoint is damaged and will be replayed."""
    positions: dict[str, Json] = dict(choice.slice.positions or {}) if choice.slice else {}
    for epoch in choice.replay:
        moved = advanced(positions, epoch.slice, sources, shelf)
        if isinstance(moved, InputRefused):
            return moved
        positions = moved
    return positions


def claimed(positions: Mapping[str, Json], sources: tuple[Source, ...], read: ReadWindows) -> dict[str, Json]:
    """Give the positions of the sources that the DAG has; those of others are left behind (semantics R3).

    A `DataInterval` that takes the place of plain data intervals goes on where these ended.

    Args:
        positions: what was read so far, by the source's name.
        sources: the job's sources.
        read: the windows that the restored state has read.
    """
    kept = {source.name: positions[source.name] for source in sources if source.name in positions}
    for source in sources:
        if isinstance(source, DataInterval) and kept.get(source.name) is None and read:
            kept[source.name] = source.position_of(read)
    return kept


def read(
    slice_: Slice, sources: tuple[Source, ...], run: RunFacts, positions: Mapping[str, Json]
) -> tuple[Slice, tuple[str, ...]] | InputRefused:
    """Ask each source for its part of the epoch's input.

    Args:
        slice_: the run's window and the author's detail.
        sources: the job's sources.
        run: the facts of the DAG run.
        positions: what was read so far, by the source's name.

    Returns:
        The slice, and lines for the log; or the first refusal.
    """
    log: list[str] = []
    refused: list[InputRefused] = []
    for source in sources:
        answer = call(source.name, "read", partial(_read, source, run, positions.get(source.name)))
        if isinstance(answer, Refusal):
            refused.append(InputRefused(source.name, answer.text, answer.all_read))
            continue
        log.extend(f"{source.name}: {line}" for line in answer.log)
        slice_ = replace(slice_, sources={**(slice_.sources or {}), source.name: answer.part})
        if answer.window is not None:
            slice_ = replace(slice_, start=answer.window[0], end=answer.window[1], source_window=True)
    return _joined(refused, len(sources)) or (slice_, tuple(log))


def place(
    slice_: Slice, sources: tuple[Source, ...], positions: Mapping[str, Json], base: int | None, shelf: Shelf
) -> Slice | InputRefused:
    """Give the slice with the positions after it, as an attempt on top of checkpoint `base` has them."""
    after = advanced(positions, slice_, sources, shelf)
    return after if isinstance(after, InputRefused) else replace(slice_, positions=after, base=base or 0)


def advanced(
    positions: Mapping[str, Json], slice_: Slice, sources: tuple[Source, ...], shelf: Shelf
) -> dict[str, Json] | InputRefused:
    """Move the positions over what a slice reads. A source that the DAG no longer has keeps its position."""
    after = dict(positions)
    by_name = {source.name: source for source in sources}
    parts = slice_.sources or {}
    refused: list[InputRefused] = []
    for name, part in parts.items():
        if name not in by_name:
            return InputRefused(
                name, f"the epoch reads from the source {name!r}, which the DAG no longer has: put it back"
            )
        moved = call(name, "advance", partial(_advanced, by_name[name], after.get(name), part, shelf))
        if isinstance(moved, Refusal):
            refused.append(InputRefused(name, moved.text, moved.all_read))
        else:
            after[name] = moved
    return _joined(refused, len(parts)) or after


def _joined(refused: list[InputRefused], sources: int) -> InputRefused | None:
    """Give the refusal that the author has to solve first; `all_read` only if it holds for every source."""
    if not refused:
        return None
    first = next((each for each in refused if not each.all_read), refused[0])
    return replace(first, all_read=first.all_read and len(refused) == sources)


# A source gets copies: if it changed its arguments, it would change values that its answer is compared with later.


def _read(source: Source, run: RunFacts, position: Json) -> Reading | Refusal:
    answer: object = source.read(run, deepcopy(position))
    if isinstance(answer, Refusal):
        return _worded(answer)
    if not isinstance(answer, Reading):
        raise InvalidStateError(f"it answered {shorten(answer)}, which is neither a Reading nor a Refusal")
    window, log = answer.window, answer.log
    plain_json("the window of the slice", window)
    if window is not None and not (_all_are(window, str | None) and len(window) == 2):
        raise InvalidStateError(f"the window of the slice is {shorten(window)}, and not (start, end), texts or None")
    if not _all_are(log, str):
        raise InvalidStateError(f"the lines for the log are {shorten(log)}, and not a tuple of texts")
    return replace(answer, part=plain_json("what the epoch reads", answer.part))


def _advanced(source: Source, position: Json, part: Json, shelf: Shelf) -> Json | Refusal:
    moved = source.advance(deepcopy(position), deepcopy(part), shelf)
    return _worded(moved) if isinstance(moved, Refusal) else plain_json("the new position", moved)


def _worded(refusal: Refusal) -> Refusal:
    if not isinstance(refusal.text, str):
        raise InvalidStateError(f"the text of its Refusal is {shorten(refusal.text)}, and no text")
    return refusal


def _all_are(values: object, kind: type | UnionType) -> bool:
    return isinstance(values, tuple | list) and all(isinstance(each, kind) for each in values)


class Placement:
    """Fixes the input of one job's epochs."""

    def __init__(self, files: JobFiles, new_token: Callable[[], str]) -> None:
        self._files = files
        self._new_token = new_token

    def place(
        self, head: Head, request: TriggerRequest, fixed: Slice | None, choice: RestoreChoice
    ) -> tuple[Slice, tuple[str, ...]] | AlreadyRead | InputRefused:
        """Fix the epoch's input, unless that was done before, and move the sources' positions over it (semantics T8).

        A window that the restored state has read is not read again, a position that no source claims is an error, and
        a job may refuse a window with an unread gap before it (semantics T12).

        Args:
            head: the version decided on.
            request: the trigger request.
            fixed: the epoch's input, if an earlier try of this call has fixed it.
            choice: the checkpoint to restore.

        Returns:
            The slice, and lines for the log.
        """
        if not request.sources:
            # Checked first, so that a run without input leaves nothing in the store.
            read_before = restored_state.judge_window(head, choice, request.epoch, request.slice)
            if read_before is not None and not head.drains(request.epoch):
                return read_before
            if read_before is not None:
                # A draining run only emits waiting rows; the input of its interval has been read (semantics P2).
                request = replace(request, slice=replace(request.slice, start=request.slice.end))
            if request.config.on_gap == REFUSE:
                after_gap = restored_state.refuse_gap(head.job, choice, request.slice, request.owner)
                if after_gap is not None:
                    return after_gap
        self._check_sources(head, request, choice)
        placed = self._placed(head, request, fixed, choice)
        if isinstance(placed, InputRefused):
            return _already_read(head, request.epoch, placed)
        # The input that the epoch's first trigger has fixed counts, which may differ from this request's.
        return restored_state.judge_window(head, choice, request.epoch, placed[0]) or placed

    def _check_sources(self, head: Head, request: TriggerRequest, choice: RestoreChoice) -> None:
        came_from = head.import_of(choice.pointer.checkpoint) if choice.pointer else None
        if request.config.allow_non_restored_state or (came_from and came_from.allow_non_restored_state):
            return
        positions = (choice.slice.positions or {}) if choice.slice else {}
        check_claimed_by_sources(
            [name for name, position in positions.items() if position is not None],
            [source.name for source in request.sources],
            ALLOWING,
            job=self._files.job,
            checkpoint=choice.pointer.checkpoint if choice.pointer else None,
        )

    def _placed(
        self, head: Head, request: TriggerRequest, fixed: Slice | None, choice: RestoreChoice
    ) -> tuple[Slice, tuple[str, ...]] | InputRefused:
        shelf = SideLists(self._files, request.epoch, head.next_id, self._new_token)
        positions = positions_at(choice, request.sources, shelf)
        if isinstance(positions, InputRefused):
            return positions
        positions = claimed(positions, request.sources, restored_state.read_by(choice))
        log: tuple[str, ...] = ()
        placed: Slice | InputRefused | None = None
        beside = _Beside(
            _bytes([to_json(each) for each in request.stages]), _bytes([to_json(e) for e in choice.replay])
        )
        if request.run is None:
            fixed = fixed or self._fix_detail(head, request, beside)
            if not positions and not fixed.sources:
                return fixed, ()
        else:
            found = self._read_once(head, request, request.run, fixed, positions, shelf, beside)
            if isinstance(found, InputRefused):
                return found
            fixed, log, placed = found
        placed = placed or place(fixed, request.sources, positions, head.latest_id(), shelf)
        return placed if isinstance(placed, InputRefused) else (placed, log)

    def _read_once(
        self,
        head: Head,
        request: TriggerRequest,
        run: RunFacts,
        fixed: Slice | None,
        positions: Mapping[str, Json],
        shelf: SideLists,
        beside: _Beside,
    ) -> tuple[Slice, tuple[str, ...], Slice | None] | InputRefused:
        """Ask the sources for the epoch's input, unless it is stored; also give the placed slice, if known.

        Older versions stored input that fits into no attempt; no attempt has read it, so the sources are asked again.
        """
        if fixed is not None:
            return fixed, (), None
        again, etag = "", None
        stored = self._stored_slice(request.epoch)
        if stored is not None:
            self._warn_if_restored(head, request.epoch)
            fixed, etag = stored
            placed = place(fixed, request.sources, positions, head.latest_id(), shelf)
            if isinstance(placed, InputRefused) or not _gives_way(head, request.epoch, placed, beside):
                return placed if isinstance(placed, InputRefused) else (fixed, (), placed)
            again = f"what was fixed for this run, {_bytes(to_json(placed)):,} bytes with the positions after it, fits "
            again += "into no attempt, so nothing of it was read: the sources were asked again"
        asked = read(request.slice, request.sources, replace(run, shelf=shelf), positions)
        if isinstance(asked, InputRefused):
            return asked
        wanted, log = asked
        placed = place(wanted, request.sources, positions, head.latest_id(), shelf)
        if isinstance(placed, InputRefused):
            return placed
        _check_size(placed, beside)
        # Stored without positions: these belong to an attempt, and the next one may have another base checkpoint.
        fixed = self._fix_slice(head, replace(request, slice=wanted), etag)
        return fixed, (again, *log) if again else log, placed if fixed is wanted else None

    def _fix_detail(self, head: Head, request: TriggerRequest, beside: _Beside) -> Slice:
        """Fix the input of an epoch without sources; stored input that fits into no attempt is replaced here, too."""
        _check_size(request.slice, beside)
        fixed = self._fix_slice(head, request)
        if fixed is request.slice or not _gives_way(head, request.epoch, fixed, beside):
            return fixed
        stored = self._stored_slice(request.epoch)
        return self._fix_slice(head, request, stored[1] if stored else None)

    def _fix_slice(self, head: Head, request: TriggerRequest, instead_of: str | None = None) -> Slice:
        """Store the epoch's slice at its first trigger and give what is stored (semantics T8)."""
        key = layout.epoch_slice(request.epoch)
        wanted = EpochDocument(self._files.job, request.epoch, request.slice)
        if instead_of is None:
            answer = self._files.create(key, wanted)
        else:
            answer = self._files.replace(key, wanted, expected_etag=instead_of)
        if isinstance(answer, ConditionFailed):
            self._warn_if_restored(head, request.epoch)
            return self._files.read(EpochDocument, key)[0].slice
        return request.slice

    def _stored_slice(self, epoch: str) -> tuple[Slice, str] | None:
        try:
            document, blob = self._files.read(EpochDocument, layout.epoch_slice(epoch))
        except GoneError:
            return None
        return document.slice, blob.etag

    def _warn_if_restored(self, head: Head, epoch: str) -> None:
        """Warn if the store has a slice of an epoch unknown to the head, which may be an older, restored one (W9)."""
        if next(head.ended_of_epoch(epoch), None) is None:
            verification.describe_newer_completion(self._files, head, epoch)


@dataclass(frozen=True, slots=True)
class _Beside:
    """Sizes in bytes of an attempt's document beside the epoch's input."""

    stages: int
    replayed: int
    """Bytes of the epochs to be read again."""

    def fits(self, placed: Slice) -> bool:
        return _bytes(to_json(placed)) + self.stages + self.replayed <= MAX_SLICE_BYTES


def _gives_way(head: Head, epoch: str, stored: Slice, beside: _Beside) -> bool:
    """Tell whether no attempt has read a stored slice, because it fits into none."""
    return next(head.ended_of_epoch(epoch), None) is None and not beside.fits(stored)


def _check_size(placed: Slice, beside: _Beside) -> None:
    """Check that an epoch's input fits into the document of each of its attempts, before it is fixed."""
    parts, positions = placed.sources or {}, placed.positions or {}
    sizes = {name: _bytes([parts[name], positions.get(name)]) for name in parts}
    detail = _bytes(placed.detail)
    if beside.fits(placed) or not (sizes or placed.detail):
        return
    size = _bytes(to_json(placed))
    what = (
        f"the epoch's input and the positions after it come to {size:,} bytes, beside stages of {beside.stages:,} and "
        f"epochs to be read again of {beside.replayed:,}, and {MAX_SLICE_BYTES:,} fit into the document of an attempt"
    )
    if detail >= max(sizes.values(), default=0):
        raise InvalidStateError(f"{what}. Put less into slice_detail, or the place of a file", slice_detail=detail)
    largest = max(sizes, key=lambda name: sizes[name])
    named = ", ".join(f"{name} {bytes_}" for name, bytes_ in sorted(sizes.items(), key=lambda each: -each[1])[:3])
    raise CallbackError(
        f"{what}; by source: {named}. Have {largest} give less in one run, or the place of a file that holds the rest",
        code="source",
        source=largest,
        step="read",
    )


def _bytes(value: Json) -> int:
    return len(codec.encode({"": value}))


def _already_read(head: Head, epoch: str, refused: InputRefused) -> AlreadyRead | InputRefused:
    """Turn the refusal of a run whose input was all read since into `AlreadyRead`, as for a data interval (T8).

    The refusal of a rewound run stays, because that run has to read again: its author must see that another run has to
    come first.
    """
    newest, latest = next(head.ended_of_epoch(epoch), None), head.latest_id()
    rewound = newest is not None and head.rewound_since(newest) is not None
    if not refused.all_read or rewound or latest is None:
        return refused
    return AlreadyRead(epoch, refused.detail, latest, back_to=None, source=refused.source)


T = TypeVar("T")


def call(source: str, step: str, work: Callable[[], T]) -> T:
    """Call one step of an author's source, so that any error fails the trigger with its cause (semantics T1, T8).

    Raises:
        CallbackError: the source raised an error that is not Cairn's, or its answer cannot be stored.
        CairnError: Cairn's own error, for example because the source's store did not answer.
    """
    try:
        return work()
    except Exception as error:
        if isinstance(error, CairnError) and not isinstance(error, InvalidStateError):
            if error.kind is ErrorKind.INVALID:  # the request is not what is wrong: it is kept, and counts
                raise type(error)(error.message, code=error.code, **{**error.fields, "source": source}) from error
            raise
        cause = error.message if isinstance(error, InvalidStateError) else one_line(repr(error))
        raise CallbackError(
            f"the source {source} failed in {step}: {cause}. Mend the source",
            code="source",
            source=source,
            step=step,
        ) from error
