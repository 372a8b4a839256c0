"""Rules of a server that Cairn runs: start, lease and end, as pure functions of its record (semantics V1).

Each change recognises its own earlier effect by the server's nonce, so that it may be repeated after a lost answer.
"""

from __future__ import annotations

from dataclasses import replace

from ...storage.records import dataclass
from ..documents.entries import Stopped
from ..documents.head import Head
from ..documents.server_record import MAX_SERVERS, ServerEntry, ServersDocument, ServerState

LEASE_MS = 60_000
"""Time after which an entry that was not renewed no longer counts."""
RENEW_MS = 20_000
"""Interval of renewals; a lost one does no harm."""


@dataclass(frozen=True, slots=True)
class StartIt:
    """The caller has to start the server of this entry; no other stage gets this answer for it."""

    entry: ServerEntry


@dataclass(frozen=True, slots=True)
class TakeIt:
    """The server of this entry is up; the caller uses it."""

    entry: ServerEntry


@dataclass(frozen=True, slots=True)
class WaitForIt:
    """Another stage is starting the server of this entry."""

    entry: ServerEntry


ClaimAnswer = StartIt | TakeIt | WaitForIt


def claim(
    record: ServersDocument, *, use: str | None, machine: str, nonce: str, now_ms: int, gone: str = ""
) -> tuple[ClaimAnswer, ServersDocument]:
    """Tell a stage to start a server, to take one, or to wait.

    Args:
        record: as it was read.
        use: the epoch that the server is for; None: the job.
        machine: the stage's machine; `ANYWHERE` for a server that all machines reach.
        nonce: a fresh one, for the server that the caller may have to start.
        now_ms: the time, milliseconds since 1970 UTC.
        gone: nonce of a server that the caller found gone: it did not answer on this machine, or not to its token.

    Returns:
        The answer, and the record after it; the same record where nothing changes.
    """
    found = record.serving(use, machine)
    if found is not None and found.nonce == nonce:
        return StartIt(found), record
    if found is not None and found.nonce != gone and now_ms < found.lease_until_ms:
        return (TakeIt if found.state is ServerState.UP else WaitForIt)(found), record
    entry = ServerEntry(nonce, machine, ServerState.STARTING, now_ms, now_ms + LEASE_MS, use)
    over = [each.nonce for each in record.servers if each is found or each.lease_until_ms <= now_ms]
    room = record.without(*over)
    return StartIt(entry), replace(room, servers=(*room.servers[-MAX_SERVERS + 1 :], entry))


def renew(record: ServersDocument, nonce: str, now_ms: int) -> ServersDocument:
    """Renew the lease of a server that still counts; called by the server, or by the stage that starts it."""
    found = record.find(nonce)
    return record if found is None else record.with_entry(replace(found, lease_until_ms=now_ms + LEASE_MS))


def come_up(record: ServersDocument, nonce: str, port: int, now_ms: int, host: str | None = None) -> ServersDocument:
    """Enter the address of a server that has started, if it still counts."""
    found = record.find(nonce)
    if found is None:
        return record
    lease = max(found.lease_until_ms, now_ms + LEASE_MS)
    return record.with_entry(replace(found, state=ServerState.UP, port=port, host=host, lease_until_ms=lease))


def retire(record: ServersDocument, nonce: str) -> ServersDocument:
    """Mark a server as ending, so that no more stages take it."""
    found = record.find(nonce)
    return record if found is None else record.with_entry(replace(found, state=ServerState.ENDING))


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a server's life; times in milliseconds."""

    idle_ms: int
    max_age_ms: int
    max_sessions: int
    max_memory_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Activity:
    """Activity of a server so far."""

    open_sessions: int
    sessions: int
    """Number of all sessions, closed ones included."""
    quiet_ms: int
    """Time since the last session was closed; 0 while one is open."""
    age_ms: int
    memory_bytes: int


def why_end(entry: ServerEntry | None, head: Head | None, activity: Activity, limits: Limits) -> str | None:
    """Say why a server takes no more stages (semantics V1); None if it goes on. It ends when no session is open.

    Args:
        entry: the server's own; None if the record no longer has it.
        head: of the server's job; None if the job is gone.
        activity: of the server.
        limits: of the server's life.
    """
    if head is None:
        return "its job is not there any more"
    if entry is None:
        return "another server has replaced it"
    if head.stopped is Stopped.SHUTDOWN:
        return "its job was drained or stopped"
    if entry.use is not None and _is_over(head, entry.use):
        return "its epoch has ended"
    if activity.open_sessions == 0 and activity.quiet_ms >= limits.idle_ms:
        return f"no stage has used it for {limits.idle_ms // 1000} seconds"
    worn = _worn(activity, limits)
    # Ends between two epochs, so that an epoch has one server; if epochs always overlap, at twice the limit.
    if worn is not None and (not head.pending or _worn(activity, limits, 2) is not None):
        return worn
    return None


def _is_over(head: Head, epoch: str) -> bool:
    return head.pending_of_epoch(epoch) is None and all(each.epoch != epoch for each in head.waiting)


def _worn(activity: Activity, limits: Limits, times: int = 1) -> str | None:
    if activity.age_ms >= times * limits.max_age_ms:
        return f"it is {activity.age_ms // 60_000} minutes old"
    if activity.sessions >= times * limits.max_sessions:
        return f"it has had {activity.sessions} sessions"
    if limits.max_memory_bytes is not None and activity.memory_bytes >= times * limits.max_memory_bytes:
        return f"it takes {activity.memory_bytes // 2**20} MiB of memory"
    return None
