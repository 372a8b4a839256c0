"""Starts the Spark server that a job's stages share, as a process that lives on without this task."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowNotFoundException
from airflow.sdk.log import mask_secret

from ..checkpoint.errors import CheckpointError, InvalidConfigError
from ..spark.handover.runtime_zip import runtime_zip
from ..spark.remote.server_task import (
    IDENTITY_VARIABLE,
    LOCAL_STATE,
    SERVER_CONF,
    TOKEN_VARIABLE,
    VARIABLE,
    ServerTask,
)
from ..storage.errors import ErrorKind
from .spark_submit import EpochSubmitHook

_PROGRAM = "from airflow_cairn.spark.remote.session_driver import main\n\nraise SystemExit(main())\n"
_LOG = "server.log"
_TAIL = 2000
_NOT_PASSED_ON = ("SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED", "SPARK_API_MODE", "SPARK_LOCAL_REMOTE")
"""Variables that would make the driver itself a client."""


class ServerStartError(CheckpointError):
    """The job's Spark server did not start; another try starts another one."""

    kind = ErrorKind.UNAVAILABLE


def session_secret(conn_id: str) -> str:
    """Give the secret that servers' tokens are made from; it is registered with Airflow's masker.

    Args:
        conn_id: an Airflow connection of any type; its password.

    Raises:
        InvalidConfigError: there is no such connection, or it has no password.
    """
    make = f'airflow connections add {conn_id} --conn-type generic --conn-password "$(openssl rand -hex 32)"'
    try:
        secret = BaseHook.get_connection(conn_id).password
    except AirflowNotFoundException as error:
        raise InvalidConfigError(
            f"session=ConnectSession() needs the connection {conn_id}: the tokens of its servers are made from the "
            f"connection's password. Make it: {make}",
            conn_id=conn_id,
        ) from error
    if not secret:
        raise InvalidConfigError(
            f"the connection {conn_id} has no password, and the tokens of the servers are made from it. Make it anew: "
            f"{make}",
            conn_id=conn_id,
        )
    mask_secret(secret)
    return secret


def last_words(nonce: str) -> str:
    """Give the end of the log of a server that has died on this machine, and delete its folder.

    Args:
        nonce: of the server, which is not there any more.
    """
    folder = _folder(nonce)
    log = folder / _LOG
    # One that found itself replaced has deleted it.
    said = log.read_text(errors="replace")[-_TAIL:] if log.exists() else ""
    shutil.rmtree(folder, ignore_errors=True)
    return said


def local_state_folder(nonce: str) -> str:
    """Give the folder where a server of this machine keeps copies of state, if it does (semantics V3).

    Args:
        nonce: of the server.
    """
    return str(_folder(nonce) / LOCAL_STATE)


def _folder(nonce: str) -> Path:
    return Path(tempfile.gettempdir()) / f"cairn-server-{nonce}"


@dataclass(frozen=True, slots=True)
class ServerStart:
    """How a server is started."""

    conn_id: str
    """The Spark connection: its master."""
    conf: Mapping[str, str]
    name: str
    """Of the Spark application."""
    nonce: str
    token: str = field(repr=False)
    identity: str | None = field(repr=False)
    """Its certificate and key, where other machines are to reach it."""
    environment: Mapping[str, str] = field(repr=False)
    """The storage's credentials."""
    task: Callable[[str], ServerTask]
    """Gives what the server is told; takes its folder."""


class StartingServer:
    """The process of a server that is being started.

    Args:
        start: which server.

    Raises:
        InvalidConfigError: the connection has deploy mode cluster.
    """

    def __init__(self, start: ServerStart) -> None:
        self._nonce = start.nonce
        self.folder = _folder(start.nonce)
        self.folder.mkdir(mode=0o700)
        try:
            self._process = self._started(start)
        except BaseException:
            shutil.rmtree(self.folder, ignore_errors=True)
            raise

    @property
    def pid(self) -> int:
        """The process of `spark-submit`."""
        return self._process.pid

    def check(self) -> None:
        """See that it has not ended.

        Raises:
            ServerStartError: it has; the text holds the end of its log.
        """
        status = self._process.poll()
        if status is None:
            return
        # A server that found itself replaced has deleted its folder.
        raise ServerStartError(
            f"the Spark server of the job ended with status {status} before it was up. The end of its log:\n"
            f"{last_words(self._nonce)}"
        )

    def let_go(self) -> None:
        """Have this process wait for it no longer: it lives on."""
        # Popen would warn that a child still runs. Once this task has ended, init reaps it.
        self._process.returncode = 0

    def _started(self, start: ServerStart) -> subprocess.Popen[bytes]:
        plugins = ",".join(filter(None, [SERVER_CONF["spark.plugins"], start.conf.get("spark.plugins")]))
        hook = EpochSubmitHook.taking_over(
            SparkSubmitHook(conn_id=start.conn_id, name=start.name),
            conf={**start.conf, **SERVER_CONF, "spark.plugins": plugins},
            py_files=str(runtime_zip(self.folder)),
            environment={**start.environment},
        )
        if hook.deploys_to_cluster:
            raise InvalidConfigError(
                "session=ConnectSession() starts its server in deploy mode client: in mode cluster its token could not "
                "reach the driver unseen. Set the connection's deploy mode to client, or give the group the conn_id of "
                "a Spark Connect server",
                conn_id=start.conn_id,
            )
        program = self.folder / "server.py"
        program.write_text(_PROGRAM)
        environment = {TOKEN_VARIABLE: start.token, VARIABLE: start.task(str(self.folder)).to_json()}
        if start.identity is not None:
            environment[IDENTITY_VARIABLE] = start.identity
        command, inherited = hook.detached_command(str(program))
        kept = {name: value for name, value in inherited.items() if name not in _NOT_PASSED_ON}
        with (self.folder / _LOG).open("wb") as log:
            # Airflow ends the processes of a task with it. This one is to live on, so it gets a session of its own.
            return subprocess.Popen(
                command,
                env={**kept, **environment},
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
