"""The operator's order to the client process that runs a stage's application on a Spark Connect server.

The order travels in the process's environment: no command line and no rendered field shows it. The token is only in the
server's URL.
"""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from collections.abc import Iterable
from dataclasses import asdict, field
from typing import TYPE_CHECKING, Any

from ...checkpoint.errors import FencedError, InvalidConfigError
from ...storage.errors import ErrorKind
from ...storage.records import dataclass

if TYPE_CHECKING:
    from .channel import ConnectChannel


VARIABLE = "CAIRN_CONNECT_SUBMISSION"
"""The environment variable with the submission, as JSON."""
PROBLEM = "cairn-connect-problem "
"""Prefix of the output line that reports why no application ran; JSON follows."""
NOT_RUN = 78
"""Exit status if no application ran; a line of the output says why."""

RELEASE = "release"
"""The argument of a client process that only releases another one's session."""
CLEAN_UP_S = 60.0
"""Time for an application to delete its files and to decline, once its process is told to end."""
PATIENCE = 9
"""Number of retries of a call that the server does not answer: about a minute, in which a server elsewhere may be
restarted at the same address."""
PATIENCE_HERE = 5
"""Retries with a server on this machine, about 15 seconds: a server that refuses connections is gone."""

_FUNCTION = re.compile(r"\A[A-Za-z_]\w*(\.[A-Za-z_]\w*)+\Z")
_FILES = (".py", ".jar", ".r", ".zip", ".egg")


def is_function(application: str) -> bool:
    """Tell whether an application is a function by its dotted name, not a file."""
    return bool(_FUNCTION.match(application)) and not application.lower().endswith(_FILES)


@dataclass(frozen=True, slots=True)
class Submission:
    """One application, for one session of one server."""

    application: str
    """A Python file, or a function by its dotted name."""
    session: str
    handed: dict[str, str]
    """Conf by which the application finds its epoch."""
    server: dict[str, Any] = field(repr=False)
    """The fields of `ConnectServer`."""
    arguments: tuple[str, ...] = ()
    conf: dict[str, str] = field(default_factory=dict)
    """The author's conf of the session."""
    patience: int = PATIENCE
    nonce: str = ""
    """The server's nonce, if Cairn runs the server."""
    attempt: str = ""
    """The epoch's attempt, if Cairn runs the server: data cached before the attempt are forgotten (semantics V2)."""
    replaced: tuple[str, ...] = ()
    """Ids of the sessions of executions that this one replaces (semantics V2)."""
    py_files: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    archives: tuple[str, ...] = ()
    jars: tuple[str, ...] = ()

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str | None) -> Submission:
        """Parse a submission.

        Raises:
            InvalidConfigError: the process was not started by a SparkEpochOperator.
        """
        if not text:
            raise InvalidConfigError(
                "this program runs an application for SparkEpochOperator, which has not started it. Run the "
                "application as a task of a DAG"
            )
        found = json.loads(text)
        for name in ("arguments", "replaced", "py_files", "files", "archives", "jars"):
            found[name] = tuple(found[name])
        return cls(**found)


_OF_SERVER = ("server_unreachable", "wrong_server")


@dataclass(frozen=True, slots=True)
class Problem:
    """The reason why no application ran."""

    message: str
    incurable: bool
    """True if another try would only repeat the failure (semantics F4)."""
    of_server: bool = False
    """True if the server is gone, or is not the token's server."""

    @classmethod
    def of(cls, error: Exception) -> Problem:
        of_server = getattr(error, "code", None) in _OF_SERVER
        return cls(str(error), getattr(error, "kind", None) is ErrorKind.INVALID, of_server)

    def line(self) -> str:
        return PROBLEM + json.dumps(asdict(self))

    @classmethod
    def in_line(cls, line: str) -> Problem | None:
        """Parse a line of output; None for any other line."""
        if not line.startswith(PROBLEM):
            return None
        try:
            found = cls(**json.loads(line.removeprefix(PROBLEM)))
        except (ValueError, TypeError):
            return None
        judged = isinstance(found.incurable, bool) and isinstance(found.of_server, bool)
        return found if judged and isinstance(found.message, str) else None


# The session of an execution on a Spark Connect server, and its release (semantics V2). A server finishes what a client
# has begun, even if the client is dead (measured: it committed ten seconds after a SIGKILL). So the session's id
# follows from the execution's token, and the stage's next execution can release the session without a record. Releasing
# stops everything in it. The server refuses a released session only if it knew that session, so the session is opened
# first. Then a client that was started before and comes late finds it closed.


def session_id(token: str) -> str:
    """Return the id of an execution's session; as no token, no id is used twice."""
    digest = hashlib.sha256(f"cairn session {token}".encode()).digest()
    return str(uuid.UUID(bytes=digest[:16], version=4))


def release_replaced(channel: ConnectChannel, sessions: Iterable[str]) -> None:
    """Close the sessions of replaced executions, whether or not a client ever opened them."""
    for session in sessions:
        try:
            channel.version(session)
        except FencedError:
            continue  # it is closed
        channel.release(session)
