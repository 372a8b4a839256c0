"""Requests of a stage's application: acknowledge, decline, ask whether it still counts (semantics A, D1, B4)."""

from __future__ import annotations

import logging
from collections.abc import Collection

from ...storage.errors import DocumentError, ForbiddenError, GoneError, UnavailableError
from ...storage.records import dataclass
from ..answers import Cancelled, EpochCompleted
from ..documents import layout
from ..documents.acknowledgement import AckDocument, DeclineDocument
from ..documents.attempt import Handover, PendingDocument, StageRef, execution_token
from ..documents.entries import EndedEntry, LateAck, PendingEntry
from ..documents.head import Head
from ..documents.metadata import StageLine
from ..masking import one_line
from ..reasons import DECLINES, AckAnswer, Reason, cause_first
from ..rules import history, transitions
from ..rules.failures import producers
from ..rules.history import EpochEnded, EpochPending
from ..store import acks, completed_epochs, metadata_file
from ..store.head_store import Decision
from ..store.job_files import JobFiles
from . import carry_over
from .use_case import UseCase

log = logging.getLogger("airflow_cairn")


@dataclass(frozen=True, slots=True)
class Standing:
    """State of an execution at one moment. It decides nothing: only the head judges the acknowledgement, later."""

    attempt: PendingEntry | None
    """The pending attempt of its epoch."""
    current: bool
    """Whether that attempt runs this execution."""
    completed: int | None
    """The checkpoint that has completed the epoch, if none is pending."""
    triggered_at_ms: int | None
    """Trigger time of the execution's own checkpoint, milliseconds since 1970 UTC, if the head still knows."""
    left_out: bool = False
    """Whether that checkpoint has completed the epoch without the stage (semantics B3, F6)."""
    ended: EndedEntry | None = None
    """The epoch's newest attempt, if none is pending, the epoch has not completed, and the head still knows."""
    awaited: bool = False
    """Whether the attempt after `ended` is expected to take over this running execution (semantics F2)."""
    overtaken: str | None = None
    """Why the pending attempt can no longer complete, if another checkpoint has completed since (semantics C2)."""

    @property
    def may_count(self) -> bool:
        """Whether the execution's driver has to go on, because the execution counts or is expected to.

        An attempt that is not expected may still take the execution over; `ExecutionReports.over` covers that.
        """
        return self.current or self.awaited

    @property
    def over(self) -> str:
        """Why the execution is over, as a clause for users."""
        if self.completed is not None:
            return f"checkpoint {self.completed} has completed its epoch without it"
        if self.attempt is not None:
            newer = f"attempt {self.attempt.attempt}, checkpoint {self.attempt.id},"
            return f"{newer} {'runs the stage anew' if self.overtaken is None else f'is overtaken: {self.overtaken}'}"
        reason = f" ({self.ended.reason})" if self.ended is not None and self.ended.reason is not None else ""
        return f"its attempt has ended{reason}, and none that follows takes it over"


