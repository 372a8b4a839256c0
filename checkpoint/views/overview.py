"""Overview of a job: pending checkpoints, their waits, the latest outcomes, alarms, and its servers (O1, O2, V1)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict

from ...storage.errors import CairnError, ErrorKind, GoneError
from ...storage.records import dataclass
from ..coordinator import Coordinator
from ..documents.entries import JobOwner, PendingEntry, RestoreRecord, SavepointEntry
from ..documents.head import Head
from ..documents.layout import run_id_of
from ..documents.mirrors import MirrorOf, Moved
from ..documents.read_windows import ReadWindow, WindowText
from ..documents.server_record import ANYWHERE, KEY, ServerEntry, ServersDocument
from ..documents.staged_tables import PREFIX
from ..documents.strict_json import Json
from ..errors import NoCheckpointError
from ..reasons import Status
from ..remedies import forget_listener
from ..rules import mirrors
from ..rules.mirrors import Lag
from ..rules.restored_state import backfill_of
from . import wording
from .checkpoint_list import CheckpointRow, Listing, listing, window_json
from .details import CheckpointDetails, StageRow, details, savepoint_json
from .next_step import NOTHING, failure_text, remedy_of
from .stats import JobStats, stats
from .table_changes import NEXT

PENDING = 5
"""Pending checkpoints whose stages are described."""

NAMED = 3
"""Stages that one alarm names."""

OWED_MS = 5 * 60_000
"""An owed commit that is younger raises no alarm: a task may be making it."""


@dataclass(frozen=True, slots=True)
class PendingCheckpoint:
    """A pending checkpoint."""

    found: CheckpointDetails
    expires_at_ms: int
    restart_at_ms: int = 0
    """Time at which the restart strategy wants the next try to begin (semantics F4); 0: at once."""

    @property
    def waits_for(self) -> tuple[StageRow, ...]:
        """The stages that have still to acknowledge."""
        return tuple(stage for stage in self.found.stages if not stage.acknowledged)


@dataclass(frozen=True, slots=True)
class Alarm:
    """An alarm or note for a person."""

    level: str
    """`error`: the job needs a person to go on. `warning`: something failed, or soon will. `note`: all is well."""
    text: str
    way_out: str = ""
    """Remedy; empty: no action is needed."""
    run_id: str | None = None
    """The DAG run that the text is about; None: no single one."""
    stages: tuple[str, ...] = ()
    """The stages of that run that the text is about."""
    at_ms: int | None = None
    """The time that the text names, in UTC; None: it names none."""
    checkpoint: int | None = None
    """The ended checkpoint that the text is about; None: there is none."""


@dataclass(frozen=True, slots=True)
class OwedCommits:
    """Completed checkpoints that a table, or another listener, has not been told of."""

    listener: str
    checkpoint: int
    """The oldest of them."""
    completed_at_ms: int | None
    """Time at which the oldest completed; None: it is no longer retained."""
    number: int
    """Number of commits."""


@dataclass(frozen=True, slots=True)
class Overview:
    """A job at a glance."""

    job: str
    revision: int
    """Revision of the head; 0: the job has never run."""
    owner: JobOwner | None
    stats: JobStats
    listing: Listing
    pending: tuple[PendingCheckpoint, ...]
    """Newest first; at most `PENDING`."""
    latest_savepoint: SavepointEntry | None
    failed: CheckpointDetails | None = None
    """The newest checkpoint, if it has failed and still counts."""
    gaps: tuple[ReadWindow, ...] = ()
    """Gaps between the windows that the newest completed checkpoint has read, oldest first (semantics T8)."""
    mirrors: tuple[Lag, ...] = ()
    """Lag of each mirror of the job (semantics M4)."""
    elsewhere: MirrorOf | Moved | None = None
    """Place that the job has moved to, or of which it is a mirror."""
    again: tuple[str, ...] = ()
    """Epochs that an activated mirror lacked, and that have still to run again (semantics M6)."""
    owed: tuple[OwedCommits, ...] = ()
    """Sorted by the listener's name (semantics C4)."""

    @property
    def latest_completed(self) -> CheckpointRow | None:
        """The newest checkpoint that counts."""
        rows = (row for row in self.listing.checkpoints if row.status is Status.COMPLETED and row.rewound_to is None)
        return next(rows, None)

    @property
    def latest_failed(self) -> CheckpointRow | None:
        """The newest failed checkpoint."""
        return next((row for row in self.listing.checkpoints if row.failed and row.rewound_to is None), None)

    @property
    def latest_restore(self) -> RestoreRecord | None:
        """The newest restore."""
        return self.stats.restores[-1] if self.stats.restores else None

    def as_json(self, *, storage: str, now_ms: int) -> dict[str, Json]:
        """Give the view as plain JSON values.

        Args:
            storage: the job's, for the commands to type.
            now_ms: the time, milliseconds since 1970 UTC.
        """
        completed, failed = self.latest_completed, self.latest_failed
        return {
            "job": self.job,
            "owner": asdict(self.owner) if self.owner else None,
            "stats": asdict(self.stats),
            "pending": [
                {**each.found.as_json(storage=storage), "expires_at_ms": each.expires_at_ms} for each in self.pending
            ],
            "latest_completed": completed.as_json() if completed else None,
            "latest_failed": failed.as_json() if failed else None,
            "latest_savepoint": savepoint_json(self.latest_savepoint) if self.latest_savepoint else None,
            "latest_restore": asdict(self.latest_restore) if self.latest_restore else None,
            "alarms": [asdict(each) for each in alarms(self, storage, now_ms)],
        }


