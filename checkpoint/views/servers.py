"""The Spark servers that a job's stages share, as rows (semantics V1)."""

from __future__ import annotations

from dataclasses import dataclass

from ...storage.errors import GoneError
from ..documents.layout import run_id_of
from ..servers.record import ANYWHERE, KEY, ServerEntry, ServersDocument
from ..store.job_files import JobFiles

GONE = "gone"
"""Of a server that has not renewed its lease in time: it died, or does not reach the store."""

_MACHINE = 8
"""Characters of a machine's hash: enough to tell a few apart."""


@dataclass(frozen=True, slots=True)
class ServerRow:
    """One server of one job."""

    job: str
    server: str
    """Its nonce, which names it in the tasks' logs."""
    state: str
    """`starting`, `up`, `ending` or `gone`."""
    run_id: str | None
    """The DAG run that it is for; None: all of the job's."""
    machine: str | None
    """On which it listens, on loopback; a hash. None: it listens for all machines."""
    host: str | None
    """By which other machines reach it; None: they do not, or it is not up yet."""
    port: int | None
    started_at_ms: int
    lease_until_ms: int

    @property
    def where(self) -> str:
        """Where it listens, for people to read; empty where that is not known yet."""
        if self.port is None:
            return ""
        at = self.host if self.machine is None else f"loopback of {self.machine[:_MACHINE]}"
        return f"{at}:{self.port}"


def servers(files: JobFiles, now_ms: int) -> list[ServerRow]:
    """List a job's servers, oldest first; none where it never had one.

    Args:
        files: of the job.
        now_ms: the time, milliseconds since 1970 UTC.

    Raises:
        CairnError: the record cannot be read.
    """
    try:
        record, _ = files.read(ServersDocument, KEY)
    except GoneError:
        return []
    # The record's own order is that of their last renewals.
    oldest_first = sorted(record.servers, key=lambda each: (each.started_ms, each.nonce))
    return [_row(record.job, each, now_ms) for each in oldest_first]


def _row(job: str, entry: ServerEntry, now_ms: int) -> ServerRow:
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
    )
