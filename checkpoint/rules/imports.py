"""Start of a job from a savepoint, as pure functions of the head (semantics R1, R5, R6, T5, T9).

An epoch has completed if the newest checkpoint holds it. So epochs that the savepoint does not hold no longer count, as
after a rewind: their checkpoints leave the store, and they have to run again.
"""

from __future__ import annotations

from dataclasses import replace

from ...storage.records import dataclass
from ..documents.entries import CompletedEntry, ImportRecord, RewindRecord
from ..documents.head import MAX_IMPORTS, Head
from ..documents.layout import run_id_of
from ..reasons import Status
from . import transitions


@dataclass(frozen=True, slots=True)
class Superseded:
    """Checkpoints and epochs that no longer count once the job has started from a savepoint."""

    back_to: int
    """The newest checkpoint of the job that the savepoint holds; 0: none."""
    checkpoints: tuple[int, ...] = ()
    """Retained checkpoints that leave the store, oldest first."""
    epochs: tuple[str, ...] = ()
    """Epochs that have completed since and have to run again, in order, as far as the history remembers."""
    pending: tuple[int, ...] = ()
    """Pending checkpoints that are aborted."""
    pending_epochs: tuple[str, ...] = ()
    """Epochs of the pending checkpoints."""

    @property
    def anything(self) -> bool:
        """Whether anything no longer counts."""
        return bool(self.checkpoints or self.epochs or self.pending)

    @property
    def said(self) -> str:
        """List everything in a few words."""
        parts = [
            f"checkpoints {_listed(self.checkpoints)}" if self.checkpoints else "",
            f"epochs {', '.join(run_id_of(each) for each in self.epochs)}" if self.epochs else "",
            f"pending {_listed(self.pending)}" if self.pending else "",
        ]
        return "; ".join(part for part in parts if part) or "nothing"


NOTHING = Superseded(0)


def given_up(head: Head, back_to: int) -> Superseded:
    """Give everything that no longer counts once the job has gone back.

    Args:
        head: the version decided on.
        back_to: the newest of its checkpoints that the savepoint holds; 0 for none.
    """
    made = [entry for entry in head.completed if entry.id > back_to and head.import_of(entry.id) is None]
    held = {entry.id: entry.folded for entry in made}
    for ended in head.history:
        counts = ended.status is Status.COMPLETED and head.rewind_of(ended.id) is None
        if ended.id > back_to and counts:
            held.setdefault(ended.id, (ended.epoch,))
    return Superseded(
        back_to,
        tuple(entry.id for entry in head.completed if entry.id > back_to),
        tuple(dict.fromkeys(epoch for each in sorted(held) for epoch in held[each])),
        tuple(entry.id for entry in head.pending),
        tuple(entry.epoch for entry in head.pending),
    )


def imported(head: Head, entry: CompletedEntry, record: ImportRecord, back_to: int, now_ms: int) -> Head:
    """Give the head in which the savepoint is the job's newest checkpoint, and nothing is pending.

    Args:
        head: the version decided on.
        entry: the checkpoint that was made from the savepoint.
        record: of the import.
        back_to: the newest of the job's checkpoints that the savepoint holds; 0 for none.
        now_ms: the time, milliseconds since 1970 UTC.
    """
    kept = tuple(each for each in head.completed if each.id <= back_to)
    after = replace(
        head,
        next_id=max(head.next_id, entry.id + 1),
        completed=(*kept, entry),
        importing=None,
        imports=_remembered(head, kept, record),
        rewinds=_rewinds(head, entry.id, back_to, now_ms),
        # A person who starts a job wants it to run (semantics S1).
        stopped=None,
    )
    # Last, so that the notices of the aborted checkpoints name the checkpoint that is the newest now (D4).
    detail = f"the job was started from a savepoint, as checkpoint {entry.id}"
    return transitions.give_up_stop(transitions.suspend_pending(after, detail, now_ms), detail, now_ms)


def _remembered(head: Head, kept: tuple[CompletedEntry, ...], record: ImportRecord) -> tuple[ImportRecord, ...]:
    retained = {each.id for each in kept}
    last = head.imports[-(MAX_IMPORTS - 1) :]
    older = tuple(each for each in head.imports if each in last or each.checkpoint in retained or each.claimed)
    return (*older, record)


def _rewinds(head: Head, checkpoint: int, back_to: int, now_ms: int) -> tuple[RewindRecord, ...]:
    """Add a record so that no checkpoint after `back_to` counts or lends executions; none if there is none."""
    ended = {each.id for each in head.completed} | {each.id for each in head.history} | {e.id for e in head.pending}
    if all(each <= back_to for each in ended):
        return head.rewinds
    apart = tuple(each for each in head.rewinds if each.to < back_to)
    return (*apart, RewindRecord(back_to, checkpoint - 1, now_ms, checkpoint))


def _listed(checkpoints: tuple[int, ...]) -> str:
    return ", ".join(str(each) for each in checkpoints)