def overview(coordinator: Coordinator) -> Overview:
    """Give the overview of a job, at the cost of its list and a few more reads if checkpoints are pending."""
    head = coordinator.head()
    newest = sorted(head.pending, key=lambda entry: entry.id, reverse=True)[:PENDING]
    found = listing(coordinator)
    last = _last(found)
    return Overview(
        head.job,
        head.revision,
        head.owner,
        stats(head),
        found,
        tuple(each for entry in newest for each in _pending(coordinator, entry)),
        max(head.savepoints, key=lambda entry: entry.id, default=None),
        next(_details(coordinator, last.id), None) if last is not None and last.failed else None,
        newest_completed.read.gaps if (newest_completed := head.latest_completed()) else (),
        mirrors.lags(head),
        head.moved or head.mirror_of,
        mirrors.to_run_again(head),
        tuple(_owed(head)),
    )


def alarms(found: Overview, storage: str, now_ms: int) -> tuple[Alarm, ...]:
    """List alarms and notes for a person, the most urgent first.

    Args:
        found: the job.
        storage: of the job, for the commands to type.
        now_ms: the time, milliseconds since 1970 UTC.
    """
    said = [
        *_of_job(found, storage),
        *_of_mirrors(found, storage, now_ms),
        *_of_failed(found, storage),
        *_of_gaps(found),
        *_of_owed(found, storage, now_ms),
    ]
    said += [alarm for each in found.pending for alarm in _of_pending(each, now_ms)]
    return tuple(sorted(said, key=lambda alarm: ("error", "warning", "note").index(alarm.level)))


def _pending(coordinator: Coordinator, entry: PendingEntry) -> Iterator[PendingCheckpoint]:
    for found in _details(coordinator, entry.id):
        yield PendingCheckpoint(found, entry.expires_at_ms, entry.restart_at_ms)


def _details(coordinator: Coordinator, checkpoint: int) -> Iterator[CheckpointDetails]:
    try:
        yield details(coordinator, checkpoint)
    except NoCheckpointError:
        return  # it has ended, and the history has forgotten it, since the head was read


def _last(found: Listing) -> CheckpointRow | None:
    """Return the newest checkpoint that still counts."""
    return next((each for each in found.checkpoints if each.rewound_to is None), None)


def _of_job(found: Overview, storage: str) -> Iterator[Alarm]:
    resume = f"To let it go on, type `cairn resume {found.job} --storage {storage}`."
    if found.stats.stopped:
        way_out = "Unpause the DAG." if found.stats.stopped == "paused" else resume
        yield Alarm("warning", f"The job is {wording.how_stopped(found.stats.stopped)}.", way_out)
    if found.listing.stopping is not None:
        number = found.listing.stopping.id
        yield Alarm("note", f"The job is being stopped with savepoint {number}; no other run begins.")
    if found.stats.waiting and found.stats.stopped == "paused":
        goes = "1 run goes" if found.stats.waiting == 1 else f"{found.stats.waiting:,} runs go"
        yield Alarm("note", f"{goes} on when the DAG is no longer paused.")
    elif found.stats.waiting:
        waits = "1 request waits" if found.stats.waiting == 1 else f"{found.stats.waiting:,} requests wait"
        yield Alarm("note", f"{waits} for a free place.")


