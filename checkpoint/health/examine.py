"""Runs every check of a storage and of its jobs; earlier findings explain later ones.

The check of one job for a page writes nothing, and masks texts that look like secrets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

from ...storage.clock import Runtime
from ...storage.errors import CairnError, ErrorKind
from ...storage.facts import facts_of
from ...storage.port import ObjectStore
from ...storage.records import dataclass
from ..answers import FilesProgress
from ..coordinator import Coordinator
from ..documents.head import MAX_NOTICES, Head, run_of_head
from ..documents.layout import run_id_of
from ..documents.strict_json import Json
from ..errors import NoCheckpointError
from ..reasons import Status
from ..rules import mirrors
from ..store.head_store import heads_of
from ..views.overview import servers
from ..views.wording import duration, how_stopped, size
from . import store_reach
from .findings import Examination, Finding, Severity, error, warning


def examine_storage(
    store: ObjectStore,
    runtime: Runtime,
    job: str | None = None,
    *,
    write: bool = True,
    deep: bool = False,
    max_age_ms: int | None = None,
    before_jobs: bool = False,
    on_progress: Callable[[FilesProgress], None] = lambda _: None,
) -> Examination:
    """Make every check of a storage.

    Args:
        store: the storage.
        runtime: clock and ids.
        job: the only one to look at; None: all.
        write: also try the rights and the conditional writes, below `_cairn/`; that is deleted again.
        deep: read every file of the retained checkpoints.
        max_age_ms: how old each job's latest completed checkpoint may be; None: any age.
        before_jobs: a missing folder counts as not made yet instead of as lost.
        on_progress: called with each file of a job that has been checked.

    Raises:
        NoCheckpointError: the storage has no such job.
    """
    done = Examination()
    if before_jobs and job is None and store_reach.comes_with_a_job(store):
        done.skipped["storage"] = f"there is no folder {store.uri} yet: the first job makes it"
        return done
    reached = examine_reach(store, runtime, write=write)
    done.add(reached)
    if "storage" not in reached.passed:
        return done
    done.run("bucket rules", lambda: _rules(store, done))
    found: dict[str, Head | CairnError] = {}
    if not done.run("jobs", lambda: _heads(store, found)):
        return done
    if job is not None and job not in found:
        known = ", ".join(found) or "none"
        raise NoCheckpointError("the storage has no such job", job=job, storage=store.uri, jobs=known)
    for name, head in found.items():
        if job in (None, name):
            _examine_job(done, store, runtime, name, head, deep=deep, on_progress=on_progress)
            if max_age_ms is not None and isinstance(head, Head):
                coordinator = Coordinator(store, name, runtime)
                age = partial(too_old, store.uri, coordinator, runtime, max_age_ms)
                done.run(f"{name}: age", age)
    return done


def examine_reach(store: ObjectStore, runtime: Runtime, *, write: bool = True) -> Examination:
    """Check what this process may do in a storage, by which clock, and whether conditional writes hold.

    Args:
        store: the storage.
        runtime: clock and ids.
        write: also try the rights and the conditional writes, below `_cairn/`; that is deleted again.
    """
    done = Examination()
    if not done.run("storage", lambda: store_reach.reach(store)):
        return done
    done.run("clock", lambda: store_reach.clock(store, runtime))
    if not write:
        done.skipped |= dict.fromkeys(("rights", "conditional writes"), "nothing was to be written")
    elif done.run("rights", lambda: store_reach.rights(store, runtime)):
        done.run("conditional writes", lambda: store_reach.conditional_writes(store, runtime))
    else:
        done.skipped["conditional writes"] = "it needs the rights that are missing"
    return done


def _heads(store: ObjectStore, found: dict[str, Head | CairnError]) -> Iterator[Finding]:
    found.update(heads_of(store))
    return iter(())


def _rules(store: ObjectStore, done: Examination) -> Iterator[Finding]:
    rules = store.bucket_rules()
    if rules is not None:
        done.skipped |= rules.unknown
        yield from store_reach.endangered(rules, facts_of(store.uri))


def _examine_job(
    done: Examination,
    store: ObjectStore,
    runtime: Runtime,
    job: str,
    head: Head | CairnError,
    *,
    deep: bool,
    on_progress: Callable[[FilesProgress], None],
) -> None:
    if not isinstance(head, Head):
        done.run(f"{job}: head", lambda: iter([broken_head(store.uri, job, head)]))
        return
    coordinator = Coordinator(store, job, runtime)
    where, others = store.uri, len(done.findings)
    done.run(f"{job}: head", lambda: stuck(where, coordinator, runtime))
    done.run(f"{job}: backups", lambda: head_is_outdated(where, coordinator))
    done.run(f"{job}: files", lambda: damages(where, coordinator, deep=deep, on_progress=on_progress))
    done.run(f"{job}: lists", lambda: lists(where, coordinator, deep=deep))
    if any(each.name == "pending-damaged" for each in done.findings[others:]):
        done.skipped[f"{job}: leftovers"] = "what a pending checkpoint needs is not known"
    else:
        done.run(f"{job}: leftovers", lambda: leftovers(where, coordinator, runtime))
    done.run(f"{job}: servers", lambda: servers_record(where, coordinator, runtime))


@dataclass(frozen=True, slots=True)
class ExaminedJob:
    """Findings of an examination, and its time."""

    at_ms: int
    found: Examination

    @property
    def errors(self) -> int:
        """Number of findings that are errors."""
        return sum(each.severity is Severity.ERROR for each in self.found.findings)

    def as_json(self) -> dict[str, Json]:
        """Give the examination as plain JSON values."""
        return {**self.found.as_json(), "at_ms": self.at_ms}


def examine_job(store: ObjectStore, job: str, runtime: Runtime) -> ExaminedJob:
    """Make every check of a job and of its storage that writes nothing.

    Raises:
        NoCheckpointError: the storage has no such job; the text names no other.
    """
    try:
        found = examine_storage(store, runtime, job, write=False)
    except NoCheckpointError as error:
        raise NoCheckpointError("the job has no checkpoint yet, so there is nothing to examine", job=job) from error
    return ExaminedJob(runtime.now_ms(), replace(found.masked(), hints=[]))


# A job's head, the files that it names, and the record of servers beside it.


NOTICES = MAX_NOTICES // 2
"""Number of waiting notices that shows a failing listener that no person has noticed."""
EXPIRED_MS = 600_000
"""Time after a checkpoint's timeout from which on no task looks at the checkpoint any more."""


