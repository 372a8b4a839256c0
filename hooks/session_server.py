"""Starts the Spark server that a job's stages share, as a process that outlives this task."""

from __future__ import annotations

import fcntl
import os
import shlex
import shutil
import signal
import stat
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import field
from pathlib import Path

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowNotFoundException
from airflow.sdk.log import mask_secret

from ..checkpoint.errors import InvalidConfigError, UnreachableError
from ..spark.handover.runtime_zip import runtime_zip
from ..spark.remote.server import (
    IDENTITY,
    LOCAL_STATE,
    SERVER_CONF,
    TOKEN,
    ServerTask,
    check_login,
    cluster_conf,
    handing_over,
)
from ..storage.records import dataclass
from .class_archive import EXTRA, java_options
from .spark_site import SparkSite
from .spark_submit import EpochSubmitHook

_PROGRAM = "from airflow_cairn.spark.remote.session_driver import main\n\nraise SystemExit(main({task!r}))\n"
_LOG = "server.log"
SCRATCH = "scratch"
"""Subfolder of a server's folder for all temporary files of its JVM."""
_TAIL = 2000
_END_S = 20.0
"""Seconds for `spark-submit` to delete its temporary files."""
_PYTHON_CONF = "spark.pyspark.python"
_NOT_PASSED_ON = ("SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED", "SPARK_API_MODE", "SPARK_LOCAL_REMOTE")
"""Variables that would turn the driver itself into a client."""
_AIRFLOWS_OWN = ("AIRFLOW_CONN_", "AIRFLOW_VAR_", "AIRFLOW__")
"""Name prefixes of variables that may hold Airflow's secrets: connections (including that of the tokens), the fernet
key, the database. Code of a session can read the server's environment (semantics V4)."""


def session_secret(conn_id: str) -> str:
    """Return the secret of the servers' tokens, the password of a connection of any type, known to Airflow's masker.

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


@contextmanager
def server_folder(nonce: str) -> Iterator[int]:
    """Open the folder of a server on this machine.

    Raises:
        OSError: there is none, or it is not this user's alone.
    """
    home = os.open(folder_of(nonce), os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        # The folder's name follows from the record of the servers, and any user may create a folder beside ours.
        if not _is_ours(home, stat.S_ISDIR) or os.fstat(home).st_mode & 0o077:
            raise PermissionError(f"{folder_of(nonce)} is not a folder of this user alone")
        yield home
    finally:
        os.close(home)


def last_words(nonce: str) -> str:
    """Return the end of the log of a server that died on this machine, and delete its folder; a live one keeps it."""
    try:
        with server_folder(nonce) as home:
            said = _tail(home)
            with suppress(BlockingIOError):  # the server lives: it has locked its folder
                fcntl.flock(home, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder_of(nonce), ignore_errors=True)
            return said
    except OSError:
        return ""  # a server that found itself replaced has deleted it


def _tail(home: int) -> str:
    try:
        log = os.open(_LOG, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=home)
    except OSError:
        return ""
    with open(log, "rb") as file:
        if not _is_ours(log, stat.S_ISREG):
            return ""
        file.seek(max(0, os.fstat(log).st_size - _TAIL))
        return file.read(_TAIL).decode(errors="replace")


def _is_ours(fd: int, kind: Callable[[int], bool]) -> bool:
    found = os.fstat(fd)
    return kind(found.st_mode) and found.st_uid == os.geteuid()


def local_state_folder(nonce: str) -> str:
    """Return the folder where a server of this machine keeps copies of state, if it does (semantics V3)."""
    return str(folder_of(nonce) / LOCAL_STATE)


def jvm_conf(conf: Mapping[str, str], site: SparkSite, scratch: Path | None) -> dict[str, str]:
    """Return the conf with which a server's JVM ends when its heap is full, and keeps its files private to its user.

    Otherwise a JVM might live on with threads missing: it would listen but never answer, so stages would keep coming
    back to it. Once it has ended, another server takes its place (semantics V4). Without this conf, Spark makes shuffle
    files, spilled and cached data and uploaded artifacts readable for each user of the machine.

    `scratch` is the folder for these files, unless `spark.local.dir` names another; None on another machine.

    Returns:
        Empty if author or site set both themselves.
    """
    given, said = str({**site.conf, **conf}.get(EXTRA, "")), java_options(conf, site)
    added = [] if "OnOutOfMemoryError" in given else ["-XX:+ExitOnOutOfMemoryError"]
    if scratch is not None and "-Djava.io.tmpdir=" not in said:
        added.append(shlex.quote(f"-Djava.io.tmpdir={scratch}"))
    return {EXTRA: " ".join([given, *added]).strip()} if added else {}


def folder_of(nonce: str) -> Path:
    """Return the folder of a server on this machine, whether or not there is one."""
    return Path(tempfile.gettempdir()) / f"cairn-server-{nonce}"


@dataclass(frozen=True, slots=True)
class ServerStart:
    """The parameters of a server's start."""

    conn_id: str
    """The Spark connection, which gives the master."""
    conf: Mapping[str, str]
    name: str
    nonce: str
    token: str = field(repr=False)
    identity: str = field(repr=False)
    """The server's certificate and key."""
    environment: Mapping[str, str] = field(repr=False)
    """The storage's credentials."""
    task: Callable[[str | None], ServerTask]
    """Returns the server's instructions; takes its folder, None if it runs on another machine."""

    def secrets(self) -> dict[str, str]:
        """Return the secrets that only the server may know, by name."""
        return {TOKEN: self.token, IDENTITY: self.identity}


