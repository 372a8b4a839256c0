"""Fixing an epoch's input, and moving the sources' positions over it (semantics T8).

What to read is fixed once, at the epoch's first trigger. The position after it is worked out each time an attempt is
opened on another completed checkpoint; a source refuses where that checkpoint has read some of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from ..answers import Refused
from ..decisions.restore_choice import RestoreChoice
from ..documents.attempt import Slice
from ..documents.read_windows import ReadWindows
from ..documents.strict_json import Json
from ..source import Refusal, RunFacts, Shelf, Source
from .calls import call
from .interval import DataInterval


def positions_at(choice: RestoreChoice, sources: tuple[Source, ...], shelf: Shelf) -> dict[str, Json] | Refused:
    """Give what the newest completed epoch had read, also where its checkpoint is damaged and will be replayed."""
    positions: dict[str, Json] = dict(choice.slice.positions or {}) if choice.slice else {}
    for epoch in choice.replay:
        moved = advanced(positions, epoch.slice, sources, shelf)
        if isinstance(moved, Refused):
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
) -> tuple[Slice, tuple[str, ...]] | Refused:
    """Ask each source what the epoch reads.

    Args:
        slice_: the run's window and the author's detail.
        sources: the job's sources.
        run: the facts of the DAG run.
        positions: what was read so far, by the source's name.

    Returns:
        The slice, and lines for the log; or the first refusal.
    """
    log: list[str] = []
    for source in sources:
        answer = call(source.name, "read", partial(source.read, run, positions.get(source.name)))
        if isinstance(answer, Refusal):
            return Refused(source.name, answer.text)
        log.extend(f"{source.name}: {line}" for line in answer.log)
        slice_ = replace(slice_, sources={**(slice_.sources or {}), source.name: answer.part})
        if answer.window is not None:
            slice_ = replace(slice_, start=answer.window[0], end=answer.window[1], source_window=True)
    return slice_, tuple(log)


def place(
    slice_: Slice, sources: tuple[Source, ...], positions: Mapping[str, Json], base: int | None, shelf: Shelf
) -> Slice | Refused:
    """Give the slice with the positions after it, as an attempt on top of checkpoint `base` has them."""
    after = advanced(positions, slice_, sources, shelf)
    return after if isinstance(after, Refused) else replace(slice_, positions=after, base=base or 0)


def advanced(
    positions: Mapping[str, Json], slice_: Slice, sources: tuple[Source, ...], shelf: Shelf
) -> dict[str, Json] | Refused:
    """Move the positions over what a slice reads. A source that the DAG no longer has keeps its position."""
    after = dict(positions)
    by_name = {source.name: source for source in sources}
    for name, part in (slice_.sources or {}).items():
        if name not in by_name:
            return Refused(name, f"the epoch reads from the source {name!r}, which the DAG no longer has: put it back")
        moved = call(name, "advance", partial(by_name[name].advance, after.get(name), part, shelf))
        if isinstance(moved, Refusal):
            return Refused(name, moved.text)
        after[name] = moved
    return after
