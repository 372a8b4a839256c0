"""Rewinds of the head, as pure functions (semantics R6)."""

from __future__ import annotations

from dataclasses import replace

from ...storage.records import dataclass
from ..documents.entries import EndedEntry, RewindRecord
from ..documents.head import Head
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