def broken_head(storage: str, job: str, problem: CairnError) -> Finding:
    """Give the finding of a job whose head cannot be used."""
    if problem.kind is ErrorKind.INVALID:
        text = "the root holds a folder that is not a job's"
        why = "Cairn leaves it alone, and every command lists it as a damaged job"
        return warning("foreign-files", job, text, why, f"Move `{storage}/{job}/` out of the storage")
    why = f"no checkpoint of {job} can be made or restored"
    if problem.code == "newer_format":
        mend = "Upgrade this Cairn: `pip install --upgrade airflow-cairn` (docs/upgrades.md)"
        return error("head-newer", job, problem.message, why, mend)
    restore = f"Put `{storage}/{job}/head.json` back from a bucket version or a backup (docs/operations.md, Backup)"
    name = "head-missing" if problem.code == "head_lost" else "head-damaged"
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
    """Find facts in the head that keep the next checkpoint from being made."""
    yield from coordinator.observe(lambda head: list(_stuck(storage, coordinator, head, runtime)))
    yield from _mirrors_behind(storage, coordinator.head(), runtime.now_ms())


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
                f"Clear the run {run_of_head(head, entry.epoch)} in Airflow's grid, or from Airflow 3.3 on by "
                f"`airflow dags clear DAG_ID --run-id '{run_id_of(entry.epoch)}'`",
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


