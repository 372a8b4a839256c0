"""Tells how a stage's execution ended once its application has ended: by the head, not by an exit status."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ...checkpoint.documents import layout
from ...checkpoint.documents.acknowledgement import AckDocument, DeclineDocument
from ...checkpoint.documents.attempt import Handover, run_of_slice
from ...checkpoint.documents.head import run_of_head
from ...checkpoint.errors import CheckpointError, FencedError
from ...checkpoint.reasons import Reason
from ...checkpoint.store import acks
from ...spark.execution.failure_kinds import names_store
from ...storage.errors import CairnError, DocumentError, ErrorKind, GoneError
from ...storage.records import dataclass

if TYPE_CHECKING:
    from ...checkpoint import Coordinator


class StageFailedError(CheckpointError):
    """A stage's application ended without acknowledging; the message holds the application's reason, if any (D1)."""

    kind = ErrorKind.CONFLICT


class StageNotRetryableError(StageFailedError):
    """The stage failed with an error that another try would repeat: the application is wrong, or missing (F4)."""

    kind = ErrorKind.INVALID


@dataclass(frozen=True, slots=True)
class StageRun:
    """One execution of a stage, as the operator submitted it."""

    coordinator: Coordinator
    handover: Handover

    @property
    def title(self) -> str:
        """The execution's name in log lines, after the word Checkpoint."""
        it = self.handover
        run = run_of_slice(it.epoch, it.slice)
        return f"{it.checkpoint} · epoch {run} · attempt {it.attempt} · stage {it.stage}"

    def taken_over(self) -> bool:
        """Return whether another try waits for this execution's driver; False if that is not known."""
        it = self.handover
        if not it.durable:
            return False
        try:
            standing, _ = self.coordinator.files.read(Handover, layout.handover(it.checkpoint, it.stage, it.token))
        except CairnError:
            return False
        return standing.adopted and standing.claimant != it.claimant

    def acknowledged(self) -> bool:
        """Return whether this execution has acknowledged, as far as the store still tells."""
        at = self.handover
        return self._judged(acks.has_acknowledged(self.coordinator.files, at.stage, at.execution))[0]

    def _marker(self) -> tuple[bool, AckDocument | None]:
        """Return whether the execution's marker is there, and its content if that can be read."""
        at = self.handover
        try:
            return True, acks.read_ack(self.coordinator.files, at.stage, at.execution, at.epoch)
        except GoneError:
            return False, None
        except DocumentError:
            return True, None  # completing finds it broken, too, and ends the attempt

    def _judged(self, acknowledged: bool) -> tuple[bool, bool]:
        """Return whether the execution has acknowledged, and whether it counts.

        Args:
            acknowledged: whether its acknowledgement was there before this call: cleaning deletes it once the head says
                that the checkpoint has completed.
        """
        standing = self.coordinator.standing(self.handover)
        if standing.completed is not None:
            counts = self.coordinator.completed_with(self.handover)
            return counts, counts
        return acknowledged, standing.current or (
            standing.awaited and standing.ended is not None and standing.ended.paused
        )

    def declined(self) -> DeclineDocument | None:
        """Return the application's own decline; None if it wrote none, for example because it was killed."""
        return acks.read_decline(self.coordinator.files, self.handover.stage, self.handover.execution)

    def decline(self, detail: str) -> None:
        """Decline for a program that knows nothing of Cairn.

        Args:
            detail: why the program has not done its work.
        """
        at = self.handover
        self.coordinator.decline(
            DeclineDocument(
                job=at.job,
                checkpoint=at.checkpoint,
                epoch=at.epoch,
                stage=at.stage,
                token=at.token,
                reason=Reason.CHECKPOINT_DECLINED,
                detail=detail,
            )
        )

    def failure(
        self,
        returncode: int | None,
        report: str = "",
        missing: str | None = None,
        *,
        cause: str = "",
        program: str = "spark-submit",
        server: str = "",
    ) -> StageFailedError:
        """Return the error that says why the application failed, as far as known.

        Args:
            returncode: the exit status of the program; None if it was not started.
            report: the provider's report. If spark-submit itself ended well in cluster mode, the report says how the
                application ended on the cluster.
            missing: message that the application's file is missing, if that is known.
            cause: the line of its output that says why it failed, if there is one.
            program: the program that ran the application.
            server: nonce of the job's Spark server, if that server is gone.
        """
        prefix, declined = failed_prefix(self.handover.stage), self.declined()
        if declined is not None:
            return self._error(
                prefix + declined.detail, incurable=declined.incurable, server=server, of_store=declined.of_store
            )
        if missing is not None:
            return self._error(prefix + missing, incurable=True)
        return self._error(
            prefix + _ending(program, returncode, report, cause), server=server, of_store=names_store(cause)
        )

    def refused(self, why: str, *, incurable: bool, server: str = "") -> StageFailedError:
        """Return the error for an application that did not run.

        Args:
            why: the program's reason.
            incurable: whether another try would only repeat the error (semantics F4).
            server: nonce of the job's Spark server, if that is the cause.
        """
        return self._error(failed_prefix(self.handover.stage) + why, incurable=incurable, server=server)

    def check_acknowledged(self, *, vanished: bool = False, judged: bool = False) -> AckDocument | None:
        """Check, after an application that ended well, that its epoch has the stage's acknowledgement.

        Args:
            vanished: the driver's pod was gone before anybody saw its end.
            judged: the driver has looked at the head after it acknowledged, a moment ago, and would have failed. An
                attempt that has come since has seen the claim, and has the task cleared even if it has succeeded (F5).

        Returns:
            The acknowledgement, so that completing need not read it again; None where that has to.

        Raises:
            StageFailedError: the application did not acknowledge: it declined or never opened an epoch.
            FencedError: another attempt has replaced this execution, or the attempt has ended (semantics A2, F3).
        """
        acknowledged, ack = self._marker()
        if acknowledged and judged:
            return ack
        declined = None if acknowledged else self.declined()  # beside an acknowledgement a decline changes nothing
        if declined is not None:
            said = f"stage {self.handover.stage} declined: {declined.detail}"
            raise self._error(said, incurable=declined.incurable, of_store=declined.of_store)
        acknowledged, counts = self._judged(acknowledged)
        if not counts:
            raise FencedError(
                "this execution was replaced while it ran; what it wrote is discarded, and the next try runs it anew",
                job=self.handover.job,
                checkpoint=self.handover.checkpoint,
                stage=self.handover.stage,
            )
        if not acknowledged and vanished:
            raise self.refused(VANISHED, incurable=False)
        if not acknowledged:
            raise self._error(
                "the application ended without opening an epoch: add `with Epoch.current() as epoch:` around its work, "
                "and let the block end without an error; or let application_args name its places: Output('clean')"
            )
        return ack

    def _error(
        self, message: str, *, incurable: bool = False, server: str = "", of_store: bool = False
    ) -> StageFailedError:
        it = self.handover
        kind = StageNotRetryableError if incurable else StageFailedError
        more = {name: value for name, value in (("server", server), ("of_store", of_store)) if value}
        return kind(message, job=it.job, checkpoint=it.checkpoint, attempt=it.attempt, **more)


