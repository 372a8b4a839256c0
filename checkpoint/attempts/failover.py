"""A failed try of a stage: its attempt ends, and the next one begins in the same swap (semantics F1, F2, F4 to F6).

One version of the head holds both, so that no execution falls between the two. Two reports of one failure race for that
swap: the loser finds another execution of the stage, and changes nothing. A crash before the swap leaves the attempt
pending, for the next report or the stage's next try; after it, the new attempt's document says which tasks are still to
be run again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...storage.errors import GoneError
from ..answers import EpochCompleted, FailAnswer, FailedOver, NothingToDo, Restarted, failed
from ..completion import settle
from ..decisions import transitions
from ..decisions.epoch import EpochEnded, EpochPending, EpochUnknown
from ..decisions.transitions import Ending
from ..documents import layout
from ..documents.attempt import Execution, Handover, PendingDocument
from ..documents.entries import PendingEntry
from ..documents.head import Head
from ..errors import AlreadyReadError
from ..executions import carry_over, latest_tries, restarted_stages
from ..executions.carry_over import CarryOver
from ..failures.restarts import Exhausted, Restart
from ..open_job import UseCase
from ..reasons import Reason
from ..store import acks, completed_epochs
from ..store.attempt_documents import execution_of
from ..store.head_store import Decision, changed
from . import cancellation, give_up, next_attempt
from .opening import Opener, Opening


@dataclass(frozen=True, slots=True)
class FailureReport:
    """What is known of a stage's execution that is not to go on."""

    epoch: str
    stage: str
    detail: str
    """The root cause in one line; a decline of the stage itself goes before it."""
    final: bool = False
    """No other try follows by itself. Where stages may be left out nothing is opened then: the checkpoint goes on
    without the stage's region if that may fail (F6), and has failed if not."""
    curable: bool = True
    """False: another try would fail alike. So would one that the restart strategy does not allow: the checkpoint has
    failed, unless it may go on without the stage's region, and nothing is opened (F4)."""
    missing: frozenset[str] = frozenset()
    """Stages that this one reads from, of which what they wrote is known to be gone or altered."""
    anew: bool = False
    """The stage was given up, and a person has asked for another try all the same: the next attempt is opened, and the
    count of restarts starts anew (F4, F6)."""
    again: bool = False
    """Nothing has failed. A person has cleared the stage's task after it had acknowledged, so it runs again all the
    same (F5); no restart is counted."""
    try_number: int = 0
    """Which try of its task has failed; 0: not known. Of a task that was cleared while it ran, Airflow reports the end
    of the old try under the id of the next one, which may run by then (measured)."""
    server: str = ""
    """Nonce of the job's Spark server, where the try failed because that is gone; all such failures are one (V4)."""