class StartingServer:
    """The process of a starting server.

    Raises:
        InvalidConfigError: the connection has deploy mode cluster, and the server could not run or be reached there.
    """

    def __init__(self, start: ServerStart) -> None:
        self._nonce = start.nonce
        self._on_cluster = False
        self.folder = folder_of(start.nonce)
        self.folder.mkdir(mode=0o700)
        try:
            self._process = self._started(start)
        except BaseException:
            shutil.rmtree(self.folder, ignore_errors=True)
            raise

    @property
    def pid(self) -> int:
        return self._process.pid

    def check(self) -> None:
        """Check that it has not ended; in deploy mode cluster `spark-submit` ends with the driver.

        Raises:
            UnreachableError: the server has ended; the message holds the end of its log.
        """
        status = self._process.poll()
        if status is None:
            return
        # A server that found itself replaced has deleted its folder.
        raise UnreachableError(
            f"the Spark server of the job ended with status {status} before it was up. The end of its log:\n"
            f"{last_words(self._nonce)}",
            code="server_start",
        )

    def let_go(self) -> None:
        """Stop waiting for the server in this process: it lives on."""
        if self._on_cluster:
            # Here only the submitting process remains, and it is no longer needed.
            self._end_submission()
            shutil.rmtree(self.folder, ignore_errors=True)
            return
        # Popen would warn that a child still runs. Once this task has ended, init reaps it.
        self._process.returncode = 0

    def _end_submission(self) -> None:
        for each in (signal.SIGTERM, signal.SIGKILL):
            with suppress(ProcessLookupError):  # it has just ended
                os.killpg(self._process.pid, each)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_END_S)
                return

    def _started(self, start: ServerStart) -> subprocess.Popen[bytes]:
        plugins = ",".join(filter(None, [SERVER_CONF["spark.plugins"], start.conf.get("spark.plugins")]))
        plain = SparkSubmitHook(conn_id=start.conn_id, name=start.name)
        connection = plain._connection
        self._on_cluster = connection["deploy_mode"] == "cluster"
        task = start.task(None if self._on_cluster else str(self.folder))
        more, scratch = {}, None
        if self._on_cluster:
            more = cluster_conf(str(connection["master"]), task, start.conn_id)
            check_login(connection["keytab"], start.conf, start.conn_id)
        else:
            scratch = self.folder / SCRATCH
            scratch.mkdir(mode=0o700)
        hook = EpochSubmitHook.taking_over(
            plain,
            conf={
                **start.conf,
                **SERVER_CONF,
                **more,
                **jvm_conf(start.conf, SparkSite(os.environ, str(connection["spark_binary"])), scratch),
                "spark.plugins": plugins,
            },
            py_files=str(runtime_zip(self.folder)),
            environment={**start.environment},
        )
        program = self.folder / "server.py"
        program.write_text(_PROGRAM.format(task=task.to_json()))
        command, inherited = hook.detached_command(str(program))
        kept = {
            name: value
            for name, value in inherited.items()
            if name not in _NOT_PASSED_ON and not name.startswith(_AIRFLOWS_OWN)
        }
        if start.conf.get(_PYTHON_CONF):
            # A Connect server looks here for the Python that runs functions, and not in its conf (measured).
            kept["PYSPARK_PYTHON"] = start.conf[_PYTHON_CONF]
        with ExitStack() as stack:
            if self._on_cluster:
                environ, file = stack.enter_context(handing_over(start.secrets(), kept))
                inherits: tuple[int, ...] = (file,)
            else:
                environ, inherits = {**kept, **start.secrets()}, ()
            log = stack.enter_context((self.folder / _LOG).open("wb"))
            # Airflow ends a task's processes with the task. A session of its own lets this process live on.
            return subprocess.Popen(
                command,
                env=environ,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                pass_fds=inherits,
            )
