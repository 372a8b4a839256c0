"""The Spark servers that a job's stages share, as rows (semantics V1)."""

from __future__ import annotations

from dataclasses import asdict

from ...storage.errors import CairnError, ErrorKind, GoneError
from ...storage.records import dataclass
from ..coordinator import Coordinator
from ..documents.head import Head
from ..documents.layout import run_id_of
from ..documents.read_windows import WindowText
from ..documents.server_record import ANYWHERE, KEY, ServerEntry, ServersDocument
from ..documents.strict_json import Json
from .checkpoint_list import window_json

GONE = "gone"
"""State of a server that has not renewed its lease in time: it died, or does not reach the store."""

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
    """List a job's servers, oldest first; none where it never had one."""
    try:
        record, _ = coordinator.files.read(ServersDocument, KEY)
    except GoneError:
        return []
    # The record's own order is that of their last renewals.
    oldest_first = sorted(record.servers, key=lambda each: (each.started_ms, each.nonce))
    head = _head(coordinator) if any(each.use is not None for each in oldest_first) else None
    return [_row(record.job, each, head, now_ms) for each in oldest_first]


def _head(coordinator: Coordinator) -> Head | None:
    """Give the job's head; None where it cannot be read, which others say."""
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
