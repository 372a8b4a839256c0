"""Whose the snapshots of an Iceberg table are, and how far a rewind takes them back (semantics R5; decision 0056)."""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from itertools import takewhile
from typing import Any

from ..storage.records import dataclass
from .contract import REMEMBERED, OvertakenError, Undone

PREFIX = "cairn."
"""Begins the names of a table's properties, and of a snapshot's facts about itself."""


@dataclass(frozen=True, slots=True)
class Oldest:
    """The oldest commit of a sink that no longer counts."""

    checkpoint: int
    before: int | None
    """The snapshot before it; None at a table's first."""
    numbered: bool = True
    """Whether snapshots have sequence numbers: in format version 1 the first one cannot be told from others."""


def oldest_undone(metadata: Any, undone: Undone) -> tuple[Oldest | None, int]:
    """Give the oldest version that no longer counts, None if there is none, and the number of them.

    Raises:
        OvertakenError: others have changed the table since, or the history has a gap above such a snapshot.
    """
    oldest, seen, others = None, dict[int, int](), list[str]()
    branches = {head: (base, checkpoint) for head, base, checkpoint in branches_of(metadata, undone.owner)}
    number = metadata.current_snapshot_id
    while number is not None and str(number) != undone.since:
        if number in branches:
            # Whose its snapshots are only their end tells: Spark names no job in that of a whole file's DELETE.
            base, at = branches[number]
            if not undone.covers(str(at)):
                break
            if others:
                raise OvertakenError(f"since checkpoint {at} others have committed {others[-1]}")
            oldest, seen[number], number = Oldest(at, base), at, base
            continue
        snapshot = metadata.snapshot_by_id(number)
        if snapshot is None:
            _check_gap(metadata, undone, seen.values())
            break
        about = snapshot.summary
        if about is not None and about[f"{PREFIX}checkpoint"]:
            undone.check_owner(str(about[f"{PREFIX}job"]), about[f"{PREFIX}checkpoint"])
        if about is not None and about[f"{PREFIX}job"] == undone.owner:
            checkpoint = about[f"{PREFIX}checkpoint"]  # a roll-back has none
            if not checkpoint and about.operation.value != "append":
                break  # it has emptied the table
            if checkpoint and not undone.covers(checkpoint):
                break
            if checkpoint:
                oldest = Oldest(int(checkpoint), snapshot.parent_snapshot_id, numbered=bool(snapshot.sequence_number))
                seen[number] = int(checkpoint)
                if others:
                    raise OvertakenError(f"since checkpoint {checkpoint} others have committed {others[-1]}")
        elif about is None or about.operation.value != "replace":
            others.append(named(snapshot))
        number = before(snapshot)
    gap = number is not None and metadata.snapshot_by_id(number) is None
    if oldest is not None and (gap or oldest.before) and metadata.snapshot_by_id(oldest.before or -1) is None:
        unnumbered = "its snapshot may not be the table's first: format version 1 numbers no snapshots"
        why = "the snapshot before has expired" if oldest.numbered else unnumbered
        raise OvertakenError(f"of checkpoint {oldest.checkpoint}, {why}")
    return oldest, len(seen)


def _check_gap(metadata: Any, undone: Undone, seen: Collection[int]) -> None:
    """Check by the marks that above snapshots which have expired is all that no longer counts."""
    for owner in [name.removeprefix(PREFIX) for name in metadata.properties if name.startswith(PREFIX)]:
        for each in undone_marks(metadata, undone, owner) if re.fullmatch(undone.kin, owner) else ():
            undone.check_owner(owner, each.partition(":")[2])
    marks = undone_marks(metadata, undone, undone.owner)
    below = {int(each.partition(":")[2]) for each in marks} - {*seen}
    if below or len(marks) == REMEMBERED:
        older = f"checkpoint {max(below)}" if below else f"commits that are older than {REMEMBERED} others"
        raise OvertakenError(f"a snapshot between now and {older} has expired")


def marks_of(metadata: Any, owner: str) -> list[str]:
    """Give the marks of a sink's commits, token and checkpoint, newest first."""
    found: list[str] = json.loads(metadata.properties.get(f"{PREFIX}{owner}", "[]"))
    return found


def undone_marks(metadata: Any, undone: Undone, owner: str) -> list[str]:
    """Give the marks of commits that no longer count; one that was taken back has no checkpoint any more."""
    late = takewhile(lambda each: not (at := each.partition(":")[2]) or undone.covers(at), marks_of(metadata, owner))
    return [each for each in late if each.partition(":")[2]]


def branches_of(metadata: Any, owner: str) -> list[tuple[int, int | None, int]]:
    """Give where `main` was before and after each move to a branch, and the checkpoint: after, before, checkpoint."""
    found: list[list[Any]] = json.loads(metadata.properties.get(f"{PREFIX}branches:{owner}", "[]"))
    return [(after, before_it, checkpoint) for after, before_it, checkpoint in found]


def tag_of(owner: str, checkpoint: int) -> str:
    """Name the tag of a checkpoint's version."""
    return f"cairn-{owner}-{checkpoint}"


def tags_of(metadata: Any, owner: str) -> dict[int, str]:
    """Give the names of the sink's tags by checkpoint; another sink's name may begin as this one's."""
    found = ((re.fullmatch(rf"cairn-{re.escape(owner)}-([0-9]+)", name), name) for name in metadata.refs)
    return {int(match[1]): name for match, name in found if match}


def before(snapshot: Any) -> int | None:
    """Give the snapshot before, None at a table's first; a number that none has where an expiry took its name away."""
    number: int | None = snapshot.parent_snapshot_id
    return -1 if number is None and snapshot.sequence_number != 1 else number


def named(snapshot: Any) -> str:
    """Name a snapshot, with how it was made, in a message."""
    about = snapshot.summary
    return f"snapshot {snapshot.snapshot_id}, {about.operation.value if about else 'of an unknown kind'}"