def left_out(coordinator: Coordinator, epoch: str, stage: str) -> str | None:
    """Return a message if the epoch has completed without a stage; None if it has not (semantics B3, F6)."""
    head = coordinator.head()
    checkpoint = head.completions().get(epoch)
    if checkpoint is None or stage not in head.left_out_of(checkpoint):
        return None
    return (
        f"checkpoint {checkpoint} has completed epoch {run_of_head(head, epoch)} without stage {stage}. Its input is "
        "kept, and the stage reads it in the next epoch, before that one's own"
    )


def failed_prefix(stage: str) -> str:
    """Return the text before the cause in a `StageFailedError`."""
    return f"stage {stage} failed: "


def _ending(program: str, returncode: int | None, report: str, cause: str) -> str:
    if returncode is None:
        return f"{program} did not run to its end and gave no reason"
    # A shell reports a signal as 128 + its number, Python as a negative one.
    killed_by = -returncode if returncode < 0 else returncode - 128
    if returncode < 0 or 128 < returncode < 160:
        return f"{program} was killed by signal {killed_by} and gave no reason{_of_signal(killed_by)}"
    reported = _OF_CONTAINER.search(report)
    more = _of_signal(int(reported[1] or 137) - 128) if reported else ""
    if returncode == 0 and report:
        return f"{report.splitlines()[0]}; the cluster's own log of the application holds more{more}"
    if cause:
        return f"{program} ended with status {returncode}: {cause}{more}"
    return f"{program} ended with status {returncode} and gave no reason; the task's log holds its output{more}"


_OF_CONTAINER = re.compile(r"exit[ _]?code(?: is)?[:=]? *(1[2-5]\d)\b|\bOOMKilled\b", re.IGNORECASE)
"""Details of a driver's container on Kubernetes or YARN that the provider repeats."""

_CRASHED = (
    "native code has crashed, or the JVM was told to end when its heap is full: a file hs_err_pid*.log, in the folder "
    "where the driver ran, says which"
)
NO_MEMORY = (
    "mostly its machine or container had no memory left; `dmesg` there, or `kubectl describe pod` (OOMKilled), says "
    "so. Give it more memory or the driver less (driver_memory), or let fewer tasks run there at once"
)
"""Why a process is killed by signal 9, and where a user sees it."""

_SIGNALS = {
    6: _CRASHED,
    9: NO_MEMORY,
    11: _CRASHED,
    15: "it was told to end: by a person who marked or cleared the task, by a timeout, or because its machine or pod "
    "was shut down. Airflow's audit log and the task's log say which",
}
"""Usual causes of a signal, and where a user sees them."""


def _of_signal(number: int) -> str:
    said = _SIGNALS.get(number)
    return f". Signal {number}: {said}" if said else ""


VANISHED = "its driver's pod was deleted before its end was seen, so whether it ended well is not known"

NO_CURE = "a retry does not help: change what the error names, then clear the task"
