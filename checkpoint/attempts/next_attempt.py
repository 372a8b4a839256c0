"""What a failed try leads to, as the head and the stage's decline have it: a restart, or the end of the epoch (F4).

Asked in the swap that ends the attempt, and again in the one that resumes what another process had ended before the
failed try was reported. So each failed try counts once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from ...storage.errors import DocumentError
from ..decisions import history
from ..documents.acknowledgement import DeclineDocument
from ..documents.attempt import Execution, PendingDocument
from ..documents.entries import EndedEntry, PendingEntry
from ..documents.head import Head
from ..documents.text import one_line
from ..failures import restarts
from ..failures.restarts import Exhausted, Restart
from ..reasons import DECLINES
from ..store import acks
from ..store.job_files import JobFiles
from .cancellation import BARRIER

NO_CURE = "no retry cures this"


def after_failure(
    files: JobFiles,
    head: Head,
    entry: PendingEntry,
    document: PendingDocument,
    stage: str,
    now_ms: int,
    *,
    declined: Collection[str] = (),
    curable: bool = True,
    server: str = "",
) -> Restart | Exhausted:
    """Say what a failed try of a stage leads to.

    Args:
        files: the job's files.
        head: the version decided on.
        entry: the attempt in which it failed.
        document: what that expects.
        stage: the stage's uid.
        now_ms: the time, milliseconds since 1970 UTC.
        declined: other stages that have declined in it: one that no retry cures is not tried again.
        curable: False: the task that reports it knows that another try would fail alike.
        server: nonce of the job's Spark server, where the try failed because that is gone.

    Raises:
        UnavailableError: the store did not answer.
    """
    own = _decline(files, stage, document.executions[stage]) if curable else None
    if not curable or (own is not None and own.incurable):
        return Exhausted(NO_CURE)
    others = incurable(files, document, declined)
    if others:
        return Exhausted(f"no retry cures what {others[0]} declined for")
    return restarts.weigh(
        document.limits.restart,
        head.restart_memory,
        entry.restarts,
        now_ms,
        job=head.job,
        epoch=entry.epoch,
        restart_at_ms=entry.restart_at_ms,
        began_ms=_began_ms(head, document.executions[stage]),
        # Of a task that was killed only the decline says it.
        server=server or (own.server if own is not None else ""),
    )


def after_ended(
    files: JobFiles, head: Head, ended: EndedEntry, document: PendingDocument, now_ms: int
) -> Restart | Exhausted:
    """Say what an attempt leads to that ended before a failed try was reported.

    One that ended because a stage declined counts, for declining is how a driver fails; so does one with which the job
    failed of too many failed checkpoints (D5). Any other leaves the count as it is. It starts anew after a final
    failure.
    """
    if ended.for_good:
        return Restart(0, memory=head.restart_memory)
    if ended.reason not in DECLINES and not ended.job_failed:
        return Restart(ended.restarts, memory=head.restart_memory)
    declined = acks.marked(files, document.executions, "declines") if document.limits.restart else ()
    return restarts.weigh(
        document.limits.restart,
        head.restart_memory,
        ended.restarts,
        now_ms,
        job=head.job,
        epoch=ended.epoch,
        restart_at_ms=ended.restart_at_ms,
        began_ms=_latest_ms(head, [document.executions[uid] for uid in declined]),
        server=_lost_server(files, document, declined),
    )


def _lost_server(files: JobFiles, document: PendingDocument, declined: Iterable[str]) -> str:
    """Give the nonce of the Spark server whose end all of some stages have declined for (V4); else nothing."""
    declines = [_decline(files, uid, document.executions[uid]) for uid in declined]
    # Stages that read from such a one decline with it.
    own = (each for each in declines if each is None or each.reason is not BARRIER)
    servers = {each.server if each is not None else "" for each in own}
    return servers.pop() if len(servers) == 1 else ""


def _began_ms(head: Head, execution: Execution) -> int | None:
    """Give when the attempt was opened in which an execution began; None where the head has forgotten it."""
    home = head.pending_by_id(execution.home) or head.ended_by_id(execution.home)
    return home.triggered_at_ms if home is not None else None


def _latest_ms(head: Head, executions: Sequence[Execution]) -> int | None:
    """Give the same for the one of some executions that began last."""
    known = [_began_ms(head, execution) for execution in executions]
    return max((each for each in known if each is not None), default=None) if None not in known else None


def fail_permanently(head: Head, ended: EndedEntry, why: str) -> Head:
    """Note of an attempt that has ended that only a person can let another one follow."""
    failed = replace(ended, job_failed=True, for_good=True, detail=one_line(f"{why}: {ended.detail}"))
    return replace(history.with_ended(head, failed), restart_memory=None)


def incurable(files: JobFiles, document: PendingDocument, stages: Iterable[str]) -> list[str]:
    """Give those of some stages that have declined and say that no retry cures it: a read for each of them.

    Raises:
        UnavailableError: the store did not answer.
    """
    return [uid for uid in sorted(stages) if _says_so(files, uid, document.executions[uid])]


def _says_so(files: JobFiles, stage: str, execution: Execution) -> bool:
    declined = _decline(files, stage, execution)
    return declined is not None and declined.incurable


def _decline(files: JobFiles, stage: str, execution: Execution) -> DeclineDocument | None:
    try:
        return acks.read_decline(files, stage, execution)
    except DocumentError:
        return None  # what it says cannot be read; another try may be the cure
