"""A client process that is forked from a server's fork server, in place of one that loads PySpark first."""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
import re
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType

from ..checkpoint.masking import names_a_secret
from ..spark.handover.conf import STORAGE
from ..spark.remote.fork_server import ENDED, GO, LOCK, LOG, READY, START_S, peer_uid
from ..spark.remote.submission import VARIABLE, Submission
from .session_server import folder_of, server_folder

log = logging.getLogger("airflow_cairn")

_AT_START = re.compile(
    r"_?PYTHON|LD_|GLIBC_|MALLOC_|JE_|LC_|LANG|HOME\Z|PATH\Z|OPENSSL_|SSLKEYLOGFILE"
    r"|BOTO_|SPARK_|PYSPARK_|PY4J_|GRPC_|PROTOCOL_BUFFERS_|ARROW_|NUMPY_|NPY_|OPENBLAS_|GOTO_|OMP_|GFORTRAN_"
)
"""Variables that Python, PySpark and its libraries read while they are loaded (measured); a child cannot set these."""
_MAY_HOLD_SECRETS = re.compile(r"SPARK_REMOTE|PYSPARK_SUBMIT_ARGS|PYSPARK_REMOTE_INIT_CONF|SPARK_\w*(CONF|OPTS)")
"""Such variables that are read later, and whose values may hold a secret."""
_OF_STATUS = re.compile(r"(Umask|[UG]id|Groups|Sig(Blk|Ign)|Cap\w+|NoNewPrivs|Seccomp|Cpus_allowed|Mems_allowed):.*")
_PROTOCOL = 1
"""Part of the socket's name: a client does not ask a fork server of a Cairn with another protocol."""


class ForkedClient:
    """A child of the fork server, used as a `Popen`.

    `connection` leads to the fork server and, until the application begins, to the child. `process` is the child's
    pidfd, `output` the descriptor from which its output is read.
    """

    def __init__(self, connection: socket.socket, process: int, output: int) -> None:
        self.returncode: int | None = None
        self.stdout = open(output, errors="replace")  # noqa: SIM115 - closed with this object
        self._connection = connection
        self._process = process
        self._end = select.poll()
        self._end.register(process, select.POLLIN)

    def __enter__(self) -> ForkedClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stdout.close()
        try:
            self.wait()
        finally:
            self._connection.close()
            os.close(self._process)

    def poll(self) -> int | None:
        with suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait until the client has ended, and return its exit status.

        Raises:
            TimeoutExpired: it still runs after so many seconds.
        """
        if self.returncode is None:
            if not self._end.poll(None if timeout is None else timeout * 1000):
                raise subprocess.TimeoutExpired("a forked client", timeout or 0)
            said = b""
            with suppress(OSError):
                said = self._connection.recv(100)
            # A signal's handler may have called this during `recv`, and have read the status.
            if self.returncode is None:
                if not said:
                    log.warning("How the application has ended is not known: its fork server was killed")
                self.returncode = int(said.removeprefix(ENDED)) if said else -signal.SIGKILL
        return self.returncode

    def begin(self) -> None:
        """Have the client run the application."""
        self._connection.send(GO)

    def terminate(self) -> None:
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        self._send(signal.SIGKILL)

    def _send(self, told: signal.Signals) -> None:
        if self.returncode is None:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._process, told)


def forked(nonce: str, environment: Mapping[str, str]) -> ForkedClient | None:
    """Have the fork server fork a client, which begins; None if none will. Start a fork server if none runs."""
    if sys.platform != "linux":
        return None
    with ExitStack() as opened:
        try:
            home = opened.enter_context(server_folder(nonce))
        except OSError:
            return None  # the server runs on another machine, or as another user
        client: ForkedClient | None = None
        try:
            name = _socket_name(environment)
            try:
                client = _ready(f"/proc/self/fd/{home}/{name}", environment)
            except (FileNotFoundError, ConnectionRefusedError):
                why = _start(home, name, folder_of(nonce), environment)
        except OSError as error:
            why = str(error)
        if client is None:
            log.info("The application's process loads PySpark itself: %s", why)
            return None
    try:
        client.begin()
    except BaseException as error:
        client.kill()
        client.__exit__(None, None, None)
        if isinstance(error, BrokenPipeError):  # the child has ended, so the application did not begin
            return None
        # The application may run since, so nothing may lead to a second client.
        raise
    return client


def _ready(address: str, environment: Mapping[str, str]) -> ForkedClient:
    """Return a client that waits for the word to begin; if that never comes, it ends."""
    with ExitStack() as opened, ExitStack() as kept:
        connection = kept.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
        connection.settimeout(START_S)
        connection.connect(address)
        if peer_uid(connection) != os.geteuid():
            raise PermissionError("the fork server is another user's")
        request = opened.enter_context(open(os.memfd_create("cairn-request"), "w+", encoding="utf-8"))
        json.dump(dict(environment), request)
        request.seek(0)
        output, input_ = os.pipe()
        kept.callback(os.close, output)
        opened.callback(os.close, input_)
        socket.send_fds(connection, [b"?"], [request.fileno(), input_])
        said, fds, _, _ = socket.recv_fds(connection, 1000, 1)
        if said != READY:
            raise ConnectionAbortedError(said.decode() or "the fork server has ended")
        kept.callback(os.close, fds[0])
        client = ForkedClient(connection, fds[0], output)
        kept.pop_all()
        return client


def _start(home: int, name: str, folder: Path, environment: Mapping[str, str]) -> str:
    """Start the fork server, unless one runs or starts. Return what the log says of it."""
    lock = os.open(LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=home)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(lock).st_size:
            return f"the fork server could not start (see {folder / LOG})"
        os.write(lock, b"is being started\n")
        with open(
            os.open(LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600, dir_fd=home), "wb"
        ) as said:
            scheme = _storage_of(environment).partition(":")[0]
            process = subprocess.Popen(
                [
                    sys.executable,
                    "-u",
                    "-m",
                    "airflow_cairn.spark.remote.fork_server",
                    str(folder),
                    name,
                    str(lock),
                    scheme,
                ],
                env=_at_start(environment),
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                start_new_session=True,
                pass_fds=(lock,),
            )
    except BlockingIOError:
        return "the fork server is not up yet, or has been started with other settings"
    finally:
        os.close(lock)
    process.returncode = 0  # it outlives this task, and Popen would warn
    return f"process {process.pid} loads it too, for later stages"


def _storage_of(environment: Mapping[str, str]) -> str:
    submitted = environment.get(VARIABLE)
    return Submission.from_json(submitted).handed.get(STORAGE, "") if submitted else ""


def _at_start(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that count while a client is loaded; none is a secret."""
    return {
        name: value
        for name, value in environment.items()
        if _AT_START.match(name) and not _MAY_HOLD_SECRETS.match(name) and not names_a_secret(name)
    }


def _socket_name(environment: Mapping[str, str]) -> str:
    """Name the fork server whose children are what a process of this task would be: by all that a child inherits."""
    proc, here = Path("/proc/self"), os.stat(".")
    inherited = (
        _PROTOCOL,
        (sys.executable, sys.prefix),
        (os.getcwd(), here.st_dev, here.st_ino),
        _at_start(environment),
        [os.readlink(each) for each in sorted((proc / "ns").iterdir())],
        [found[0] for found in _OF_STATUS.finditer((proc / "status").read_text())],
        [(proc / each).read_text() for each in ("cgroup", "limits", "oom_score_adj")],
        os.getpriority(os.PRIO_PROCESS, 0),
    )
    return f"fork-{hashlib.sha256(json.dumps(inherited, sort_keys=True).encode()).hexdigest()[:20]}"
