"""Fixing an epoch's input, and moving the sources' positions over it (semantics T8).

What to read is fixed once, at the epoch's first trigger. The position after it is worked out each time an attempt is
opened on another completed checkpoint; a source refuses where that checkpoint has read some of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import replace
from functools import partial

from ...storage.errors import GoneError
from ...storage.port import ConditionFailed
from ..answers import AlreadyRead, InputRefused
from ..decisions.restore_choice import RestoreChoice
from ..decisions.state_assignment import ALLOWING, check_claimed_by_sources
from ..documents import layout
from ..documents.attempt import EpochDocument, Slice
from ..documents.head import Head
from ..documents.read_windows import ReadWindows
from ..documents.strict_json import Json, plain_json
from ..request import TriggerRequest
from ..source import Reading, Refusal, RunFacts, Shelf, Source
from ..store import newer_documents
from ..store.job_files import JobFiles
from ..store.source_lists import SideLists
from . import already_read
from .calls import call
from .interval import DataInterval


def positions_at(choice: RestoreChoice, sources: tuple[Source, ...], shelf: Shelf) -> dict[str, Json] | InputRefused:
    """Give what the newest completed epoch had read, also where its checkpoint is damaged and will be replayed."""
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
    """Ask each source what the epoch reads.

    Args:
        slice_: the run's window and the author's detail.
        sources: the job's sources.
        run: the facts of the DAG run.
        positions: what was read so far, by the source's name.

    Returns:
        The slice, and lines for the log; or the first refusal.

    Raises:
        SourceError: a source failed, or gave what cannot be kept as it is.
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
    """Move the positions over what a slice reads. A source that the DAG no longer has keeps its position.

    Raises:
        SourceError: a source failed, or gave a position that cannot be kept as it is.
    """
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
    """Give the refusal that has to be cured first; all was read only where each of the sources says so."""
    if not refused:
        return None
    first = next((each for each in refused if not each.all_read), refused[0])
    return replace(first, all_read=first.all_read and len(refused) == sources)


# A source gets copies: one that changes its arguments would change what is compared with its answer later.


def _read(source: Source, run: RunFacts, position: Json) -> Reading | Refusal:
    answer = source.read(run, deepcopy(position))
    if isinstance(answer, Refusal):
        return answer
    plain_json("the window of the slice", answer.window)
    return replace(answer, part=plain_json("what the epoch reads", answer.part))


def _advanced(source: Source, position: Json, part: Json, shelf: Shelf) -> Json | Refusal:
    moved = source.advance(deepcopy(position), deepcopy(part), shelf)
    return moved if isinstance(moved, Refusal) else plain_json("the new position", moved)


class Placement:
    """Says what the epochs of one job read."""

    def __init__(self, files: JobFiles, new_token: Callable[[], str]) -> None:
        self._files = files
        self._new_token = new_token

    def place(
        self, head: Head, request: TriggerRequest, fixed: Slice | None, choice: RestoreChoice
    ) -> tuple[Slice, tuple[str, ...]] | AlreadyRead | InputRefused:
        """Fix what the epoch reads, if nothing has, and move the sources' positions over it (semantics T8).

        A window that the restored state has read is not read again, and a position that no source claims is an error.

        Args:
            head: the version decided on.
            request: what is asked for.
            fixed: what the epoch reads, where this call's earlier try has fixed it.
            choice: the checkpoint that is restored.

        Returns:
            The slice, and lines for the log.

        Raises:
            NonRestoredStateError: the restored state holds the position of a source that the request lacks (R3).
            InvalidStateError: the slice is too large, or no JSON.
        """
        if not request.sources:
            # First of all: a run that reads nothing leaves nothing behind.
            read_before = already_read.judge(head, choice, request.epoch, request.slice)
            if read_before is not None and not head.drains(request.epoch):
                return read_before
            if read_before is not None:
                # It is there to let out what waits, and what its interval holds has been read (semantics P2).
                request = replace(request, slice=replace(request.slice, start=request.slice.end))
        self._check_sources(head, request, choice)
        placed = self._placed(head, request, fixed, choice)
        if isinstance(placed, InputRefused):
            return _already_read(head, request.epoch, placed)
        # What the epoch's first trigger has fixed counts, which may be something else.
        return already_read.judge(head, choice, request.epoch, placed[0]) or placed

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
        positions = claimed(positions, request.sources, already_read.read_by(choice))
        log: tuple[str, ...] = ()
        placed: Slice | InputRefused | None = None
        if request.run is None:
            fixed = fixed or self._fix_slice(head, request)
            if not positions and not fixed.sources:
                return fixed, ()
        else:
            found = self._read_once(head, request, request.run, fixed, positions, shelf)
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
    ) -> tuple[Slice, tuple[str, ...], Slice | None] | InputRefused:
        """Ask the sources what the epoch reads, unless that is stored; give also the slice as placed, if known."""
        if fixed is None:
            fixed = self._stored_slice(request.epoch)
            if fixed is not None:
                self._say_if_restored(head, request.epoch)
        if fixed is not None:
            return fixed, (), None
        asked = read(request.slice, request.sources, replace(run, shelf=shelf), positions)
        if isinstance(asked, InputRefused):
            return asked
        wanted, log = asked
        placed = place(wanted, request.sources, positions, head.latest_id(), shelf)
        if isinstance(placed, InputRefused):
            return placed
        # Without positions: they belong to an attempt, and the checkpoint that they follow may be another for the next.
        fixed = self._fix_slice(head, replace(request, slice=wanted))
        return fixed, log, placed if fixed is wanted else None

    def _fix_slice(self, head: Head, request: TriggerRequest) -> Slice:
        """Store the epoch's slice at its first trigger and give what is stored (semantics T8)."""
        key = layout.epoch_slice(request.epoch)
        wanted = EpochDocument(self._files.job, request.epoch, request.slice)
        if isinstance(self._files.create(key, wanted), ConditionFailed):
            self._say_if_restored(head, request.epoch)
            return self._files.read(EpochDocument, key)[0].slice
        return request.slice

    def _stored_slice(self, epoch: str) -> Slice | None:
        try:
            return self._files.read(EpochDocument, layout.epoch_slice(epoch))[0].slice
        except GoneError:
            return None

    def _say_if_restored(self, head: Head, epoch: str) -> None:
        """Warn where the store has a slice that the head does not know: the head may be an older, restored one (W9)."""
        if next(head.ended_of_epoch(epoch), None) is None:
            newer_documents.say_if_completed_later(self._files, head, epoch)


def _already_read(head: Head, epoch: str, refused: InputRefused) -> AlreadyRead | InputRefused:
    """Say of a run of which all was read since that nothing is left to do, as for its data interval (semantics T8).

    A run that was rewound is to read again: that another one has to come first, its author is to see.
    """
    newest, latest = next(head.ended_of_epoch(epoch), None), head.latest_id()
    rewound = newest is not None and head.rewound_since(newest) is not None
    if not refused.all_read or rewound or latest is None:
        return refused
    return AlreadyRead(epoch, refused.detail, latest, back_to=None, source=refused.source)
