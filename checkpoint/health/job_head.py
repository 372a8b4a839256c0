"""What is wrong with a job's head, with what it says, and with the record beside it."""

from __future__ import annotations

from collections.abc import Iterator

from ...storage.errors import CairnError, ErrorKind, NewerFormatError
from ..coordinator import Coordinator
from ..documents.head import MAX_NOTICES, Head
from ..documents.layout import run_id_of
from ..documents.run_window import run_of_head
from ..errors import HeadLostError
from ..runtime import Runtime
from ..views.servers import servers
from ..views.wording import duration, how_stopped
from .findings import Finding, error, warning

NOTICES = MAX_NOTICES // 2
"""So many notices wait only where a listener fails and nobody has looked."""
EXPIRED_MS = 600_000
"""A checkpoint whose timeout ran out so long ago is looked at by no task any more."""


def broken_head(storage: str, job: str, problem: CairnError) -> Finding:
    """Give the finding of a job whose head cannot be used."""
    if problem.kind is ErrorKind.INVALID:
        text = "the root holds a folder that is no job's"
        why = "Cairn leaves it alone, and every command lists it as a damaged job"
        return warning("foreign-files", job, text, why, f"Move `{storage}/{job}/` out of the storage")
    why = f"no checkpoint of {job} can be made or restored"
    if isinstance(problem, NewerFormatError):
        mend = "Upgrade this Cairn: `pip install --upgrade airflow-cairn` (docs/upgrades.md)"
        return error("head-newer", job, problem.message, why, mend)
    restore = f"Put `{storage}/{job}/head.json` back from a bucket version or a backup (docs/operations.md, Backup)"
    name = "head-missing" if isinstance(problem, HeadLostError) else "head-damaged"
    return error(name, job, str(problem), why, restore)


def head_is_outdated(storage: str, coordinator: Coordinator) -> Iterator[Finding]:
    """Find checkpoints that a newer head than this one has completed."""
    later = coordinator.completed_later()
    if later:
        runs = ", ".join(run_id_of(epoch) if epoch else f"checkpoint {number}" for number, epoch in later.items())
        yield error(
            "head-outdated",
            coordinator.job,
            f"checkpoints are there that this head.json never handed out: {', '.join(map(str, later))}",
            "head.json was restored from an older backup: these epochs do not count, and run again",
            f"Put the newest version of `{storage}/{coordinator.job}/head.json` back; if there is none, clear the runs "
            f"{runs}",
        )


def stuck(storage: str, coordinator: Coordinator, runtime: Runtime) -> Iterator[Finding]:
    """Find what the head says that keeps the next checkpoint from being made."""
    yield from coordinator.observe(lambda head: list(_stuck(storage, coordinator, head, runtime)))


def _stuck(storage: str, coordinator: Coordinator, head: Head, runtime: Runtime) -> Iterator[Finding]:
    job = head.job
    if head.stopped is not None:
        paused = head.stopped == "paused"
        yield warning(
            "job-stopped",
            job,
            f"the job is {how_stopped(head.stopped)}",
            "no checkpoint is triggered until it is resumed",
            "Unpause its DAG: `airflow dags unpause DAG_ID`" if paused else f"cairn resume {job} --storage {storage}",
        )
    for entry in head.pending:
        subject = f"checkpoint {entry.id} of {job}"
        overdue_ms = runtime.now_ms() - entry.expires_at_ms
        if coordinator.pending_document(entry) is None:
            yield error(
                "pending-damaged",
                subject,
                "the document that says what the checkpoint expects is gone or broken",
                "its epoch can neither complete nor fail over, and the next one waits for its place",
                f"`cairn verify {job} --storage {storage}`, then clear the run {run_of_head(head, entry.epoch)}",
            )
        elif overdue_ms > EXPIRED_MS:
            yield error(
                "pending-expired",
                subject,
                f"its timeout ran out {duration(overdue_ms)} ago, and it is still pending",
                "no task of its run looks at it any more, so the job stands still",
                f"Clear the run {run_of_head(head, entry.epoch)} in Airflow: `airflow tasks clear DAG_ID --dag-run-id "
                f"'{run_id_of(entry.epoch)}'`",
            )
    waiting = head.notices_waiting()
    if waiting >= NOTICES:
        names = sorted({name for notice in head.notices for name in notice.listeners})
        yield (error if waiting >= MAX_NOTICES else warning)(
            "listener-stuck",
            job,
            f"{waiting} notices wait for the listeners {', '.join(names)}",
            f"with {MAX_NOTICES} no checkpoint is triggered any more",
            f"Mend the listener; if it no longer exists: `cairn forget-listener {job} {names[0]} --yes --storage "
            f"{storage}`",
        )


def too_old(storage: str, coordinator: Coordinator, runtime: Runtime, max_age_ms: int) -> Iterator[Finding]:
    """Find a job whose latest completed checkpoint is older than a limit, or that has none."""
    latest = coordinator.head().latest_completed()
    age_ms = runtime.now_ms() - latest.completed_at_ms if latest else None
    if age_ms is None or age_ms > max_age_ms:
        job = coordinator.job
        had = "no checkpoint has completed" if latest is None else f"checkpoint {latest.id} completed last"
        yield error(
            "checkpoint-old",
            job,
            f"{had}, {duration(age_ms)} ago" if latest else had,
            f"one was to complete every {duration(max_age_ms)}: what has come in since is not in any checkpoint",
            f"`cairn checkpoints {job} --storage {storage}` says what is pending and what failed",
        )


def servers_record(storage: str, coordinator: Coordinator, runtime: Runtime) -> Iterator[Finding]:
    """Find a record of Spark servers that cannot be read."""
    try:
        servers(coordinator, runtime.now_ms())
    except CairnError as problem:
        yield error(
            "servers-damaged",
            coordinator.job,
            str(problem),
            "stages that share a Spark server find none and cannot start one",
            f"End the servers of this job, then delete `{storage}/{coordinator.job}/servers.json`",
        )
