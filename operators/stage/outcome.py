"""What became of a stage's execution once its application has ended: decided by the head, not by an exit status."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ...checkpoint.documents import layout
from ...checkpoint.documents.acknowledgement import DeclineDocument
from ...checkpoint.documents.attempt import Handover
from ...checkpoint.documents.run_window import run_of_head, run_of_slice
from ...checkpoint.errors import CheckpointError, FencedError
from ...checkpoint.store import acks
from ...storage.errors import CairnError, ErrorKind

if TYPE_CHECKING:
    from ...checkpoint import Coordinator


class StageFailedError(CheckpointError):
    """A stage's application ended without acknowledging; the text carries its own reason if it gave one (D1)."""

    kind = ErrorKind.CONFLICT


class StageIncurableError(StageFailedError):
    """The stage failed with an error that another try would only repeat: its application is wrong, or missing (F4)."""

    kind = ErrorKind.INVALID


@dataclass(frozen=True, slots=True)
class StageRun:
    """One execution of a stage, as the operator submitted it."""

    coordinator: Coordinator
    handover: Handover

    @property
    def title(self) -> str:
        """Name it in a log line."""
        it = self.handover
        run = run_of_slice(it.epoch, it.slice)
        return f"checkpoint {it.checkpoint} · epoch {run} · attempt {it.attempt} · stage {it.stage}"

    def taken_over(self) -> bool:
        """Tell whether another try waits for this execution's driver; one that cannot be asked about is this try's."""
        it = self.handover
        if not it.durable:
            return False
        try:
            standing, _ = self.coordinator.files.read(Handover, layout.handover(it.checkpoint, it.stage, it.token))
        except CairnError:
            return False
        return standing.adopted and standing.claimant != it.claimant

    def declined(self) -> DeclineDocument | None:
        """Give what the application said when it failed; None if it said nothing (it was killed, say)."""
        return acks.read_decline(self.coordinator.files, self.handover.stage, self.handover.execution)

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
        """Say why the application failed, as far as it is known.

        Args:
            returncode: the exit status of the program; None if it was not started.
            report: what the provider says about it; where spark-submit itself ended well, in cluster mode, it tells
                what became of the application on the cluster.
            missing: the application's file, if it is known not to be there.
            cause: the line of its output that says why it failed, if one does.
            program: what ran the application.
            server: nonce of the job's Spark server, if that is gone.
        """
        prefix, declined = failed_prefix(self.handover.stage), self.declined()
        if declined is not None:
            return self._error(prefix + declined.detail, incurable=declined.incurable, server=server)
        if missing is not None:
            said = f"{prefix}the application {missing} does not exist on this worker"
            if not Path(missing).is_absolute():
                whole = f"application=str(Path(__file__).parent / {missing!r})"
                said += f": it was looked for in {Path.cwd()}. For a file beside the DAG file write {whole}"
            return self._error(said, incurable=True)
        return self._error(prefix + _ending(program, returncode, report, cause), server=server)

    def refused(self, why: str, *, incurable: bool, server: str = "") -> StageFailedError:
        """Say why no application ran.

        Args:
            why: what the program says.
            incurable: whether another try would only repeat it (semantics F4).
            server: nonce of the job's Spark server, if that is the reason.
        """
        return self._error(failed_prefix(self.handover.stage) + why, incurable=incurable, server=server)

    def check_acknowledged(self) -> None:
        """Make sure, after an application that ended well, that its epoch has the stage's acknowledgement.

        Raises:
            StageFailedError: it did not acknowledge, because it declined or never opened an epoch.
            FencedError: another attempt has replaced this execution, or the attempt has ended (semantics A2, F3).
        """
        declined = self.declined()
        if declined is not None:
            said = f"stage {self.handover.stage} declined: {declined.detail}"
            raise self._error(said, incurable=declined.incurable)
        # First: once the checkpoint is complete, which the head says, the marker goes with the next cleaning.
        acknowledged = acks.has_acknowledged(self.coordinator.files, self.handover.stage, self.handover.execution)
        standing = self.coordinator.standing(self.handover)
        if standing.completed is not None:
            counts = acknowledged = self.coordinator.completed_with(self.handover)
        else:
            counts = standing.current or (standing.awaited and standing.ended is not None and standing.ended.paused)
        if not counts:
            raise FencedError(
                "this execution was replaced while it ran; what it wrote is discarded, and the next try runs it anew",
                job=self.handover.job,
                checkpoint=self.handover.checkpoint,
                stage=self.handover.stage,
            )
        if not acknowledged:
            raise self._error(
                "the application ended without opening an epoch: add `with Epoch.current() as epoch:` around its work, "
                "and let the block end without an error"
            )

    def _error(self, message: str, *, incurable: bool = False, server: str = "") -> StageFailedError:
        it = self.handover
        kind = StageIncurableError if incurable else StageFailedError
        lost = {"server": server} if server else {}
        return kind(message, job=it.job, checkpoint=it.checkpoint, attempt=it.attempt, **lost)


def left_out(coordinator: Coordinator, epoch: str, stage: str) -> str | None:
    """Say that the epoch has completed without a stage; None if it has not (semantics B3, F6)."""
    head = coordinator.head()
    checkpoint = head.completions().get(epoch)
    if checkpoint is None or stage not in head.left_out_of(checkpoint):
        return None
    return (
        f"checkpoint {checkpoint} has completed epoch {run_of_head(head, epoch)} without stage {stage}. Its input is "
        "kept, and the stage reads it in the next epoch, before that one's own"
    )


def failed_prefix(stage: str) -> str:
    """Give what stands before the cause in a `StageFailedError`."""
    return f"stage {stage} failed: "


def _ending(program: str, returncode: int | None, report: str, cause: str) -> str:
    if returncode is None:
        return f"{program} did not run to its end and gave no reason"
    if returncode == 0 and report:
        return f"{report.splitlines()[0]}; the cluster's own log of the application holds more"
    # A shell reports a signal as 128 + its number, Python as a negative one.
    signal = -returncode if returncode < 0 else returncode - 128
    if returncode < 0 or 128 < returncode < 160:
        return f"{program} was killed by signal {signal} and gave no reason"
    if cause:
        return f"{program} ended with status {returncode}: {cause}"
    return f"{program} ended with status {returncode} and gave no reason; the task's log holds its output"
