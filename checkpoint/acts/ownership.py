"""Checks the job's owner at each trigger, and gives the job another owner for `cairn adopt` (semantics W8)."""

from __future__ import annotations

from dataclasses import replace

from ...storage.names import shorten
from ..documents.attempt import Owner
from ..documents.entries import JobOwner
from ..documents.head import Head
from ..errors import InvalidConfigError, RefusedError
from ..rules import transitions
from ..rules.ownership import MAX_DEPLOYMENT, Adopted, check_deployment, described, take_ownership
from ..store.head_store import Decision, UseCase, changed


class Ownership(UseCase):
    """Looks up and changes the owner of one job."""

    def check(self, owner: Owner) -> None:
        """Refuse a DAG run whose DAG does not own the job; nothing is recorded (semantics W8).

        Raises:
            CheckpointError: the job belongs to another DAG or deployment.
        """
        self._heads.observe(lambda head, _now_ms: take_ownership(head, owner))

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
            raise InvalidConfigError("that is no id of a DAG", dag_id=shorten(dag_id))
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
            detail = f"{described(after)} has adopted the job"
            ended = transitions.suspend_pending(head, detail, now_ms) if head.pending else head
            if head.owner != after:
                for each in head.waiting:
                    ended = replace(ended, waiting=transitions.leave_queue(ended.waiting, each.epoch))
            return Decision(sent, changed(head, replace(ended, owner=after)))

        return self._heads.update(decide)[1]
