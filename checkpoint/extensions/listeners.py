"""Notifies listeners of the end of checkpoints, completed or aborted, at least once (semantics C4, D4).

The swap that ends a checkpoint leaves a notice in the same version of the head. The next task calls the listener, and
then removes the notice by another swap. If the task dies in between, the next one calls the listener again, and two
tasks at once may both call it. So a listener must be idempotent by checkpoint id.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from functools import partial

from ...storage.errors import GoneError
from ...storage.records import dataclass
from ..acts.failover import Failover, FailureReport
from ..acts.use_case import UseCase
from ..answers import FailedOver
from ..documents.entries import Notice
from ..documents.head import Head, check_no_mirror
from ..errors import CallbackError, DocumentError
from ..masking import one_line
from ..reasons import Status
from ..remedies import forget_listener
from ..rules import history
from ..store.head_store import Decision, changed
from ..store.job_files import JobFiles
from .committables import CheckpointNotice, staged_so_far, told_of
from .contracts import DEFAULT_TIMEOUT, CheckpointListener, CommitCheck, check_listeners
from .master_hooks import call

log = logging.getLogger("airflow_cairn")


@dataclass(frozen=True, slots=True)
class _Failure:
    notice: Notice
    error: Exception
    unreadable: bool = False
    """Whether the committables cannot be read, so that the listener was not called."""


class Notices(UseCase):
    """The notices of one job."""

    def deliver(self, listeners: Sequence[CheckpointListener]) -> int:
        """Deliver each listener its waiting notices, in the order of checkpoint ids; give the number of calls.

        After a failed call, a listener gets no later notice before the failed one; other listeners go on. If no notice
        waits, this costs one read of the head. Each call of a listener costs one swap, and the reads of committables:
        the metadata, if there are any, or after an abort the documents of two attempts and a marker for each stage.

        Args:
            listeners: those that this process can call; notices for others wait.

        Raises:
            InvalidConfigError: two listeners have the same name.
            CallbackError: a listener failed, or its committables cannot be read; all others were notified. The first
                failure is its cause.
            CheckpointError: this is a mirror that nobody has activated: the job delivers (semantics M5).
        """
        known = {listener.name: listener for listener in check_listeners(listeners)}
        calls = 0
        failures: dict[str, _Failure] = {}
        head = self._heads.load()
        check_no_mirror(head, self._files.store.uri)
        while (due := _next(head, known.keys() - failures.keys())) is not None:
            notice, name = due
            try:
                told = told_of(self._files, self._documents, head, notice)
            except (GoneError, DocumentError) as error:
                failures[name] = _Failure(notice, error, unreadable=True)
                continue
            try:
                _call(known[name], told)
            except Exception as error:  # noqa: BLE001 - foreign code: whatever it raises keeps its notice
                failures[name] = _Failure(notice, error)
                continue
            calls += 1
            head = self._told(notice.checkpoint, name)
        for name, failure in failures.items():
            raise CallbackError(
                f"{_advice(self._files, failure, name)}: {one_line(repr(failure.error))}",
                code="listener",
                job=self._files.job,
                listener=name,
                checkpoint=failure.notice.checkpoint,
                status=failure.notice.status.value,
                failed=", ".join(sorted(failures)),
            ) from failure.error
        return calls

    def run_again(self, epoch: str, checks: Sequence[CommitCheck]) -> tuple[str, ...]:
        """Have the stages run again whose changes the listeners could not commit, before the checkpoint completes.

        All stages have acknowledged. Like a stage that a user clears (F5), such a stage gets a new execution in the
        epoch's next attempt, with its region and the stages after it. A listener that cannot tell within a minute, as
        its catalog does not answer, holds nothing up: the commit finds out the same later.

        Args:
            epoch: the epoch's name.
            checks: the listeners to ask.

        Returns:
            The stages that run again, by this call. None where another process has completed the checkpoint since, or
            has opened an attempt.
        """
        entry = self._heads.load().pending_of_epoch(epoch)
        document = self._documents.readable(entry)
        if document is None:
            return ()
        staged = staged_so_far(self._files, document)
        again: dict[str, str] = {}
        for each in checks:
            try:
                again.update(call(each.name, "runs_again", DEFAULT_TIMEOUT, partial(each.runs_again, staged)))
            except Exception as error:  # noqa: BLE001 - foreign code, and only a look
                log.warning("Whether %s could commit is not known: %s", each.name, one_line(repr(error)))
        failover = Failover(self._job)
        done = []
        for stage, why in sorted(again.items()):
            report = FailureReport(epoch, stage, why, again=True)
            try:
                answer = failover.fail_over(report, document.executions[stage].token)
            except CallbackError as error:  # so many notices wait that no attempt is opened
                log.warning("Whether %s could commit is not known: %s", stage, error)
                break
            if isinstance(answer, FailedOver) and answer.created:
                done.append(stage)
        return tuple(done)

    def forget(self, name: str, checkpoint: int | None = None) -> int:
        """Give up notices of one listener, and return their number.

        Args:
            name: the listener.
            checkpoint: give up only this checkpoint's notice, because its committables are lost; None: all notices,
                because the listener no longer exists. Pending checkpoints will still leave their notices.
        """

        def decide(head: Head, _now_ms: int) -> Decision[int]:
            own = (notice.checkpoint for notice in head.notices if name in notice.listeners)
            waiting = [each for each in own if checkpoint in (None, each)]
            after = head
            for each in waiting:
                after = history.note_delivered(after, each, name)
            return Decision(len(waiting), changed(head, after))

        return self._heads.update(decide)[1]

    def _told(self, checkpoint: int, name: str) -> Head:
        def decide(head: Head, _now_ms: int) -> Decision[None]:
            after = history.note_delivered(head, checkpoint, name)
            return Decision(None, changed(head, after))

        return self._heads.update(decide)[0]


def _advice(files: JobFiles, failure: _Failure, name: str) -> str:
    if failure.unreadable:
        at = failure.notice.checkpoint
        return (
            f"what was staged for checkpoint {at} cannot be read; its notice is kept. Put the file back, or commit by "
            f"hand and give the notice up: {forget_listener(files.job, name, at, files.store.uri)}"
        )
    return (
        "the listener failed; its notice is kept and the next task tells it again. Mend the listener, the "
        "checkpoint itself has ended"
    )


def _next(head: Head, names: Collection[str]) -> tuple[Notice, str] | None:
    """Give the oldest notice for one of the named listeners, with that listener's name."""
    return next(((each, name) for each in head.notices for name in each.listeners if name in names), None)


def _call(listener: CheckpointListener, notice: CheckpointNotice) -> None:
    if notice.status is Status.COMPLETED:
        listener.notify_checkpoint_complete(notice)
    else:
        listener.notify_checkpoint_aborted(notice)
