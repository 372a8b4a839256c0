"""What the operator tells the process that runs a stage's application against a Spark Connect server.

It travels in the environment of that process: no command line and no rendered field shows it. The token is in the
server's URL, and only there.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any

from ...checkpoint.errors import InvalidConfigError
from ...storage.errors import ErrorKind

VARIABLE = "CAIRN_CONNECT_SUBMISSION"
"""The environment variable that holds it, as JSON."""
PROBLEM = "cairn-connect-problem "
"""How the line of output begins by which the process says why there was no application: JSON follows."""
NOT_RUN = 78
"""Exit status where no application ran; a line of the output says why."""

RELEASE = "release"
"""The argument of a client process that only releases the session of another one."""
CLEAN_UP_S = 60.0
"""What an application has to delete what it wrote and to decline, once its process is told to end."""
PATIENCE = 9
"""How often a call that the server does not answer is repeated: about a minute, in which a server elsewhere may be
started anew at the same address."""
PATIENCE_HERE = 5
"""The same, about 15 seconds, for a server on this machine: one that refuses connections is gone."""


@dataclass(frozen=True, slots=True)
class Submission:
    """One application, for one session of one server."""

    application: str
    """A Python file, or a function by its dotted name."""
    session: str
    """The session's id."""
    handed: dict[str, str]
    """Conf by which the application finds its epoch."""
    server: dict[str, Any] = field(repr=False)
    """The fields of `ConnectServer`."""
    arguments: tuple[str, ...] = ()
    conf: dict[str, str] = field(default_factory=dict)
    """The author's conf of the session."""
    patience: int = PATIENCE
    nonce: str = ""
    """Of the server, where Cairn runs it."""
    attempt: str = ""
    """Names the attempt of the epoch, there: what was cached before it is forgotten (semantics V2)."""
    replaced: tuple[str, ...] = ()
    """Ids of the sessions of executions that this one replaces (semantics V2)."""
    py_files: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    archives: tuple[str, ...] = ()
    jars: tuple[str, ...] = ()

    def to_json(self) -> str:
        """Write it."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str | None) -> Submission:
        """Read it.

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


@dataclass(frozen=True, slots=True)
class Problem:
    """Why no application ran."""

    message: str
    incurable: bool
    """Whether another try would only repeat it (semantics F4)."""
    of_server: bool = False
    """Whether the server is gone, or is not the one that the token is for."""

    @classmethod
    def of(cls, error: Exception) -> Problem:
        """Describe an error."""
        return cls(str(error), getattr(error, "kind", None) is ErrorKind.INVALID, getattr(error, "of_server", False))

    def line(self) -> str:
        """Give the line of output that says so."""
        return PROBLEM + json.dumps(asdict(self))

    @classmethod
    def in_line(cls, line: str) -> Problem | None:
        """Read it; None if the line is another one."""
        if not line.startswith(PROBLEM):
            return None
        try:
            found = cls(**json.loads(line.removeprefix(PROBLEM)))
        except (ValueError, TypeError):
            return None
        judged = isinstance(found.incurable, bool) and isinstance(found.of_server, bool)
        return found if judged and isinstance(found.message, str) else None
