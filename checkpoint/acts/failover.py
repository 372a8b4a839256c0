"""Fails over a stage's failed try: one swap ends its attempt and opens the next (semantics F1, F2, F4 to F6).

Both changes are in one version of the head, so no execution is lost between them. Two reports of one failure race for
the swap: the loser finds another execution of the stage and changes nothing. After a crash before the swap the attempt
is still pending, and the next report or the stage's next try fails it over. After a crash after the swap, the new
attempt's document names the tasks that have still to run again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from ...storage.errors import DocumentError, GoneError
from ...storage.records import dataclass
from ..answers import AbandonedRegion, EpochCompleted, FailAnswer, FailedOver, NothingToDo, Restarted, failed
from ..documents import layout
from ..documents.acknowledgement import DeclineDocument
from ..documents.attempt import Execution, Handover, PendingDocument
from ..documents.entries import EndedEntry, PendingEntry
from ..documents.head import Head
from ..errors import AlreadyReadError
from ..masking import one_line
from ..reasons import DECLINES, Reason
from ..rules import failures, history, partial_completion, transitions
from ..rules.failures import Exhausted, Restart
from ..rules.failures import affected_regions as affected
from ..rules.history import EpochEnded, EpochPending, EpochUnknown
from ..rules.transitions import Ending
from ..store import acks, completed_epochs
from ..store.attempt_documents import execution_of
from ..store.head_store import Decision
from ..store.job_files import JobFiles
from . import carry_over
from .carry_over import CarryOver
from .opening import Opener, Opening
from .use_case import UseCase, reports_of


@dataclass(frozen=True, slots=True)
class FailureReport:
    """Report that a stage's execution cannot go on."""

    epoch: str
    stage: str
    detail: str
    """The root cause in one line; the reason of the stage's own decline takes precedence."""
    final: bool = False
    """No other try follows by itself. If stages may be left out, no attempt is opened then: the checkpoint goes on
    without the stage's region if that may fail (F6), and fails otherwise."""
    curable: bool = True
    """False: another try would fail in the same way. As after a failure that the restart strategy does not allow, no
    attempt is opened, and the checkpoint fails unless it may go on without the stage's region (F4)."""
    missing: frozenset[str] = frozenset()
    """Upstream stages whose output is known to be gone or altered."""
    anew: bool = False
    """The stage was given up, and a person has asked for another try: the next attempt is opened, and the restart count
    starts at zero (F4, F6)."""
    again: bool = False
    """Nothing has failed: a person has cleared the stage's task after it had acknowledged (F5), or a listener could not
    commit its changes (C4). The stage runs again, and no restart is counted."""
    try_number: int = 0
    """Try number of the failed try; 0: unknown. If a task is cleared while it runs, Airflow reports the end of the old
    try under the id of the next one, which may run by then (measured)."""
    server: str = ""
    """Nonce of the job's Spark server, if the try failed because that server is gone; all such failures count once
    (V4)."""
    of_store: bool = False
    """The try failed because the store refused or did not answer; for a while such failures do not count (F4)."""


@dataclass(frozen=True, slots=True)
class _Failing:
    """An attempt in which a stage has failed, with the executions that the next one would take over."""

    head: Head
    """The head after `end_overdue`."""
    now_ms: int
    entry: PendingEntry
    document: PendingDocument
    carried: CarryOver
    report: FailureReport
    why: str

    @property
    def cause(self) -> str:
        """The reason why the attempt ends, for people."""
        return f"{self.report.stage}: {self.why}"

    @property
    def others(self) -> frozenset[str]:
        """Other stages that have declined in this attempt."""
        return self.carried.declined - {self.report.stage}

    @property
    def may_leave_out(self) -> bool:
        """Whether the checkpoint may complete without some stages."""
        return self.document.limits.leave_out is not None


