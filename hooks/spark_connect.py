"""Runs an application as a client of a Spark Connect server: a child process with its secrets in its environment.

The task's own process never imports grpc: Airflow forks it, and a process that forks with grpc open may hang
(measured).
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseHook, Connection
from airflow.sdk.exceptions import AirflowNotFoundException
from airflow.sdk.log import mask_secret

from ..checkpoint.errors import InvalidConfigError
from ..spark.execution.log_lines import VARIABLE as MARK
from ..spark.execution.log_lines import Application, marked, new_mark
from ..spark.remote.server import ConnectServer, server_of
from ..spark.remote.submission import CLEAN_UP_S, NOT_RUN, RELEASE, VARIABLE, Problem, Submission
from ..storage.records import dataclass
from .driver_output import driver_output
from .spark_submit import OTHER_IDENTITY

if TYPE_CHECKING:
    from .forked_client import ForkedClient

log = logging.getLogger("airflow_cairn")

CONN_TYPE = "spark_connect"
"""The connection type of the provider's own hook."""
GRACE_S = CLEAN_UP_S + 15
"""Seconds between the signal to end, after which the application deletes its output, and SIGKILL."""
RELEASE_S = 120.0
"""Seconds for the process that releases the session of a killed client."""


def connect_server(conn_id: str) -> ConnectServer | None:
    """Return the Spark Connect server of a connection; None if it has another type, or is not defined.

    The connection has host, port, login (the sessions' user), password (the token), and `use_ssl` in its extra.
    """
    try:
        connection = BaseHook.get_connection(conn_id)
    except AirflowNotFoundException:
        return None  # the provider has a default for it
    return server_of_connection(connection) if connection.conn_type == CONN_TYPE else None


def server_of_connection(connection: Connection) -> ConnectServer:
    """Read a connection of type `spark_connect`; its token is registered with Airflow's masker.

    Raises:
        InvalidConfigError: the connection cannot be used.
    """
    if connection.password:
        mask_secret(connection.password)
    use_ssl = connection.extra_dejson.get("use_ssl", False)
    if str(use_ssl).lower() not in ("true", "false"):
        raise InvalidConfigError(
            "use_ssl in the connection's extra is neither true nor false", conn_id=connection.conn_id
        )
    return server_of(
        connection.host,
        connection.port,
        token=connection.password or None,
        use_ssl=str(use_ssl).lower() == "true",
        user=connection.login or None,
        conn_id=connection.conn_id,
    )


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of a client process."""

    status: int
    """Exit status; a signal is negative, as in Python."""
    problem: Problem | None = None
    """The reason why no application ran; None if it ran, or if no reason was given."""
    cause: str = ""
    """The line of its output that says why it failed; empty if no line does."""


class ConnectClient:
    """One client process; `forks` tells whether the fork server of a server that Cairn runs may fork it."""

    def __init__(
        self,
        submission: Submission,
        secrets: Mapping[str, str],
        env_vars: Mapping[str, Any] | None = None,
        *,
        forks: bool = False,
    ) -> None:
        self._fork_server_of = submission.nonce if forks else ""
        dropped = OTHER_IDENTITY if secrets else frozenset()
        kept = {name: value for name, value in os.environ.items() if name not in dropped}
        author = {name: str(value) for name, value in (env_vars or {}).items()}
        self._mark = new_mark()
        told = {VARIABLE: submission.to_json(), MARK: self._mark}
        self._environment = {**kept, **author, **secrets, **told}
        self._process: subprocess.Popen[str] | ForkedClient | None = None
        self.on_application: Callable[[Application], None] = lambda _: None
        """Receives the server's Spark application, once known."""

    def run(self) -> Ended:
        """Run the client to its end; its output goes to the task's log."""
        problem: Problem | None = None
        process = self._forked() or self._started()
        self._process = process
        assert process.stdout is not None
        with process, driver_output() as output:
            try:
                for line in process.stdout:
                    printed, own = marked(line, self._mark)
                    output.line(printed)
                    if own is None:
                        continue
                    said, application = Problem.in_line(own), Application.in_line(own)
                    if said is not None:
                        problem = said
                    elif application is not None:
                        self.on_application(application)
                    else:
                        output.line(own, own=True)
                status = process.wait()
            except BaseException:
                # The task's timeout: Airflow calls `on_kill` only after this exception.
                self.end()
                raise
        if status < 0:
            self._release()
        # An application that ran has failed by itself, whatever problem was reported before.
        return Ended(status, problem if status == NOT_RUN else None, output.cause(self._environment))

    def end(self) -> None:
        """End the client together with its session, so that the server stops its work too."""
        process = self._process
        if process is None or process.poll() is not None:
            return
        process.terminate()
        try:
            process.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            log.warning("The application did not end within %d s and is killed", GRACE_S)
            process.kill()

    def _forked(self) -> ForkedClient | None:
        if not self._fork_server_of:
            return None
        from .forked_client import forked

        return forked(self._fork_server_of, self._environment)

    def _started(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-u", "-m", "airflow_cairn.spark.remote.client", *arguments],
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )

    def _release(self) -> None:
        """Release the session of a killed client: otherwise the server would continue its operations."""
        releasing = self._started(RELEASE)
        try:
            said, _ = releasing.communicate(timeout=RELEASE_S)
        except subprocess.TimeoutExpired:
            releasing.kill()
            said, _ = releasing.communicate()
        if releasing.returncode == 0:
            log.warning("The application was killed, and its session is released: the server stops what it has begun")
        else:
            log.warning(
                "The application was killed and its session not released; the next try does that. %s",
                said.replace(self._mark, ""),
            )