def _of_mirrors(found: Overview, storage: str, now_ms: int) -> Iterator[Alarm]:
    """Say how far the mirrors are, and where the job goes on (semantics M4 to M6)."""
    for each in found.mirrors:
        age = "no pass to it has ended"
        if each.completed_at_ms is not None:
            age = f"its newest, {each.checkpoint}, completed {wording.duration(now_ms - each.completed_at_ms)} ago"
        late = each.is_late(now_ms)
        mend = f"To see why, type `cairn mirror {found.job} --to {each.uri} --storage {storage}`." if late else ""
        text = f"The mirror in {each.uri} lacks {each.behind} completed checkpoints; {age}."
        yield Alarm("warning" if late else "note", text, mend)
    of = found.elsewhere
    if isinstance(of, Moved):
        moved = f"The job has moved to {of.uri}: no run begins here."
        yield Alarm("warning", moved, "Let its DAG run with that storage.")
    elif of is not None and not of.activated_at_ms:
        activate = f"To let the job go on here, type `cairn activate {found.job} --storage {storage}`."
        yield Alarm("note", f"This is a mirror of the job in {of.uri}: no run begins here.", activate)
    elif of is not None and found.again:
        runs = wording.some([run_id_of(epoch) for epoch in found.again], NAMED)
        yield Alarm("note", f"When this mirror of {of.uri} was activated, it lacked {runs}: run them again.")


def _of_failed(found: Overview, storage: str) -> Iterator[Alarm]:
    """Report the last failure, unless its epoch goes on or has completed."""
    row = _last(found.listing)
    if row is not None and row.paused and not row.goes_on and not found.stats.stopped:
        since = "and the job was stopped or restored then, so its run does not go on by itself"
        text = f"A pause has ended checkpoint {row.id}, {since}."
        yield Alarm("warning", text, remedy_of(row, found.job, storage), row.run_id, checkpoint=row.id)
    if row is None or not row.failed or row.reason is None:
        return
    remedy = remedy_of(row, found.job, storage)
    level = "note" if remedy.startswith(NOTHING) else "error"
    stages = tuple(sorted(found.failed.failed_stages)) if found.failed is not None else ()
    why = failure_text(row).rstrip(".")
    if len(stages) == 1:
        why = why.removeprefix(f"{stages[0]}: ")
    in_stages = f" in {wording.some([f'`{stage}`' for stage in stages], NAMED)}" if stages else ""
    text = f"Checkpoint {row.id} failed{in_stages}: {why}."
    yield Alarm(level, text, remedy, row.run_id, stages[:NAMED], checkpoint=row.id)


def _of_gaps(found: Overview) -> Iterator[Alarm]:
    """Report windows of time that no run has read, the newest with the command that reads it (semantics T8)."""
    if not found.gaps:
        return
    older = {1: "", 2: " and an older gap"}.get(len(found.gaps), f" and {len(found.gaps) - 1} older gaps")
    text = f"No run has read {found.gaps[-1].short} UTC{older}."
    dag_id = found.owner.dag_id if found.owner else found.job
    yield Alarm("warning", text, f"To read it, type `{backfill_of(found.gaps[-1], dag_id)}`.")


def _owed(head: Head) -> Iterator[OwedCommits]:
    waiting: dict[str, list[int]] = {}
    for notice in head.undelivered_completions():
        for name in notice.listeners:
            waiting.setdefault(name, []).append(notice.checkpoint)
    for name, checkpoints in sorted(waiting.items()):
        entry = head.completed_by_id(min(checkpoints))
        yield OwedCommits(name, min(checkpoints), entry.completed_at_ms if entry else None, len(checkpoints))


def _of_owed(found: Overview, storage: str, now_ms: int) -> Iterator[Alarm]:
    """Report commits that no task has made for minutes (semantics C4)."""
    for each in found.owed:
        age_ms = None if each.completed_at_ms is None else now_ms - each.completed_at_ms
        if age_ms is not None and age_ms < OWED_MS:
            continue
        of = f"The table `{each.listener.removeprefix(PREFIX)}` lacks"
        if not each.listener.startswith(PREFIX):
            of = f"The listener `{each.listener}` was not told of"
        ago = "" if age_ms is None else f", which completed {wording.duration(age_ms)} ago"
        more = "" if each.number == 1 else f" The same holds for {each.number - 1:,} later ones."
        command = forget_listener(found.job, each.listener, each.checkpoint, storage)
        yield Alarm(
            "warning",
            f"{of} checkpoint {each.checkpoint}{ago}.{more}",
            f"{NEXT} To give it up, type `{command}`.",
            checkpoint=each.checkpoint,
        )


