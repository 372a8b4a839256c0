"""Savepoints and runs in progress, as operations with an id that any API server process can poll.

Airflow knows a requested run, and the head knows a savepoint, so no process holds state that could be lost. The rest of
a savepoint's work is to copy files. The process in which a user confirmed does that at once, on a thread of its own. If
it dies half-way, or the savepoint first waits for an epoch or for listeners, the task that ends an epoch and notifies
them continues (`sensors`), or a process in which a user asks for it. Several may do so at the same time, because all
write the same bytes under the same names. Polling an operation changes nothing.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable
from threading import BoundedSemaphore, Lock, Thread

from ...checkpoint import Coordinator
from ...checkpoint.documents.entries import InterventionKind, SavepointEntry
from ...checkpoint.documents.layout import run_id_of
from ...checkpoint.documents.strict_json import Json
from ...checkpoint.errors import NoSavepointError
from ...checkpoint.masking import masked
from ...checkpoint.reasons import Status
from ...checkpoint.views.checkpoint_list import CheckpointRow
from ...checkpoint.views.details import savepoint_json
from ...hooks.task_refs import ENDED_RUN
from ...storage.errors import CairnError, printable
from ...storage.port import ObjectStore
from ...storage.records import dataclass
from ...tasks import metrics
from ..interventions.acts import REQUEST
from ..interventions.plan import RunKind
from .declared_jobs import DeclaredJob

log = logging.getLogger("airflow_cairn")

AT_ONCE = 2
"""Number of savepoints whose files one process copies at the same time; others wait."""

KEPT = 256
"""Number of operations of which a process remembers its own part."""


@dataclass(frozen=True, slots=True)
class Operation:
    """A savepoint that a user requested on a page."""

    id: str
    entry: SavepointEntry
    waits_for: str | None
    """The object of its wait; None if only copying is left, or it has ended."""
    problem: str | None = None
    """Why it does not continue by itself, as far as this process knows; None: nothing is wrong."""

    @property
    def kind(self) -> InterventionKind:
        return InterventionKind.STOP if self.entry.stops else InterventionKind.SAVEPOINT

    @property
    def waits_for_last_run(self) -> bool:
        """Whether the savepoint waits for the job's last run, which Airflow may not have made yet."""
        return self.entry.drains and self.entry.waits

    @property
    def ready(self) -> bool:
        """Whether its files can be copied now."""
        return not self.entry.ended and self.waits_for is None

    def as_json(self) -> dict[str, Json]:
        entry, failed = self.entry, self.entry.status is Status.FAILED
        return {
            "operation": self.id,
            "kind": self.kind,
            "actor": entry.actor,
            "last_run": run_id_of(entry.epoch) if entry.drains else None,
            "status": "COMPLETED" if entry.ended else "IN_PROGRESS",
            "location": entry.uri if entry.status is Status.COMPLETED else None,
            "failure": {"reason": entry.reason, "detail": entry.detail} if failed else None,
            "waits_for": self.waits_for,
            "problem": self.problem,
            "savepoint": savepoint_json(entry),
        }


@dataclass(frozen=True, slots=True)
class RunOperation:
    """A DAG run that a user requested on a page, and its checkpoint."""

    id: str
    run_id: str
    state: str | None
    """Airflow's state of the run; None if Airflow has no such run."""
    row: CheckpointRow | None
    """The newest attempt of its epoch, as far as the job remembers it."""

    def as_json(self) -> dict[str, Json]:
        completed = self.row is not None and self.row.status is Status.COMPLETED
        over = completed or self.state in ENDED_RUN
        reason, detail = (self.row.reason, self.row.detail) if self.row is not None else (None, None)
        why: dict[str, Json] = {"reason": reason, "detail": detail or f"the DAG run has ended: {self.state}"}
        return {
            "operation": self.id,
            "kind": RunKind.CHECKPOINT,
            "status": "COMPLETED" if over else "IN_PROGRESS",
            "run_id": self.run_id,
            "run_state": self.state,
            "checkpoint": self.row.id if self.row is not None and completed else None,
            "failure": why if over and not completed else None,
        }


def look(coordinator: Coordinator, operation: str) -> Operation:
    """Return an operation from a job's head.

    Raises:
        NoSavepointError: the job does not remember it.
    """
    entry = coordinator.head().savepoint_by_request(f"{REQUEST}{operation}")
    if entry is None:
        raise NoSavepointError(
            "the job remembers no such operation; its savepoint may have been disposed of",
            job=coordinator.job,
            operation=operation,
        )
    held = entry.waits or coordinator.held_by_listeners(entry)
    return Operation(operation, entry, coordinator.awaited_by(entry) if held else None)


@dataclass(slots=True)
class _Copy:
    """The work of one process for one savepoint."""

    running: bool = False
    problem: str | None = None


class Copies:
    """Copies the files of savepoints, on daemon threads that no request waits for."""

    def __init__(self, open_store: Callable[[str, str | None], ObjectStore]) -> None:
        self._open_store = open_store
        self._lock = Lock()
        self._places = BoundedSemaphore(AT_ONCE)
        self._copies: OrderedDict[tuple[tuple[str, str | None, str], str], _Copy] = OrderedDict()

    def go_on(self, job: DeclaredJob, operation: str) -> Thread | None:
        """Copy the remaining files, unless this process does so already; returns the thread, None if none started."""
        with self._lock:
            copy = self._copies.setdefault((job.key, operation), _Copy())
            self._copies.move_to_end((job.key, operation))
            if len(self._copies) > KEPT:
                self._copies.popitem(last=False)
            if copy.running:
                return None
            copy.running = True
        thread = Thread(target=self._run, args=(job, operation, copy), name="cairn-savepoint", daemon=True)
        thread.start()
        return thread

    def problem(self, job: DeclaredJob, operation: str) -> str | None:
        """Return why this process could not continue an operation; None if it had no error."""
        with self._lock:
            copy = self._copies.get((job.key, operation))
        return None if copy is None else copy.problem

    def _run(self, job: DeclaredJob, operation: str, copy: _Copy) -> None:
        storage, aws_conn_id, name = job.key
        problem = None
        try:
            with self._places:
                coordinator = Coordinator(self._open_store(storage, aws_conn_id), name, after_swap=metrics.report)
                coordinator.go_on_with_savepoint(
                    f"{REQUEST}{operation}", job.savepoint_target, lambda uri: self._open_store(uri, aws_conn_id)
                )
        except CairnError as error:
            problem = printable(masked(str(error)))
        except Exception:
            log.exception("The savepoint %s of job %s could not be copied", operation, name)
            problem = "This is a defect of Cairn. The API server's log has the cause."
        finally:
            with self._lock:
                copy.running, copy.problem = False, problem