class Failover(UseCase):
    """Fails over the attempts of one job."""

    def fail(self, report: FailureReport, claimant: str, *, unknown: bool = False) -> FailAnswer:
        """Report that a try of a stage failed (semantics F2, F5): idempotent, from any process, in any order.

        Args:
            report: the stage, and its failure.
            claimant: the failed try, as it was given to `begin`.
            unknown: the application's outcome is unknown: its task was killed, or the cluster stopped answering. If the
                driver may live on and another try follows, that try finds out.

        Raises:
            InvalidConfigError: the pending checkpoint does not expect the stage.
            NoCheckpointError: a failover is due and every retained checkpoint is damaged.
        """
        found = self._heads.observe(lambda head, _now_ms: self._held_by(head, report, claimant, unknown=unknown))
        if not isinstance(found, Execution):
            return found
        answer = self.fail_over(report, found.token)
        if not isinstance(answer, FailedOver) or not answer.created:
            return answer
        if carry_over.another_try_holds(self._files, report.stage, found, claimant):
            # The stage's next try has found an acknowledgement that landed during this failover, and has ended.
            return replace(answer, restarted=(*answer.restarted, Restarted(report.stage, "")))
        return answer

    def _held_by(self, head: Head, report: FailureReport, claimant: str, *, unknown: bool) -> Execution | FailAnswer:
        """Give the execution that the failed try holds, or the answer if it holds none."""
        place = completed_epochs.where_is(self._files, head, report.epoch)
        if not isinstance(place, EpochPending):
            return _not_pending(place, report)
        document = self._documents.of(place.entry)
        execution = execution_of(document, report.stage)
        try:
            handover, _ = self._files.read(Handover, layout.handover(execution.home, report.stage, execution.token))
        except GoneError:
            return self._settled(document, "the current attempt has not submitted this stage")
        if handover.claimant != claimant:
            return self._settled(document, "another try holds the current attempt")
        if 0 < report.try_number < handover.try_number:
            return self._settled(document, f"try {handover.try_number} holds the current attempt")
        if unknown and handover.durable and not report.final:
            return NothingToDo("its driver may have outlived it; the next try waits for that, or fails it over")
        return execution

    def _settled(self, document: PendingDocument, why: str) -> NothingToDo | FailedOver:
        """Answer that a failure is settled already, and name the tasks that have still to run again for it (F5)."""
        restarted = carry_over.restarts_waiting(self._files, document)
        if restarted:
            return FailedOver(document, created=False, restarted=restarted)
        return NothingToDo(f"{why}; the failure is settled already")

    def fail_over(self, report: FailureReport, token: str) -> FailAnswer:
        """Abort the epoch's attempt and open the next, if `token` is still the stage's current execution.

        New executions go to the stage's region, its downstream stages, the stages that have to write lost output again,
        and the regions of stages that have declined. All other executions carry over, running or acknowledged
        (semantics F1, F2, F5).

        Raises:
            InvalidConfigError: the pending checkpoint does not expect the stage.
            NoCheckpointError: every retained checkpoint is damaged.
            UnavailableError: the store did not answer. Either nothing has changed, or the next report finds the attempt
                that this one has opened.
        """
        head, answer = self._update_settled(lambda head, now_ms: self._decide(report, token, head, now_ms))
        if not isinstance(answer, FailedOver) or not answer.created:
            return answer
        before = self._documents.lent_by(next(head.ended_of_epoch(report.epoch), None))
        late = carry_over.begun_since(self._files, before, answer.pending) if before is not None else ()
        return replace(answer, restarted=(*answer.restarted, *late))

    def _decide(self, report: FailureReport, token: str, head: Head, now_ms: int) -> Decision[FailAnswer]:
        place = completed_epochs.where_is(self._files, head, report.epoch)
        if not isinstance(place, EpochPending):
            return Decision(_not_pending(place, report))
        document = self._documents.of(place.entry)
        execution = execution_of(document, report.stage)
        if execution.token != token:
            still = carry_over.restarts_waiting(self._files, document)
            return Decision(FailedOver(document, created=False, restarted=still))
        carried = carry_over.carry(
            self._files, document, document.stages, restart=report.stage, again=report.again, missing=report.missing
        )
        if report.stage in carried.acknowledged:
            return Decision(NothingToDo(f"{report.stage} had acknowledged before it ended; nothing is lost"))
        declined = acks.why_declined(self._files, report.stage, execution)
        # A driver that was told to end does not know by whom; the task that watched it may know.
        closing = declined is not None and declined[0] is Reason.CHECKPOINT_DECLINED_TASK_CLOSING
        why = report.detail if declined is None or closing else declined[1]
        failing = _Failing(head, now_ms, place.entry, document, carried, report, why)
        verdict = self._verdict(failing)
        if failing.may_leave_out and (report.final or isinstance(verdict, Exhausted)):
            given_up = give_up(self._files, head, place.entry, document, report.stage, why)
            return _failed(failing, verdict, token) if given_up is None else Decision(given_up)
        if isinstance(verdict, Exhausted):
            return _failed(failing, verdict, token)
        return self._open_next(failing, verdict)

    def _verdict(self, failing: _Failing) -> Restart | Exhausted:
        """Decide between restart and failure; a try that a person has asked for counts as no restart (F4, F5)."""
        report, entry = failing.report, failing.entry
        if report.anew or report.again:
            return Restart(entry.restarts if report.again else 0, memory=failing.head.restart_memory)
        # If stages may be left out, each report is about its own stage, whose region alone is left out.
        declined = frozenset() if failing.may_leave_out else failing.others
        return attempt_after_failure(
            self._files, failing.head, entry, failing.document, report, failing.now_ms, declined=declined
        )

    def _open_next(self, failing: _Failing, verdict: Restart) -> Decision[FailAnswer]:
        head, now_ms, entry, document = failing.head, failing.now_ms, failing.entry, failing.document
        done = len(failing.carried.acknowledged)
        others = acks.describe(acks.causes(self._files, document.executions, failing.others))
        replaced = Ending(Reason.JOB_FAILOVER_REGION, failing.cause, acks=done, others=others)
        opening = Opening(
            epoch=entry.epoch,
            slice=document.slice,
            stages=document.stages,
            limits=document.limits,
            owner=entry.owner,
            before=entry,
            carried=failing.carried,
            cause=failing.cause,
            restart=verdict,
            listeners=entry.listeners,
            hooks=document.hook_names,
        )
        try:
            ended = transitions.abort(head, entry, replaced, now_ms)
            opened = Opener(self._files, self._runtime).open(ended, opening, now_ms)
        except AlreadyReadError as error:
            # Version 0.1 opened an attempt without checking whether another run had read its window.
            subsumed = transitions.subsume(head, entry, error.message, now_ms, acks=done)
            return Decision(failed(next(subsumed.ended_of_epoch(entry.epoch))), subsumed)
        restarted = carry_over.restarted_in(opened.pending)
        return Decision(FailedOver(opened.pending, True, opened.damages, restarted), opened.head)