def _of_pending(each: PendingCheckpoint, now_ms: int) -> Iterator[Alarm]:
    row = each.found.row
    for stage in each.found.stages:
        about = (row.run_id, (stage.stage,))
        if stage.declined:
            yield Alarm("warning", f"Checkpoint {row.id}: `{stage.stage}` declined: {stage.declined}", "", *about)
        if stage.problem:
            text = f"Checkpoint {row.id}: the acknowledgement of `{stage.stage}` is broken: {stage.problem}"
            yield Alarm("error", text, "", *about)
    waits = tuple(stage.stage for stage in each.waits_for if not stage.declined and not stage.problem)
    if not waits:
        return
    shown = wording.some([f"`{stage}`" for stage in waits], NAMED)
    left_ms = each.expires_at_ms - now_ms
    since = wording.duration(max(0, now_ms - row.triggered_at_ms))
    done = f"{row.acks} of {row.stages} stages have acknowledged"
    text = f"Checkpoint {row.id} waits for {shown} ({done}); it was triggered {since} ago."
    if each.found.cause:
        text += f" The attempt before it ended: {each.found.cause.rstrip('.')}."
    if row.restarts:
        text += f" Its epoch has had {wording.restart(row.restarts, row.restarts_left)}."
    elif row.attempt > 1:  # Airflow's own retries: no strategy counts them
        text += f" This is attempt {row.attempt} of its epoch."
    next_at_ms = each.restart_at_ms if each.restart_at_ms > now_ms else None
    if next_at_ms is not None:
        text += f" The next try begins at {wording.moment(next_at_ms)} (in {wording.duration(next_at_ms - now_ms)})."
    if left_ms < (each.expires_at_ms - row.triggered_at_ms) // 10:
        ends = f"It fails in {wording.duration(left_ms)}" if left_ms > 0 else "Its timeout has run out"
        way_out = "Raise `CheckpointConfig(timeout=…)`, or look why the stage is slow."
        yield Alarm("warning", f"{text} {ends}.", way_out, row.run_id, waits[:NAMED], next_at_ms)
    else:
        yield Alarm("note", text, "", row.run_id, waits[:NAMED], next_at_ms)


GONE = "gone"
"""State of a server that has not renewed its lease in time: it died, or does not reach the store."""

_MACHINE = 8
"""Characters of a machine's hash: enough to tell a few apart."""


@dataclass(frozen=True, slots=True)
class ServerRow:
    """One server of one job."""

    job: str
    server: str
    """The server's nonce, which names it in the tasks' logs."""
    state: str
    """`starting`, `up`, `ending` or `gone`."""
    run_id: str | None
    """The DAG run that it is for; None: all of the job's."""
    machine: str | None
    """Hash of the machine on whose loopback it listens; None: it listens for all machines."""
    host: str | None
    """Name or address by which other machines reach it; None: none does, or it is not up yet."""
    port: int | None
    started_at_ms: int
    lease_until_ms: int
    input: WindowText | None
    """The DAG run's window; None where it reads none, or the job's head cannot be read."""

    def as_json(self) -> dict[str, Json]:
        """Give the row as plain JSON values."""
        return {**asdict(self), "input": window_json(self.input)}

    @property
    def where(self) -> str:
        """Address of the server, for people; empty where that is not known yet."""
        if self.port is None:
            return ""
        at = self.host if self.machine is None else f"loopback of {self.machine[:_MACHINE]}"
        return f"{at}:{self.port}"


def servers(coordinator: Coordinator, now_ms: int) -> list[ServerRow]:
    """List a job's servers, oldest first."""
    try:
        record, _ = coordinator.files.read(ServersDocument, KEY)
    except GoneError:
        return []
    # The record has the servers in the order in which they last renewed their leases.
    oldest_first = sorted(record.servers, key=lambda each: (each.started_ms, each.nonce))
    head = _head(coordinator) if any(each.use is not None for each in oldest_first) else None
    return [_row(record.job, each, head, now_ms) for each in oldest_first]


def _head(coordinator: Coordinator) -> Head | None:
    """Give the job's head; None where it is broken, which other views report."""
    try:
        return coordinator.head()
    except CairnError as error:
        if error.kind is not ErrorKind.DATA:
            raise
        return None


def _row(job: str, entry: ServerEntry, head: Head | None, now_ms: int) -> ServerRow:
    return ServerRow(
        job=job,
        server=entry.nonce,
        state=entry.state if now_ms < entry.lease_until_ms else GONE,
        run_id=run_id_of(entry.use) if entry.use is not None else None,
        machine=entry.machine if entry.machine != ANYWHERE else None,
        host=entry.host,
        port=entry.port or None,
        started_at_ms=entry.started_ms,
        lease_until_ms=entry.lease_until_ms,
        input=head.window_of(entry.use) if head is not None and entry.use is not None else None,
    )