@dataclass(frozen=True, slots=True)
class _Failing:
    """An attempt in which a stage has failed, and what the next one would take over from it."""

    head: Head
    """Settled."""
    now_ms: int
    entry: PendingEntry
    document: PendingDocument
    carried: CarryOver
    report: FailureReport
    why: str

    @property
    def cause(self) -> str:
        """Why the attempt ends, for people."""
        return f"{self.report.stage}: {self.why}"

    @property
    def others(self) -> frozenset[str]:
        """Other stages that have declined in it."""
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
            report: which stage, and why.
            claimant: the try that failed, as it was given to `begin`.
            unknown: it is not known what became of the application itself: who watched it was killed, or the cluster
                did not say any more. Where its driver may live on, that is left to the try that follows, if one does.

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
        if latest_tries.has_passed(self._files, report.stage, found, claimant):
            # Its next try has found an acknowledgement that landed while this failover was on its way, and has ended.
            return replace(answer, restarted=(*answer.restarted, Restarted(report.stage, "")))
        return answer

    def _held_by(self, head: Head, report: FailureReport, claimant: str, *, unknown: bool) -> Execution | FailAnswer:
        """Give the execution that the failed try holds; where it holds none, what to answer."""
        place = completed_epochs.where_is(self._files, head, report.epoch)
        if isinstance(place, EpochCompleted):
            return place
        if isinstance(place, EpochEnded) and place.newest.for_good:
            return failed(place.newest)
        if not isinstance(place, EpochPending):
            return _no_attempt(report)
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
        """Say that a failure is settled already, and which tasks are still to be run again because of it (F5)."""
        restarted = restarted_stages.waiting(self._files, document)
        if restarted:
            return FailedOver(document, created=False, restarted=restarted)
        return NothingToDo(f"{why}; the failure is settled already")

    def fail_over(self, report: FailureReport, token: str) -> FailAnswer:
        """Abort the epoch's attempt and open the next, if `token` is still the stage's current execution.

        The stage's region, those that read from it, and those that have to write again what is gone get new executions,
        and so do the regions of stages that have declined; those of all others carry over, running or acknowledged
        (semantics F1, F2, F5).

        Raises:
            InvalidConfigError: the pending checkpoint does not expect the stage.
            NoCheckpointError: every retained checkpoint is damaged.
            UnavailableError: the store did not answer, so what has to run again is not known; nothing has changed.
        """
        return self._heads.update(lambda head, now_ms: self._decide(report, token, head, now_ms))[1]

    def _decide(self, report: FailureReport, token: str, head: Head, now_ms: int) -> Decision[FailAnswer]:
        settled = settle.settle(self._files, head, now_ms)
        place = completed_epochs.where_is(self._files, settled, report.epoch)
        if not isinstance(place, EpochPending):
            return Decision(_not_pending(place, report), changed(head, settled))
        document = self._documents.of(place.entry)
        execution = execution_of(document, report.stage)
        if execution.token != token:
            still = restarted_stages.waiting(self._files, document)
            return Decision(FailedOver(document, created=False, restarted=still))
        carried = carry_over.carry(
            self._files, document, document.stages, restart=report.stage, again=report.again, missing=report.missing
        )
        if report.stage in carried.acknowledged:
            return Decision(NothingToDo(f"{report.stage} had acknowledged before it ended; nothing is lost"))
        declined = acks.why_declined(self._files, report.stage, execution)
        why = declined[1] if declined else report.detail
        failing = _Failing(settled, now_ms, place.entry, document, carried, report, why)
        verdict = self._verdict(failing)
        if failing.may_leave_out and (report.final or isinstance(verdict, Exhausted)):
            given_up = give_up.give_up(self._files, settled, place.entry, document, report.stage, why)
            return _failed(failing, verdict, token) if given_up is None else Decision(given_up, changed(head, settled))
        if isinstance(verdict, Exhausted):
            return _failed(failing, verdict, token)
        return self._open_next(failing, verdict)

    def _verdict(self, failing: _Failing) -> Restart | Exhausted:
        """Say what the failed try leads to; one that a person has asked for is no restart that counts (F4, F5)."""
        report, entry = failing.report, failing.entry
        if report.anew or report.again:
            return Restart(entry.restarts if report.again else 0, memory=failing.head.restart_memory)
        return next_attempt.after_failure(
            self._files,
            failing.head,
            entry,
            failing.document,
            report.stage,
            failing.now_ms,
            # Where stages may be left out, each speaks for itself alone: its region is left out, not another's.
            declined=frozenset() if failing.may_leave_out else failing.others,
            curable=report.curable,
            server=report.server,
        )

    def _open_next(self, failing: _Failing, verdict: Restart) -> Decision[FailAnswer]:
        head, now_ms, entry, document = failing.head, failing.now_ms, failing.entry, failing.document
        done = len(failing.carried.acknowledged)
        others = cancellation.described(cancellation.causes(self._files, document.executions, failing.others))
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
            # Version 0.1 opened an attempt without asking whether another run had read its window.
            subsumed = transitions.subsume(head, entry, error.message, now_ms, acks=done)
            return Decision(failed(next(subsumed.ended_of_epoch(entry.epoch))), subsumed)
        restarted = restarted_stages.of(opened.pending)
        return Decision(FailedOver(opened.pending, True, opened.damages, restarted), opened.head)


def _no_attempt(report: FailureReport) -> NothingToDo:
    follows = "a clear of its task opens one" if report.final or not report.curable else "the next try opens one"
    return NothingToDo(f"no attempt of the epoch is pending; {follows}")


def _not_pending(place: EpochCompleted | EpochEnded | EpochUnknown, report: FailureReport) -> FailAnswer:
    if isinstance(place, EpochCompleted):
        return place
    if isinstance(place, EpochEnded):
        newest = place.newest
        if newest.for_good or newest.reason is Reason.CHECKPOINT_SUBSUMED:
            return failed(newest)
    return _no_attempt(report)


def _failed(failing: _Failing, verdict: Restart | Exhausted, token: str) -> Decision[FailAnswer]:
    """End the attempt because of a failed task; that is no failure of checkpoints (D5).

    The driver of the execution is dead: no later attempt takes it over.
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