def _not_pending(place: EpochCompleted | EpochEnded | EpochUnknown, report: FailureReport) -> FailAnswer:
    if isinstance(place, EpochCompleted):
        return place
    if not isinstance(place, EpochEnded):
        return NothingToDo("no checkpoint was triggered for the epoch; the task that triggers says why")
    newest, last_try = place.newest, report.final or not report.curable
    if last_try or newest.for_good or newest.reason is Reason.CHECKPOINT_SUBSUMED:
        return failed(newest)
    return NothingToDo("no attempt of the epoch is pending: the next try goes on with it, or says why it cannot")


def _failed(failing: _Failing, verdict: Restart | Exhausted, token: str) -> Decision[FailAnswer]:
    """End the attempt because of a failed task, which does not count as a failed checkpoint (D5).

    The execution's driver is dead, so no later attempt takes the execution over.
    """
    ending = Ending(
        Reason.JOB_FAILURE,
        f"{verdict.why}: {failing.cause}" if isinstance(verdict, Exhausted) else failing.cause,
        acks=len(failing.carried.acknowledged),
        rejected=(token,),
        for_good=isinstance(verdict, Exhausted),
    )
    aborted = transitions.abort(failing.head, failing.entry, ending, failing.now_ms)
    ended = aborted.ended_by_id(failing.entry.id)
    assert ended is not None
    return Decision(failed(ended), aborted)


# Giving up a stage whose last try has failed: the checkpoint may complete without its region (semantics F6).
#
# The mark is created once per execution and counts as long as the head lists the execution. It is written before the
# look whether the checkpoint may still complete, so if two regions fail at the same moment, at least one look sees both
# marks. A person who clears the stage's task opens the next attempt, where the mark does not count.


def give_up(
    files: JobFiles, head: Head, entry: PendingEntry, document: PendingDocument, stage: str, detail: str
) -> AbandonedRegion | None:
    """Mark a stage that gets no other try in this attempt; None where the attempt fails without the stage."""
    if not entry.regional:
        return None
    execution = document.executions[stage]
    mark = DeclineDocument(
        job=document.job,
        checkpoint=execution.home,
        epoch=document.epoch,
        stage=stage,
        token=execution.token,
        reason=Reason.CHECKPOINT_DECLINED,
        detail=one_line(detail),
    )
    files.create(layout.failure(execution.home, stage, execution.token), mark)
    seen = reports_of(files, entry, document)
    failed = affected(document.stages, seen.given_up - seen.acknowledged)
    if not partial_completion.may_fail(head, document, failed):
        return None
    return AbandonedRegion(entry.id, tuple(sorted(failed)))


def was_given_up(files: JobFiles, stage: str, execution: Execution) -> bool:
    """Tell whether a stage's execution was marked as given up."""
    return bool(acks.marked(files, {stage: execution}, "failures"))


# Restart or final failure after a failed try, by the head and the stage's decline (semantics F4).
#
# Decided in the swap that ends the attempt. If another process ended the attempt before the failed try was reported,
# the swap that resumes the epoch decides. So each failed try counts once.


NO_CURE = "no retry cures this"