class ExecutionReports(UseCase):
    """The part of the coordinator that a driver needs and imports: calls about one execution of one stage.

    Args:
        job: the job.
    """

    @property
    def files(self) -> JobFiles:
        """The objects of the job."""
        return self._files

    def acknowledge(self, ack: AckDocument) -> AckAnswer:
        """Acknowledge all subtasks of an execution; delete the files of one that comes too late (semantics A2, A3).

        Files are deleted only if the head shows that this execution can never count again: the epoch's pending attempt
        runs the stage anew, or this call has noted the rejection in the head. The cleaner deletes all others.

        Raises:
            InvalidStateError: the acknowledgement is of another job, or contradicts itself; nothing was written.
            UnavailableError: the acknowledgement may or may not have arrived; nothing was deleted.
        """
        if not acks.write_ack(self._files, ack):
            log.info("Already acknowledged: %s; this driver's files are left to the cleaner", _named(ack))
            return AckAnswer.DUPLICATE
        try:
            head, answer = self._update_settled(lambda head, _now_ms: self._judge(ack, head), waits=False)
        except (ForbiddenError, UnavailableError) as error:
            # A driver's role may lack the right to change the head, so a refusal is not waited for. The next task has
            # that right, and finds the marker.
            log.info(
                "The head was only read, because the store did not take a change of it: %s: %s", _named(ack), error
            )
            head, answer = self._heads.observe(lambda head, _now_ms: (head, self._read_answer(ack, head)))
        if answer not in (AckAnswer.UNKNOWN, AckAnswer.DISCARDED):
            return answer
        outcome = "is left to the cleaner"
        if self._belongs_to_ack_epoch(head, ack):
            self._delete_execution(ack)
            outcome = "is deleted"
        elif self._contradicts_handover(ack):
            # The marker has the name of an execution that may still count, but is not its acknowledgement.
            self._files.delete([layout.ack(ack.checkpoint, ack.stage, ack.token)])
        if answer is AckAnswer.UNKNOWN:
            log.debug("Never expected: %s; what it wrote %s", _named(ack), outcome)
        else:
            log.warning("Acknowledged late, after the end of its attempt: %s; what it wrote %s", _named(ack), outcome)
        return answer

    def decline(self, decline: DeclineDocument) -> None:
        """Record that an execution will not acknowledge, and why; the first decline counts (semantics D1).

        Raises:
            InvalidStateError: the decline is of another job, or a stage may not give its reason.
        """
        acks.write_decline(self._files, decline)

    def standing(self, handover: Handover) -> Standing:
        """Say whether an execution may still count (semantics W4, F3).

        Raises:
            GoneError: the document of the pending attempt is missing.
            DocumentError: it is broken.
        """
        return self._heads.observe(lambda head, _now_ms: self._standing(head, handover))

    def completed_with(self, handover: Handover) -> bool:
        """Tell whether an execution's epoch has completed with it; True also where the store no longer knows (A2)."""

        def look(head: Head, _now_ms: int) -> bool:
            place = completed_epochs.where_is(self._files, head, handover.epoch)
            return isinstance(place, EpochCompleted) and self._possibly_in_checkpoint(head, place.checkpoint, handover)

        return self._heads.observe(look)

    def over(self, executions: Collection[StageRef], head: Head) -> dict[str, str | None]:
        """Say which executions can never count again (semantics V2).

        If an epoch's attempt has ended and the epoch has not completed, an execution is not over while a next attempt
        could take it over, whether or not it has acknowledged. The answer stays true until a person intervenes: a
        rewind undoes completed epochs; and if a person lets an epoch go on after a failure that no retry cures
        (semantics F4), its next attempt may take over running executions.

        Args:
            executions: the head has named each of them at some time.
            head: read a moment ago. An execution that runs according to it costs no request.

        Returns:
            The reason by token; None for an execution with which its epoch has completed, or may have. Executions that
            may still count are missing.

        Raises:
            GoneError: the document of a pending attempt is missing.
            DocumentError: it is broken.
        """
        asked = [it for it in executions if not _runs_in(head, it)]
        if not asked:
            return {}

        def look(newest: Head, _now_ms: int) -> dict[str, str | None]:
            found = {it: self._standing(newest, it) for it in asked}
            return {
                it.token: None if self._has_its_end(newest, it, standing) else standing.over
                for it, standing in found.items()
                if not standing.may_count and not self._may_be_taken_over(newest, it)
            }

        return self._heads.observe(look)

    def _may_be_taken_over(self, head: Head, it: StageRef) -> bool:
        """Tell whether the epoch has not completed, and a next attempt could take the execution over.

        After a failure that no retry cures, no attempt follows by itself. Even then an execution that has acknowledged
        is not over: its client may still be working after the epoch's block.
        """
        ended = head.carryable(it.epoch)
        if ended is None or not self._lends(ended, it.token):
            return False
        return not ended.for_good or acks.has_acknowledged(self._files, it.stage, it.execution)

    def _has_its_end(self, head: Head, it: StageRef, standing: Standing) -> bool:
        return standing.completed is not None and self._possibly_in_checkpoint(head, standing.completed, it)

    def _standing(self, head: Head, it: StageRef) -> Standing:
        own = head.pending_by_id(it.checkpoint) or head.ended_by_id(it.checkpoint)
        triggered_at_ms = own.triggered_at_ms if own else None
        place = completed_epochs.where_is(self._files, head, it.epoch)
        if isinstance(place, EpochCompleted):
            completed = place.checkpoint
            left_out = it.stage in head.left_out_of(completed)
            return Standing(
                None, current=False, completed=completed, triggered_at_ms=triggered_at_ms, left_out=left_out
            )
        if not isinstance(place, EpochPending):
            return Standing(
                None,
                current=False,
                completed=None,
                triggered_at_ms=triggered_at_ms,
                ended=place.newest if isinstance(place, EpochEnded) else None,
                awaited=self._is_awaited(head, it),
            )
        entry = place.entry
        late = transitions.why_overtaken(head, entry)
        current = late is None and _started_by(entry, it)
        if not current and late is None:
            execution = self._documents.of(entry).execution(it.stage)
            current = execution is not None and execution.token == it.token
        return Standing(entry, current=current, completed=None, triggered_at_ms=triggered_at_ms, overtaken=late)

    def _judge(self, ack: AckDocument, head: Head) -> Decision[AckAnswer]:
        place = completed_epochs.where_is(self._files, head, ack.epoch)
        if isinstance(place, EpochPending):
            if _started_by(place.entry, ack):
                return Decision(AckAnswer.SUCCESS)
            answer = acks.judge(head, self._documents.of(place.entry), ack)
            return Decision(answer, _noted(head, ack, answer))
        if isinstance(place, EpochCompleted) and self._possibly_in_checkpoint(head, place.checkpoint, ack):
            return Decision(AckAnswer.SUCCESS)
        ended = head.carryable(ack.epoch)
        if ended is not None and self._lends(ended, ack.token):
            if ended.paused:
                # semantics S1: what runs when the DAG is paused runs to its end, and the next attempt takes it over.
                return Decision(AckAnswer.SUCCESS)
            rejected = history.reject(head, ended, ack.token)
            return Decision(AckAnswer.DISCARDED, _noted(rejected, ack, AckAnswer.DISCARDED))
        answer = acks.judge(head, None, ack)
        return Decision(answer, _noted(head, ack, answer))

    def _read_answer(self, ack: AckDocument, head: Head) -> AckAnswer:
        """Judge an acknowledgement without changing the head: unless the head has rejected it, it may count."""
        place = completed_epochs.where_is(self._files, head, ack.epoch)
        if isinstance(place, EpochPending):
            return acks.judge(head, self._documents.of(place.entry), ack)
        if isinstance(place, EpochCompleted) and self._possibly_in_checkpoint(head, place.checkpoint, ack):
            return AckAnswer.SUCCESS
        ended = head.carryable(ack.epoch)
        if ended is not None and self._lends(ended, ack.token):
            return AckAnswer.SUCCESS  # the next attempt finds the marker and takes it over
        return acks.judge(head, None, ack)

    def _is_awaited(self, head: Head, it: StageRef) -> bool:
        """Tell whether a next attempt is expected that takes over the running execution.

        An attempt follows if a stage has declined and is tried again, or if the job tolerates the failure (D5). After
        any other end, no task opens an attempt before this stage itself is tried again.
        """
        ended = head.carryable(it.epoch)
        if ended is None or not (ended.tolerated or ended.reason in DECLINES):
            return False
        return self._lends(ended, it.token)

    def _lends(self, ended: EndedEntry, token: str) -> bool:
        """Tell whether a next attempt could carry the execution over.

        True also where the attempt's document cannot be read: a next attempt may have carried the execution over
        already, and a cleaner deleted the document. The swap that notes the rejection finds that out.
        """
        if token in ended.rejected:
            return False
        document = self._documents.readable(ended)
        return document is None or token in {execution.token for execution in document.executions.values()}

    def _possibly_in_checkpoint(self, head: Head, completed: int, it: StageRef) -> bool:
        """Tell whether a checkpoint completed with this execution; True also where that is no longer known.

        A completed checkpoint that has left the store may have passed this execution's files on to the next one.
        """
        if it.stage in head.left_out_of(completed):
            return False
        entry = head.completed_by_id(completed)
        if entry is None:
            return True
        try:
            return any(
                isinstance(line, StageLine) and line.stage == it.stage and line.execution.token == it.token
                for line in metadata_file.read(self._files, entry.metadata)
            )
        except (GoneError, DocumentError):
            return True

    def _belongs_to_ack_epoch(self, head: Head, ack: AckDocument) -> bool:
        """Tell whether the execution that the ack names is surely one of the ack's epoch.

        The history or the handover proves that; a cleaner may have deleted the handover. Without a proof, the files
        may be those of another epoch, which was not judged and may have completed with them.
        """
        ended = head.ended_by_id(ack.checkpoint)
        if ack.checkpoint >= head.next_id or (ended is not None and _began_in(ended, ack)):
            return True
        handover = carry_over.readable_handover(self._files, ack.stage, ack.checkpoint, ack.token)
        return handover is not None and (handover.epoch, handover.attempt) == (ack.epoch, ack.attempt)

    def _contradicts_handover(self, ack: AckDocument) -> bool:
        """Tell whether an ack has the token of an execution whose handover names another epoch or attempt."""
        handover = carry_over.readable_handover(self._files, ack.stage, ack.checkpoint, ack.token)
        return handover is not None and (handover.epoch, handover.attempt) != (ack.epoch, ack.attempt)

    def _delete_execution(self, ack: AckDocument) -> None:
        """Delete the files and then the markers of an execution that can never count again."""
        folder = layout.execution_folder(ack.checkpoint, ack.stage, ack.attempt, ack.token)
        self._files.delete([found.key for found in self._files.listing(folder)])
        markers = self._files.listing(layout.ack_folder(ack.checkpoint, ack.stage))
        self._files.delete([each.key for each in markers if layout.token_of(each.key.split("/")[-1]) == ack.token])


