"""Interventions of people: a rewind of the job, and another owner (semantics R1, R5, W8).

A rewind makes an older retained checkpoint the newest again, and the epochs after it run again. One swap of the head
does it. Later checkpoints leave the store, and `Head.rewinds` records, as long as the job lives, that they no longer
count; their ids stay used (T5), and the history keeps their outcome (D3). No attempt that ended before the rewind lends
executions to a later one: a cleaner may have deleted their files after the rewind.

The owner is checked at each trigger; `cairn adopt` gives the job another one.
"""

from __future__ import annotations

from dataclasses import replace

from ...storage.names import shorten
from ..documents.attempt import Owner
from ..documents.entries import InterventionKind, JobOwner, RewindRecord
from ..documents.head import Head, run_of_head
from ..errors import InvalidConfigError, NoCheckpointError, RefusedError
from ..rules import rewinds, transitions
from ..rules.admission import MAX_DEPLOYMENT, Adopted, check_deployment, describe_owner, take_ownership
from ..rules.mirrors import check_runs_here
from ..rules.rewinds import Rewound, planned, rewound
from ..rules.transitions import done_by
from ..store import verification
from ..store.head_store import Decision, changed
from .use_case import UseCase


class Rewinding(UseCase):
    """Rewinds one job."""

    def plan(self, to: int) -> Rewound:
        """Describe a rewind without doing it: one read of the head, unless a checkpoint has expired (D2).

        Raises:
            NoCheckpointError: the checkpoint is not retained.
        """
        return self._update_settled(lambda head, _now_ms: Decision(planned(head, to)))[1]

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
            found = planned(head, to)
            if agreed is not None and found != agreed:
                raise RefusedError(
                    "the job has changed since you looked, and the rewind would undo something else; look again",
                    code="rewind_refused",
                    job=self._files.job,
                    checkpoint=to,
                    agreed=rewinds.described(agreed),
                    now=rewinds.described(found),
                )
            if not found.undone:
                return Decision(found)
            self._check(head, found, abort_pending=abort_pending)
            back = rewound(head, to, now_ms)
            after = done_by(actor, InterventionKind.REWIND, head, back, now_ms, to)
            sent = after.rewinds[-1], found
            return Decision(found, after)

        return self._update_settled(decide)[1]

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


class Ownership(UseCase):
    """Looks up and changes the owner of one job."""

    def check(self, owner: Owner) -> None:
        """Refuse a DAG run whose DAG does not own the job; nothing is recorded (semantics W8).

        Raises:
            CheckpointError: the job has moved, or is a mirror that nobody has activated (semantics M5); or it belongs
                to another DAG or deployment.
        """

        def decide(head: Head, _now_ms: int) -> None:
            check_runs_here(head, self._files.store.uri)
            take_ownership(head, owner)

        # Right on any version: the swap of the trigger that follows checks again.
        self._heads.observe(decide, known=True)

    def adopt(self, dag_id: str, deployment: str = "", *, abort_pending: bool = False) -> Adopted:
        """Give a job another owner, in one swap (semantics W8).

        A pending checkpoint belongs to the old owner, whose stages may still run: the change is refused, or the
        checkpoint aborted with `CHECKPOINT_COORDINATOR_SUSPEND`. Waiting requests lose their places; a live run asks
        again.

        Args:
            dag_id: id of the new owner's DAG.
            deployment: the name of its deployment; empty where it has none.
            abort_pending: abort pending checkpoints instead of refusing.

        Raises:
            RefusedError: the job has never run, or a checkpoint is pending.
            InvalidConfigError: `dag_id` cannot be the id of a DAG, or `deployment` cannot be a name.
        """
        if not dag_id or len(dag_id) > MAX_DEPLOYMENT or not dag_id.isprintable():
            raise InvalidConfigError("that is not an id of a DAG", dag_id=shorten(dag_id))
        after = JobOwner(dag_id, check_deployment(deployment))
        sent: Adopted | None = None

        def decide(head: Head, now_ms: int) -> Decision[Adopted]:
            nonlocal sent
            if sent is not None and head.owner == after and not head.pending:
                return Decision(sent)  # only the answer was lost
            if head.revision == 0:
                raise RefusedError(
                    "there is no such job; `cairn jobs` lists those there are", code="adoption_refused", job=head.job
                )
            if head.pending and not abort_pending:
                raise RefusedError(
                    "a checkpoint is pending. Wait for its end, or end it too: cairn adopt … --abort-pending. Nothing "
                    "was changed",
                    code="adoption_refused",
                    job=head.job,
                    pending=", ".join(str(entry.id) for entry in head.pending),
                )
            sent = Adopted(head.owner, after, tuple(entry.id for entry in head.pending))
            detail = f"{describe_owner(after)} has adopted the job"
            ended = transitions.suspend_pending(head, detail, now_ms) if head.pending else head
            if head.owner != after:
                for each in head.waiting:
                    ended = replace(ended, waiting=transitions.leave_queue(ended.waiting, each.epoch))
            return Decision(sent, changed(head, replace(ended, owner=after)))

        return self._heads.update(decide)[1]