def _mirrors_behind(storage: str, head: Head, now_ms: int) -> Iterator[Finding]:
    """Find mirrors that have lacked a completed checkpoint for long (semantics M4)."""
    job = head.job
    for entry, each in zip(head.mirrors, mirrors.lags(head), strict=True):
        first = each.checkpoint is None and any(hold.until_ms > now_ms for hold in entry.holds)
        if each.behind_since_ms is not None and each.is_late(now_ms) and not first:
            yield warning(
                "mirror-behind",
                job,
                f"the mirror in {each.uri} has lacked {each.behind} checkpoints for "
                f"{duration(now_ms - each.behind_since_ms)}",
                "the job would go on there from an older checkpoint",
                f"`cairn mirror {job} --to {each.uri} --storage {storage}` copies what it lacks, or says why it cannot",
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


# Comparison of the head with the files: damaged files that it names, and files that it does not name.


NAMED = 3
"""Keys that one finding names."""
CLEANS_MS = 60_000
"""Longest time of the cleaning after a completion; files that it leaves after that are a finding."""


def damages(
    storage: str, coordinator: Coordinator, *, deep: bool, on_progress: Callable[[FilesProgress], None]
) -> Iterator[Finding]:
    """Compare every retained checkpoint with its files, and report each checked file."""
    found = coordinator.verify(deep=deep, on_progress=on_progress)
    whole = next((each.checkpoint for each in found if each.whole), None)
    for each in found:
        if each.whole:
            continue
        restores = f"the next restore takes checkpoint {whole}" if whole else "no retained checkpoint is whole"
        yield error(
            "checkpoint-damaged",
            f"checkpoint {each.checkpoint} of {coordinator.job}",
            _named([f"{damage.key}: {damage.problem}" for damage in each.damages]),
            f"it cannot be restored: {restores}, and what came later is read again",
            f"Put the files back from a bucket version or a backup, then `cairn verify {coordinator.job} "
            f"{each.checkpoint} --storage {storage}`",
        )


def lists(storage: str, coordinator: Coordinator, *, deep: bool) -> Iterator[Finding]:
    """Check the lists of epochs that completed long ago."""
    for key, problem in coordinator.verify_lists(deep=deep).items():
        yield error(
            "epoch-list-damaged",
            coordinator.job,
            f"{key}: {problem}",
            "whether an old run has completed is not known, so it is refused",
            f"Put `{storage}/{coordinator.job}/{key}` back from a bucket version or a backup",
        )


def leftovers(storage: str, coordinator: Coordinator, runtime: Runtime) -> Iterator[Finding]:
    """Find unreferenced files.

    While a checkpoint is pending, or after a failed one, such files are normal: the next completed checkpoint deletes
    them. They are also normal just after a completion, because the cleaning follows it.
    """
    found = coordinator.leftovers()
    cleaned = _is_cleaned(coordinator.head(), runtime.now_ms())
    job = coordinator.job
    clean = f"cairn clean {job} --storage {storage}"
    if found.dead and cleaned:
        bytes_ = sum(each.size_bytes for each in found.dead)
        yield warning(
            "orphans",
            job,
            f"{len(found.dead)} files of {size(bytes_)} belong to no checkpoint: "
            + _named([each.key for each in found.dead]),
            "the last completed checkpoint should have deleted them: the cleaning failed, and the storage grows",
            clean,
        )
    if found.uploads and cleaned:
        oldest_ms = runtime.now_ms() - min(each.initiated_ms for each in found.uploads)
        yield warning(
            "uploads-pending",
            job,
            f"{len(found.uploads)} uploads of dead drivers were never ended, the oldest from {duration(oldest_ms)} ago",
            "their parts are paid for, and no listing shows them",
            clean,
        )
    if found.foreign:
        yield warning(
            "foreign-files",
            job,
            f"another program has written among the checkpoints: {_named(found.foreign)}",
            "Cairn leaves them alone, but deleting the job's folder deletes them too",
            f"Move them away: `aws s3 mv` or `mv` out of `{storage}/{job}/`",
        )


def _is_cleaned(head: Head, now_ms: int) -> bool:
    """Tell whether the last event was a completion whose cleaning has had its time."""
    last = max(head.history, key=lambda entry: entry.id, default=None)
    if head.pending or last is None or last.status is not Status.COMPLETED:
        return False
    return now_ms - last.ended_at_ms >= CLEANS_MS


def _named(items: list[str] | tuple[str, ...]) -> str:
    more = f", and {len(items) - NAMED} more" if len(items) > NAMED else ""
    return "; ".join(items[:NAMED]) + more
