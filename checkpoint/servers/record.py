"""The record of the Spark servers that a job's stages share, one object of the job (semantics V1).

It is changed by compare-and-swap only. It holds no secret: a server's token follows from its nonce and from a secret
that stays with Airflow (semantics V4).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Annotated

from ...storage.str_enum import StrEnum
from ..documents.fields import AtLeast, Count, Epoch, Host, Job, Token
from ..documents.strict_json import SPARSE

KEY = "servers.json"
"""Relative to the job's prefix."""
ANYWHERE = "anywhere"
"""In the place of a machine: the server is for stages on all machines."""
MAX_SERVERS = 64
"""Entries of the record; those whose lease is over go first."""


class ServerState(StrEnum):
    """How far a server is."""

    STARTING = "starting"
    """A stage is about to start it, or it has not said its address yet."""
    UP = "up"
    ENDING = "ending"
    """It takes no more stages, and ends with its last session."""


@dataclass(frozen=True, slots=True)
class ServerEntry:
    """One server."""

    nonce: Token
    """Names it; never used again."""
    machine: Token
    """Only there can it be reached; `ANYWHERE`: at its host, by TLS."""
    state: ServerState
    started_ms: Count
    """When the entry was made, milliseconds since 1970 UTC."""
    lease_until_ms: Count
    """It counts until then, milliseconds since 1970 UTC, unless the lease is renewed."""
    use: Epoch | None = None
    """The epoch that it is for; None: the job."""
    port: Annotated[int, AtLeast(0)] = field(default=0, metadata=SPARSE)
    """Where it listens, on its machine's loopback if it has no host; 0: not known yet."""
    host: Host | None = None
    """Name or address by which other machines reach it; None: they do not."""


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
        """Give the server that stages are to take, or to wait for; there is at most one."""
        fit = (each for each in self.servers if (each.use, each.machine) == (use, machine))
        return next((each for each in fit if each.state is not ServerState.ENDING), None)

    def with_entry(self, entry: ServerEntry) -> ServersDocument:
        """Give the record with an entry in the place of the one of the same nonce, or at the end."""
        others = [each for each in self.servers if each.nonce != entry.nonce]
        return replace(self, servers=(*others, entry))

    def without(self, *nonces: str) -> ServersDocument:
        """Give the record without some entries."""
        return replace(self, servers=tuple(each for each in self.servers if each.nonce not in nonces))