def _started_by(entry: PendingEntry, it: StageRef) -> bool:
    """Tell from the head alone whether an attempt has started an execution, which it then keeps to its end.

    If not, the attempt may have carried the execution over; its document says.
    """
    return (it.checkpoint, it.attempt, it.token) == (entry.id, entry.attempt, execution_token(entry.token, it.stage))


def _runs_in(head: Head, it: StageRef) -> bool:
    """Tell from the head alone whether a pending attempt that can still complete has started the execution."""
    entry = head.pending_by_id(it.checkpoint)
    return entry is not None and _started_by(entry, it) and transitions.why_overtaken(head, entry) is None


def _noted(head: Head, ack: AckDocument, answer: AckAnswer) -> Head:
    """Keep the stage times of a late acknowledgement with its failed checkpoint (semantics O1)."""
    ended = head.ended_by_id(ack.checkpoint)
    if answer is not AckAnswer.DISCARDED or ended is None or not _began_in(ended, ack):
        return head
    return history.note_late(head, ended.id, LateAck(ack.stage, ack.metrics))


def _began_in(ended: EndedEntry, ack: AckDocument) -> bool:
    """Tell from the head alone whether an execution began in an attempt that has ended."""
    it = (ended.epoch, ended.attempt, execution_token(ended.token, ack.stage))
    return it == (ack.epoch, ack.attempt, ack.token)


