"""Rewinds a job: an older retained checkpoint becomes the newest again, and the epochs after it run again (R1, R5).

One swap of the head does it. Later checkpoints leave the store, and `Head.rewinds` records, as long as the job lives,
that they no longer count; their ids stay used (T5), and the history keeps their outcome (D3). No attempt that ended
before the rewind lends executions to a later one: a cleaner may have deleted their files after the rewind.
"""

from __future__ import annotations

from ..documents.entries import InterventionKind, RewindRecord
from ..documents.head import Head
from ..documents.texts import run_of_head
from ..errors import NoCheckpointError, RefusedError
from ..rules.rewinds import Rewound, described, planned, rewound
from ..rules.transitions import done_by
from ..store import verification
from ..store.head_store import Decision, UseCase, changed
from . import settle


class Rewinding(UseCase):
    """Rewinds one job."""

    def plan(self, to: int) -> Rewound:
        """Say what a rewind would do, without doing it: one read of the head, unless a checkpoint has expired (D2).

        Raises:
            NoCheckpointError: the checkpoint is not retained.
        """

        def decide(head: Head, now_ms: int) -> Decision[Rewound]:
            settled = settle.settle(self._files, head, now_ms)
            return Decision(planned(settled, to), changed(head, settled))

        return self._heads.update(decide)[1]

    def rewind(
        self, to: int, *, abort_pending: bool = False, agreed: Rewound | None = None, actor: str = ""
    ) -> Rewound:
        """Make an older retained checkpoint the one that the next epoch restores (semantics R1, R5).

        The checkpoint is verified first. Epochs that complete again get new checkpoint ids. Listeners are not told that
        a checkpoint was undone: data that a sink has committed outside stays there.

        Args:
            to: the checkpoint's id.
            abort_pending: abort pending checkpoints, with `CHECKPOINT_COORDINATOR_SUSPEND`, instead of refusing.
            agreed: the plan that the caller has seen; if the rewind would do something else by now, it is refused.
            actor: the person who rewinds, for the record; empty where unknown.

        Raises:
            NoCheckpointError: the checkpoint is not retained, or damaged.
            RefusedError: a checkpoint is pending, or the job has changed since the caller looked.
        """
        sent: tuple[RewindRecord, Rewound] | None = None

        def decide(head: Head, now_ms: int) -> Decision[Rewound]:
            nonlocal sent
            if sent is not None and sent[0] in head.rewinds:
                # Only the answer of the swap was lost. Epochs may have completed since, which must not be undone.
                return Decision(sent[1])
            settled = settle.settle(self._files, head, now_ms)
            found = planned(settled, to)
            if agreed is not None and found != agreed:
                raise RefusedError(
                    "the job has changed since you looked, and the rewind would undo something else; look again",
                    code="rewind_refused",
                    job=self._files.job,
                    checkpoint=to,
                    agreed=described(agreed),
                    now=described(found),
                )
            if not found.undone:
                return Decision(found, changed(head, settled))
            self._check(settled, found, abort_pending=abort_pending)
            back = rewound(settled, to, now_ms)
            after = done_by(actor, InterventionKind.REWIND, settled, back, now_ms, to)
            sent = after.rewinds[-1], found
            return Decision(found, after)

        return self._heads.update(decide)[1]

    def _check(self, head: Head, found: Rewound, *, abort_pending: bool) -> None:
        if found.aborted and not abort_pending:
            raise RefusedError(
                "a checkpoint is pending; wait for its end, or end it by abort_pending (cairn rewind --abort-pending)",
                code="rewind_refused",
                job=self._files.job,
                checkpoint=found.checkpoint,
                pending=", ".join(str(each) for each in found.aborted),
                runs=", ".join(run_of_head(head, each) for each in found.aborted_epochs),
            )
        verified = verification.verify(self._files, head.retained(found.checkpoint))
        if not verified.whole:
            raise NoCheckpointError(
                f"the checkpoint is damaged and cannot be restored: {verified.damages[0]}. Rewind to another one; "
                "`cairn verify` says which are whole",
                job=self._files.job,
                checkpoint=found.checkpoint,
                damages=len(verified.damages),
            )
