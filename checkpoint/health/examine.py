"""Runs every check of a storage and of its jobs; earlier findings explain later ones.

The check of one job for a page writes nothing, and masks texts that look like secrets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

from ...storage.clock import Runtime
from ...storage.errors import CairnError
from ...storage.facts import facts_of
from ...storage.port import ObjectStore
from ...storage.records import dataclass
from ..answers import FilesProgress
from ..coordinator import Coordinator
from ..documents.head import Head
from ..documents.strict_json import Json
from ..errors import NoCheckpointError
from ..store.head_store import heads_of
from . import job_head, store_reach
from .findings import Examination, Finding, Severity


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
        before_jobs: a folder that is not there yet is none that was lost: the first job makes it.
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
                age = partial(job_head.too_old, store.uri, coordinator, runtime, max_age_ms)
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
        done.run(f"{job}: head", lambda: iter([job_head.broken_head(store.uri, job, head)]))
        return
    coordinator = Coordinator(store, job, runtime)
    where, others = store.uri, len(done.findings)
    done.run(f"{job}: head", lambda: job_head.stuck(where, coordinator, runtime))
    done.run(f"{job}: backups", lambda: job_head.head_is_outdated(where, coordinator))
    done.run(f"{job}: files", lambda: job_head.damages(where, coordinator, deep=deep, on_progress=on_progress))
    done.run(f"{job}: lists", lambda: job_head.lists(where, coordinator, deep=deep))
    if any(each.name == "pending-damaged" for each in done.findings[others:]):
        done.skipped[f"{job}: leftovers"] = "what a pending checkpoint needs is not known"
    else:
        done.run(f"{job}: leftovers", lambda: job_head.leftovers(where, coordinator, runtime))
    done.run(f"{job}: servers", lambda: job_head.servers_record(where, coordinator, runtime))


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
