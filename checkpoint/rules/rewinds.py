"""Rewinds of the head, and its start from a savepoint, as pure functions (semantics R1, R5, R6, T5, T9).

An epoch has completed if the newest checkpoint holds it. So epochs that a savepoint does not hold no longer count after
a start from it, as after a rewind: their checkpoints leave the store, and they have to run again.
"""

from __future__ import annotations

from dataclasses import replace

from ...storage.records import dataclass
from ..documents.entries import CompletedEntry, EndedEntry, ImportRecord, RewindRecord
from ..documents.head import MAX_IMPORTS, Head
from ..documents.layout import run_id_of
from ..reasons import Status
from . import transitions


@dataclass(frozen=True, slots=True)
class Rewound:
    """Effect of a rewind, planned or done; nothing is undone if `checkpoint` is the newest already."""

    checkpoint: int
    """The checkpoint that the next epoch restores."""
    epoch: str
    """The last epoch that the checkpoint holds."""
    undone: tuple[int, ...] = ()
    """Retained checkpoints that leave the store, oldest first."""
    epochs: tuple[str, ...] = ()
    """Epochs of these checkpoints, in order: each has to run again."""
    aborted: tuple[int, ...] = ()
    """Pending checkpoints that are aborted."""
    aborted_epochs: tuple[str, ...] = ()
    """Epochs of the pending checkpoints: each has to run again, after `epochs`."""


def rewound(head: Head, to: int, now_ms: int) -> Head:
    """Give the head in which an older, retained checkpoint is the newest one again, and nothing is pending."""
    record = RewindRecord(to=to, through=head.next_id - 1, at_ms=now_ms)
    kept = tuple(each for each in head.completed if each.id <= to)
    apart = tuple(each for each in head.rewinds if each.to < to)
    # First, so that the notices of the aborted checkpoints name the checkpoint that is the newest now (D4).
    head = replace(head, completed=kept, rewinds=(*apart, record))
    detail = f"the job was rewound to checkpoint {to}"
    # A savepoint that was to stop the job would hold epochs that no longer count.
    return transitions.give_up_stop(transitions.suspend_pending(head, detail, now_ms), detail, now_ms)


def target(head: Head, checkpoint: int) -> int | None:
    """Give the checkpoint to rewind to so that the epochs of `checkpoint` run again; None if none is retained."""
    return max((each.id for each in head.completed if each.id < checkpoint), default=None)


def undone(head: Head, ended: EndedEntry) -> str:
    """Say for people that an epoch's newest attempt no longer counts because the job was rewound."""
    rewind = head.rewound_since(ended)
    happened = rewind.said if rewind else "the job was rewound"
    held = "which held the epoch" if ended.status is Status.COMPLETED else f"which had failed ({ended.reason})"
    return f"{happened} after checkpoint {ended.id}, {held}"


def planned(head: Head, to: int) -> Rewound:
    """Describe the undone and aborted checkpoints of a rewind to a retained one; nothing is changed."""
    target = head.retained(to, so=", so the job cannot be rewound to it")
    later = [entry for entry in head.completed if entry.id > to]
    # A checkpoint made from a savepoint has no epoch that could run again.
    made = (entry for entry in later if head.import_of(entry.id) is None)
    epochs = dict.fromkeys(epoch for entry in made for epoch in entry.folded)
    pending = head.pending if later else ()
    return Rewound(
        checkpoint=target.id,
        epoch=target.epoch,
        undone=tuple(entry.id for entry in later),
        epochs=tuple(epochs),
        aborted=tuple(entry.id for entry in pending),
        aborted_epochs=tuple(entry.epoch for entry in pending),
    )


def described(found: Rewound) -> str:
    """Say in a few words what a rewind undoes and aborts."""
    undone = ", ".join(str(each) for each in found.undone) or "nothing"
    pending = ", ".join(str(each) for each in found.aborted)
    return f"undoes {undone}" + (f", aborts {pending}" if pending else "")


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
    """Add a record so that no checkpoint after `back_to` counts or lends executions, if there is such a checkpoint."""
    ended = {each.id for each in head.completed} | {each.id for each in head.history} | {e.id for e in head.pending}
    if all(each <= back_to for each in ended):
        return head.rewinds
    apart = tuple(each for each in head.rewinds if each.to < back_to)
    return (*apart, RewindRecord(back_to, checkpoint - 1, now_ms, checkpoint))


def _listed(checkpoints: tuple[int, ...]) -> str:
    return ", ".join(str(each) for each in checkpoints)
