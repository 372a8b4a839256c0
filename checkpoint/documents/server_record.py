"""The record of the Spark servers that a job's stages share, one object of the job (semantics V1).

Only compare-and-swap changes the record. It holds no secret: a server's token is derived from its nonce and a secret
that stays with Airflow (semantics V4).
"""

from __future__ import annotations

from dataclasses import field, replace
from typing import Annotated

from ...storage.older_pythons import StrEnum
from ...storage.records import dataclass
from .codec import AtLeast, Count, Epoch, Host, Job, Token
from .strict_json import SPARSE

KEY = "servers.json"
"""Relative to the job's prefix."""
ANYWHERE = "anywhere"
"""Used instead of a machine's name: the server is for stages on all machines."""
MAX_SERVERS = 64
"""Entries of the record; those with an expired lease are dropped first."""


class ServerState(StrEnum):
    """State of a server."""

    STARTING = "starting"
    """A stage is about to start the server, or its address is not known yet."""
    UP = "up"
    ENDING = "ending"
    """The server takes no more stages, and ends with its last session."""


@dataclass(frozen=True, slots=True)
class ServerEntry:
    """One server."""

    nonce: Token
    """Unique name of the server."""
    machine: Token
    """The only machine that can reach the server; `ANYWHERE`: all can, at `host`, by TLS."""
    state: ServerState
    started_ms: Count
    """Creation time of the entry, milliseconds since 1970 UTC."""
    lease_until_ms: Count
    """End of the lease, milliseconds since 1970 UTC; after it the entry no longer counts."""
    use: Epoch | None = None
    """The epoch that the server is for; None: the job."""
    port: Annotated[int, AtLeast(0)] = field(default=0, metadata=SPARSE)
    """Port of the server, on its machine's loopback if it has no host; 0: not known yet."""
    host: Host | None = None
    """Name or address by which other machines reach the server; None: they do not."""


@dataclass(frozen=True, slots=True)
class ServersDocument:
    """One version of the record."""

    job: Job
    revision: Count = 0
    """Grows with each swap, so that no two versions are equal (semantics W2)."""
    servers: tuple[ServerEntry, ...] = ()

    def find(self, nonce: str) -> ServerEntry | None:
        """Give the entry of a server; None if it does not count any more."""
        return next((each for each in self.servers if each.nonce == nonce), None)

    def serving(self, use: str | None, machine: str) -> ServerEntry | None:
        """Give the server that stages have to take, or to wait for; there is at most one."""
        fit = (each for each in self.servers if (each.use, each.machine) == (use, machine))
        return next((each for each in fit if each.state is not ServerState.ENDING), None)

    def with_entry(self, entry: ServerEntry) -> ServersDocument:
        """Give the record with an entry at its end; an older entry of the same nonce goes."""
        others = [each for each in self.servers if each.nonce != entry.nonce]
        return replace(self, servers=(*others, entry))

    def without(self, *nonces: str) -> ServersDocument:
        """Give the record without some entries."""
        return replace(self, servers=tuple(each for each in self.servers if each.nonce not in nonces))