def attempt_after_failure(
    files: JobFiles,
    head: Head,
    entry: PendingEntry,
    document: PendingDocument,
    report: FailureReport,
    now_ms: int,
    *,
    declined: Collection[str] = (),
) -> Restart | Exhausted:
    """Decide whether a failed try of a stage leads to a restart or to a final failure.

    Args:
        files: the job's files.
        head: the version decided on.
        entry: the attempt in which the try failed.
        document: of that attempt.
        report: the failure.
        now_ms: the time, milliseconds since 1970 UTC.
        declined: other stages that have declined in the attempt; a decline that no retry cures ends the epoch.
    """
    own = _decline(files, report.stage, document.executions[report.stage]) if report.curable else None
    if not report.curable or (own is not None and own.incurable):
        return Exhausted(NO_CURE)
    others = incurable_stages(files, document, declined)
    if others:
        return Exhausted(f"no retry cures what {others[0]} declined for")
    # If the task was killed, only the decline says why.
    said = report if own is None else own
    cause = _Cause(report.server or said.server, said.of_store)
    return _weighed(head, entry, document, (report.stage,), cause, now_ms)


def attempt_after_end(
    files: JobFiles, head: Head, ended: EndedEntry, document: PendingDocument, now_ms: int
) -> Restart | Exhausted:
    """Decide between restart and final failure for an attempt that ended before a failed try was reported.

    Two ends count as a restart: that of a stage that declined, as each driver does that fails, and that of the job
    after too many failed checkpoints (D5). Any other end leaves the count as it is. After a final failure the count
    starts at zero.
    """
    if ended.for_good:
        return Restart(0, memory=head.restart_memory)
    if ended.reason not in DECLINES and not ended.job_failed:
        return Restart(ended.restarts, memory=head.restart_memory)
    declined = acks.marked(files, document.executions, "declines") if document.limits.restart else ()
    cause = _cause([_decline(files, uid, document.executions[uid]) for uid in declined])
    return _weighed(head, ended, document, declined, cause, now_ms)


@dataclass(frozen=True, slots=True)
class _Cause:
    """Cause of a failure outside the stages; empty where it is unknown or their own."""

    server: str = ""
    """Nonce of the Spark server that is gone (V4)."""
    of_store: bool = False
    """The store refused or did not answer."""


def _cause(declines: Iterable[DeclineDocument | None]) -> _Cause:
    """Give the cause that all declines share; an empty one where a decline is missing or names another cause."""
    # Stages downstream of a declined stage decline with it, at the barrier, for no cause of their own.
    passed_on = Reason.CHECKPOINT_DECLINED_ON_CANCELLATION_BARRIER
    own = [each for each in declines if each is None or each.reason is not passed_on]
    causes = {_Cause() if each is None else _Cause(each.server, each.of_store) for each in own}
    return causes.pop() if len(causes) == 1 else _Cause()


def _weighed(
    head: Head,
    attempt: PendingEntry | EndedEntry,
    document: PendingDocument,
    failed: Iterable[str],
    cause: _Cause,
    now_ms: int,
) -> Restart | Exhausted:
    return failures.weigh(
        document.limits.restart,
        head.restart_memory,
        attempt.restarts,
        now_ms,
        job=head.job,
        epoch=attempt.epoch,
        restart_at_ms=attempt.restart_at_ms,
        began_ms=_latest_ms(head, [document.executions[uid] for uid in failed]),
        server=cause.server,
        of_store=cause.of_store,
        completed_ms=head.completed[-1].completed_at_ms if head.completed else 0,
    )


def _began_ms(head: Head, execution: Execution) -> int | None:
    """Give the trigger time of the attempt in which an execution began; None where the head has forgotten it."""
    home = head.pending_by_id(execution.home) or head.ended_by_id(execution.home)
    return home.triggered_at_ms if home is not None else None


def _latest_ms(head: Head, executions: Sequence[Execution]) -> int | None:
    """Give the latest `_began_ms` of some executions; None where one is unknown."""
    known = [_began_ms(head, execution) for execution in executions]
    return max((each for each in known if each is not None), default=None) if None not in known else None


def fail_permanently(head: Head, ended: EndedEntry, why: str) -> Head:
    """Mark an ended attempt as a final failure, after which only a person can start another attempt."""
    failed = replace(ended, job_failed=True, for_good=True, detail=one_line(f"{why}: {ended.detail}"))
    return replace(history.with_ended(head, failed), restart_memory=None)


def incurable_stages(files: JobFiles, document: PendingDocument, stages: Iterable[str]) -> list[str]:
    """Give the stages whose decline says that no retry cures it; costs one read for each stage."""
    return [uid for uid in sorted(stages) if _declined_as_incurable(files, uid, document.executions[uid])]


def _declined_as_incurable(files: JobFiles, stage: str, execution: Execution) -> bool:
    declined = _decline(files, stage, execution)
    return declined is not None and declined.incurable


def _decline(files: JobFiles, stage: str, execution: Execution) -> DeclineDocument | None:
    try:
        return acks.read_decline(files, stage, execution)
    except DocumentError:
        return None  # the decline cannot be read; another try may succeed
