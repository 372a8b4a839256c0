"""The session of an execution on a Spark Connect server, and how it is taken away (semantics V2).

A server finishes what a client has begun, also where the client is dead (measured: it committed ten seconds after a
SIGKILL). So the session's id follows from the execution's token, and the stage's next execution can release it without
any record of it. Releasing stops what runs in it. The server never takes a released session again, but only one that it
knew; so the session is opened first. Then a client that was started before and comes late finds it closed.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ...checkpoint.errors import FencedError

if TYPE_CHECKING:
    from .channel import ConnectChannel


def session_id(token: str) -> str:
    """Give the id of an execution's session.

    Args:
        token: of the execution; never used twice, so neither is the session's id.
    """
    digest = hashlib.sha256(f"cairn session {token}".encode()).digest()
    return str(uuid.UUID(bytes=digest[:16], version=4))


def release_replaced(channel: ConnectChannel, sessions: Iterable[str]) -> None:
    """Close the sessions of executions that have been replaced, whether or not a client ever opened them.

    Args:
        channel: to the server.
        sessions: their ids.

    Raises:
        ServerUnreachableError: the server did not answer.
    """
    for session in sessions:
        try:
            channel.version(session)
        except FencedError:
            continue  # it is closed
        channel.release(session)
