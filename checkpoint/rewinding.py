"""Rewinding a job: an older retained checkpoint becomes the newest again, and the epochs after it run again (R1, R5).

One swap of the head. What completed after that checkpoint leaves the store, and `Head.rewinds` keeps, as long as the
job lives, that it no longer counts; its ids stay used (T5), and its outcome in the history stands (D3). Nothing that
ended before the rewind lends anything to a later attempt: a cleaner may have followed a head in which it was dead.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from . import completing, decisions, restore
from .errors import NoCheckpointError, RewindRefusedError
from .head import EndedEntry, Head, RewindRecord
from .head_store import Decision, HeadStore, changed
from .job_files import JobFiles
from .reasons import Status
from .run_text import run_of_head


@dataclass(frozen=True, slots=True)
class Rewound:
    """What a rewind does, or has done. Nothing is undone where the job stood there already."""

    checkpoint: int
    """The checkpoint that the next epoch restores."""
    epoch: str
    """The last epoch that it holds."""
    undone: tuple[int, ...] = ()
    """Retained checkpoints that leave the store, oldest first."""
    epochs: tuple[str, ...] = ()
    """What these held, in order: each has to run again."""
    aborted: tuple[int, ...] = ()
    """Pending checkpoints that end."""
    aborted_epochs: tuple[str, ...] = ()
    """Theirs; each has to run again after the others."""


class Rewinding:
    """Rewinds one job.

    Args:
        files: the job's files.
        heads: the job's head.
    """

    def __init__(self, files: JobFiles, heads: HeadStore) -> None:
        self._files = files
        self._heads = heads

    def plan(self, to: int) -> Rewound:
        """Say what a rewind would do, and do none of it: one read of the head, unless something has expired (D2).

        Args:
            to: the checkpoint's id.

        Raises:
            NoCheckpointError: it is not retained.
        """

        def decide(head: Head, now_ms: int) -> Decision[Rewound]:
            settled = completing.settle(self._files, head, now_ms)
            return Decision(_plan(settled, to), changed(head, settled))

        return self._heads.update(decide)[1]

    def rewind(self, to: int, *, abort_pending: bool = False, agreed: Rewound | None = None) -> Rewound:
        """Make an older retained checkpoint the one that the next epoch restores (semantics R1, R5).

        The checkpoint is verified first. Epochs that complete again get new ids. Who was told that an undone checkpoint
        had completed is told nothing: what was committed outside stays there.

        Args:
            to: the checkpoint's id.
            abort_pending: end what is pending, with `CHECKPOINT_COORDINATOR_SUSPEND`, instead of refusing.
            agreed: what the caller takes the rewind to do; if it would do something else by now, it is refused.

        Raises:
            NoCheckpointError: it is not retained, or damaged.
            RewindRefusedError: a checkpoint is pending, or the job has changed since the caller looked.
        """
        sent: tuple[RewindRecord, Rewound] | None = None

        def decide(head: Head, now_ms: int) -> Decision[Rewound]:
            nonlocal sent
            if sent is not None and sent[0] in head.rewinds:
                # Only its answer was lost. Others may have gone on since, and theirs is not undone.
                return Decision(sent[1])
            settled = completing.settle(self._files, head, now_ms)
            found = _plan(settled, to)
            if agreed is not None and found != agreed:
                raise RewindRefusedError(
                    "the job has changed since you looked, and the rewind would undo something else; look again",
                    job=self._files.job,
                    checkpoint=to,
                    agreed=_said(agreed),
                    now=_said(found),
                )
            if not found.undone:
                return Decision(found, changed(head, settled))
            self._check(settled, found, abort_pending=abort_pending)
            after = rewound(settled, to, now_ms)
            sent = after.rewinds[-1], found
            return Decision(found, after)

        return self._heads.update(decide)[1]

    def _check(self, head: Head, found: Rewound, *, abort_pending: bool) -> None:
        if found.aborted and not abort_pending:
            raise RewindRefusedError(
                "a checkpoint is pending; wait for its end, or end it by abort_pending (cairn rewind --abort-pending)",
                job=self._files.job,
                checkpoint=found.checkpoint,
                pending=", ".join(str(each) for each in found.aborted),
                runs=", ".join(run_of_head(head, each) for each in found.aborted_epochs),
            )
        verified = restore.verify(self._files, head.retained(found.checkpoint))
        if not verified.whole:
            raise NoCheckpointError(
                f"the checkpoint is damaged and cannot be restored: {verified.damages[0]}. Rewind to another one; "
                "`cairn verify` says which are whole",
                job=self._files.job,
                checkpoint=found.checkpoint,
                damages=len(verified.damages),
            )


def rewound(head: Head, to: int, now_ms: int) -> Head:
    """Give the head in which a retained checkpoint is the newest one again, and nothing is pending.

    Args:
        head: the version decided on; `to` is retained in it and not the newest.
        to: the checkpoint's id.
        now_ms: the time, milliseconds since 1970 UTC.
    """
    record = RewindRecord(to=to, through=head.next_id - 1, at_ms=now_ms)
    kept = tuple(each for each in head.completed if each.id <= to)
    apart = tuple(each for each in head.rewinds if each.to < to)
    # First, so that who is told of what is aborted here hears which checkpoint is the newest now (D4).
    head = replace(head, completed=kept, rewinds=(*apart, record))
    detail = f"the job was rewound to checkpoint {to}"
    # A savepoint with which the job was to stop would hold what counts no more.
    return decisions.give_up_stop(decisions.suspend_pending(head, detail, now_ms), detail, now_ms)


def target(head: Head, checkpoint: int) -> int | None:
    """Give the checkpoint to rewind to so that what `checkpoint` holds runs again; None if none is retained."""
    return max((each.id for each in head.completed if each.id < checkpoint), default=None)


def undone(head: Head, ended: EndedEntry) -> str:
    """Say for people that an epoch's newest attempt counts no more because the job was rewound."""
    rewind = head.rewound_since(ended)
    happened = rewind.said if rewind else "the job was rewound"
    held = "which held the epoch" if ended.status is Status.COMPLETED else f"which had failed ({ended.reason})"
    return f"{happened} after checkpoint {ended.id}, {held}"


def _plan(head: Head, to: int) -> Rewound:
    target = head.retained(to, so=", so the job cannot be rewound to it")
    later = [entry for entry in head.completed if entry.id > to]
    # What was made from a savepoint is no epoch that could run again.
    made = (entry for entry in later if head.import_of(entry.id) is None)
    epochs = dict.fromkeys(epoch for entry in made for epoch in (*entry.replayed, entry.epoch))
    pending = head.pending if later else ()
    return Rewound(
        checkpoint=target.id,
        epoch=target.epoch,
        undone=tuple(entry.id for entry in later),
        epochs=tuple(epochs),
        aborted=tuple(entry.id for entry in pending),
        aborted_epochs=tuple(entry.epoch for entry in pending),
    )


def _said(found: Rewound) -> str:
    undone = ", ".join(str(each) for each in found.undone) or "nothing"
    pending = ", ".join(str(each) for each in found.aborted)
    return f"undoes {undone}" + (f", aborts {pending}" if pending else "")
