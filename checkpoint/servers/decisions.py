"""Who may start a server, and whether one still counts: pure functions from one record to the next (semantics V1).

Each recognises what it has achieved by the server's nonce, so that it may be made again after a lost answer.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from .record import MAX_SERVERS, ServerEntry, ServersDocument, ServerState

LEASE_MS = 60_000
"""How long an entry counts without being renewed."""
RENEW_MS = 20_000
"""How often it is renewed: one renewal may be lost."""


@dataclass(frozen=True, slots=True)
class StartIt:
    """The caller is to start the server of this entry; no other stage gets this answer for it."""

    entry: ServerEntry


@dataclass(frozen=True, slots=True)
class TakeIt:
    """There is a server."""

    entry: ServerEntry


@dataclass(frozen=True, slots=True)
class WaitForIt:
    """Another stage is starting it."""

    entry: ServerEntry


ClaimAnswer = StartIt | TakeIt | WaitForIt


def claim(
    record: ServersDocument, *, use: str | None, machine: str, nonce: str, now_ms: int, gone: str = ""
) -> tuple[ClaimAnswer, ServersDocument]:
    """Say what a stage that needs a server is to do.

    Args:
        record: as it was read.
        use: the epoch that the server is for; None: the job.
        machine: where the stage runs; `ANYWHERE` for a server that all machines reach.
        nonce: of the server that the caller starts if it may; fresh.
        now_ms: the time, milliseconds since 1970 UTC.
        gone: nonce of a server that the caller found gone: it did not answer on this machine, or not to its token.

    Returns:
        The answer, and the record that says so: the same where nothing is to change.
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
    """Renew the lease of a server that still counts, by itself or by the stage that starts it."""
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
    """Have no more stages take a server."""
    found = record.find(nonce)
    return record if found is None else record.with_entry(replace(found, state=ServerState.ENDING))