def _named(ack: AckDocument) -> str:
    return f"job {ack.job}, epoch {layout.run_id_of(ack.epoch)}, stage {ack.stage}, execution {ack.token}"


def describe_unacknowledged(files: JobFiles, head: Head, document: PendingDocument, stage: str) -> str:
    """Say why a stage has not acknowledged although its task has ended, as far as the store tells: one or two reads."""
    execution = document.executions[stage]
    key = layout.handover(execution.home, stage, execution.token)
    try:
        files.read(Handover, key)
    except GoneError:
        return _not_begun(head, document, stage)
    except DocumentError as error:
        return f"its handover cannot be used: {error}"
    declined = acks.why_declined(files, stage, execution)
    if declined is not None:
        return f"it declined, {declined[0]}: {declined[1]}"
    marker = files.full(layout.ack(execution.home, stage, execution.token))
    return (
        "it has begun, and its acknowledgement is not in the store: its task was marked or killed before the stage had "
        f"acknowledged, or {marker} was deleted"
    )


def _not_begun(head: Head, document: PendingDocument, stage: str) -> str:
    if document.executions[stage].attempt < document.attempt or document.attempt == 1:
        return "it has not begun: its task ended before it asked for its work, because it was marked or killed"
    before = next((each for each in head.ended_of_epoch(document.epoch)), None)
    cause = (
        f" ({cause_first(before.detail, before.reason)})" if before is not None and before.reason is not None else ""
    )
    return (
        f"attempt {document.attempt} has to run it again, because the attempt before ended{cause}, and its task has "
        "not run since"
    )


# Declines at a cancellation barrier. A decline is passed on to the stages that read from the declining one: the
# attempt is lost, and submitting them would be useless. So they decline too, with
# `CHECKPOINT_DECLINED_ON_CANCELLATION_BARRIER`, and claim nothing. This marker is judged like any decline: it counts
# as long as the head lists the execution. The next attempt runs both stages anew, because a stage is never carried
# over without its upstream (semantics F1).


FEW = 3
"""Up to so many upstreams are looked up one by one: stores charge twelve times as much for a listing as for a look."""


def pass_on(files: JobFiles, document: PendingDocument, stage: str) -> Cancelled | None:
    """Decline for a stage if a direct or indirect upstream has declined; None where none has.

    A stage that runs at least once waits for no upstream, so no decline is passed on to it (B2).

    Costs a look at each upstream where there are few, else one listing for each checkpoint that is the home of an
    upstream's execution; nothing for a stage without upstream.
    """
    if document.limits.at_least_once:
        return None
    above = {uid: document.executions[uid] for uid in producers(document.stages, stage)}
    if len(above) <= FEW:
        declined = frozenset(uid for uid in sorted(above) if acks.has_declined(files, uid, above[uid]))
    else:
        declined = acks.marked(files, above, "declines")
    if declined:
        # A decline after the acknowledgement does not count (D1); looked up only here, so the healthy path stays cheap.
        declined -= acks.marked(files, above, "acks")
    if not declined:
        return None
    upstream, _, why = acks.causes(files, above, declined)[0]
    own = document.executions[stage]
    acks.write_decline(
        files,
        DeclineDocument(
            job=document.job,
            checkpoint=own.home,
            epoch=document.epoch,
            stage=stage,
            token=own.token,
            reason=Reason.CHECKPOINT_DECLINED_ON_CANCELLATION_BARRIER,
            detail=one_line(f"{upstream}, which it reads from, has declined: {why}"),
        ),
    )
    return Cancelled(document.checkpoint, document.attempt, upstream, one_line(why))
