"""The process that clients of a Spark Connect server are forked from: it has loaded PySpark, so that they need not.

`python -u -m airflow_cairn.spark.remote.fork_server FOLDER SOCKET LOCK SCHEME`, beside a server that Cairn runs here.
LOCK is the descriptor of the locked file that makes it the only one, SCHEME that of the job's storage. It forks for
each task that connects, and the child reads what the task sends: environment and output. So this process never holds a
secret. It opens no channel: a process that forks with grpc open may hang. Decision 0064 says who can race, and what a
crash leaves.
"""

from __future__ import annotations

import fcntl
import importlib
import json
import os
import pkgutil
import random
import select
import signal
import socket
import struct
import sys
import tempfile
import time
import warnings
from contextlib import suppress
from pathlib import Path

from .submission import VARIABLE, Submission, is_function

START_S = 3.0
"""Seconds that a task waits for a child's answer; then it starts a client without a fork."""
READY, GO, ENDED = b"ready", b"go", b"ended "
"""The child's word that it can run the application; the task's that it must, before which alone the task may start a
client without a fork; and the parent's, before the exit status."""
LOCK, LOG = "fork-server.lock", "fork-server.log"
"""Files in the server's folder. The first is empty, unless this process is being started, or has failed to start."""

_LOOK_MS = 2000
"""Milliseconds between two looks at the server."""
_GROWTH = 64 * 2**20
"""Bytes by which this process may grow: it only forks, so what grows is a leak."""


def main() -> int:
    """Serve until the Spark server is gone; in a child, run the client."""
    folder, name, lock, scheme = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4]
    since_ns = os.fstat(lock).st_mtime_ns
    if _threads() > 1:
        # A child would get the locks that another thread holds. Something that starts with each Python has started one.
        _note("Another thread runs in this process, so it cannot be forked")
        return 1
    if not _lives(folder):
        return 0
    from ...storage.open import load
    from .channel import import_client
    from .client import EVERY_STAGE, loading
    from .deferred_pandas import pandas_when_used

    with loading(), pandas_when_used():
        import_client()
        for module in EVERY_STAGE:
            importlib.import_module(module)
        load(scheme)
    connection = ForkServer(folder, name, lock, since_ns).serve()
    return 0 if connection is None else run_client(connection)


class ForkServer:
    """Forks for each task that connects, and tells it how its child has ended.

    `folder` is the Spark server's, and its user's alone; `lock` is the descriptor of the locked file.
    """

    def __init__(self, folder: Path, name: str, lock: int, since_ns: int) -> None:
        self._folder, self._name, self._lock = folder, name, lock
        files = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
        self._files = {
            # Whether it was loaded before or after a change in the meantime is not known.
            file: _content(file) if os.stat(file).st_ctime_ns < since_ns else None
            for file in (*files, sys.executable)
            if file and os.path.exists(file)
        }
        # numpy and pyarrow have idle threads, and take care of forks themselves.
        self._most_threads, self._most_bytes = _threads(), _resident() + _GROWTH
        self._poll = select.poll()
        self._clients: dict[int, tuple[int, socket.socket]] = {}
        """By a child's pidfd: its pid, and the connection."""
        self._tasks: dict[int, int] = {}
        """By a connection's descriptor: the child's pidfd."""
        self._listener: socket.socket | None = self._listen()

    def serve(self) -> socket.socket | None:
        """Serve. Return the connection in a child; None in this process, once it takes no more and no child runs."""
        while self._listener is not None or self._clients:
            ready = self._poll.poll(_LOOK_MS)
            if self._listener is not None and not _lives(self._folder):
                self._stop("the Spark server is gone")
            # Only the first: what it leads to may close the others, and give their numbers to new ones.
            for fd, _ in ready[:1]:
                if self._listener is not None and fd == self._listener.fileno():
                    connection = self._take(self._listener)
                    if connection is not None:
                        return connection
                elif fd in self._clients:
                    self._report(fd)
                elif fd in self._tasks:
                    # The task is dead, and Airflow would have ended the client with it.
                    signal.pidfd_send_signal(self._tasks.pop(fd), signal.SIGTERM)
                    self._poll.unregister(fd)
        return None

    def _listen(self) -> socket.socket:
        made = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        home = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            with suppress(FileNotFoundError):
                os.unlink(self._name, dir_fd=home)  # of one that was killed
            made.bind(f"/proc/self/fd/{home}/{self._name}")  # the folder's own path may be too long for a socket
        finally:
            os.close(home)
        made.listen(64)
        os.ftruncate(self._lock, 0)
        self._poll.register(made, select.POLLIN)
        return made

    def _take(self, listener: socket.socket) -> socket.socket | None:
        """Fork for a connection; return it in the child."""
        connection, _ = listener.accept()
        if peer_uid(connection) != os.geteuid():
            connection.close()
            return None
        why = self._why_unfit()
        if why is not None:
            self._stop(why)
            connection.close()
            return None
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # of numpy's threads, since Python 3.12
                pid = os.fork()
        except OSError as error:
            _note(f"No fork: {error}")
            connection.close()
            return None
        if pid == 0:
            self._leave(listener)
            return connection
        child = os.pidfd_open(pid)
        self._clients[child], self._tasks[connection.fileno()] = (pid, connection), child
        self._poll.register(child, select.POLLIN)
        self._poll.register(connection, 0)  # its end only; what comes on it is the child's to read
        return None

    def _report(self, child: int) -> None:
        pid, connection = self._clients.pop(child)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        self._poll.unregister(child)
        os.close(child)
        if self._tasks.pop(connection.fileno(), None) is not None:
            self._poll.unregister(connection)
        with connection, suppress(OSError):  # the task is dead
            connection.send(ENDED + str(status).encode(), socket.MSG_DONTWAIT)

    def _why_unfit(self) -> str | None:
        if not _lives(self._folder):
            return "the Spark server is gone"
        if _threads() > self._most_threads:
            return "another thread runs in it"
        if _resident() > self._most_bytes:
            return "it has grown"
        return next((f"{file} has changed" for file, loaded in self._files.items() if _content(file) != loaded), None)

    def _stop(self, why: str) -> None:
        """Take no more, so that another one may be started, and wait for the children that run."""
        _note(f"Takes no more: {why}")
        assert self._listener is not None
        self._poll.unregister(self._listener)
        self._listener.close()
        self._listener = None
        (self._folder / self._name).unlink(missing_ok=True)
        os.close(self._lock)
        if not _lives(self._folder):
            for left in (LOCK, LOG):
                (self._folder / left).unlink(missing_ok=True)
            with suppress(OSError):  # it is gone, or holds the log of a server that was killed
                self._folder.rmdir()

    def _leave(self, listener: socket.socket) -> None:
        """Close, in a child, all that is of the parent and of its other children."""
        listener.close()
        os.close(self._lock)
        for child, (_, connection) in self._clients.items():
            os.close(child)
            connection.close()


def run_client(connection: socket.socket) -> int:
    """Become what a task's new process would be, and run the client, once told so; returns the exit status."""
    os.setsid()
    with connection:
        # A task that dies closes the connection, and the parent then ends this child: no wait needs a limit.
        _, (request, output), _, _ = socket.recv_fds(connection, 1, 2)
        with open(request, encoding="utf-8") as file:
            environment = json.load(file)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.close(output)
        os.environ.clear()
        os.environ.update(environment)
        _forget_the_parent()
        submission = Submission.from_json(environment.get(VARIABLE))
        # Its words and variables are those of the fork server, for all who look from outside.
        Path("/proc/self/comm").write_text(name_of(submission.session))
        why = _module_of_its_own(submission)
        if why is not None:
            connection.send(why.encode())
            return 1
        this = os.pidfd_open(os.getpid())
        socket.send_fds(connection, [READY], [this])
        os.close(this)
        if connection.recv(len(GO)) != GO:
            return 1  # the task has started a client without a fork
    from . import client

    sys.argv = [client.__file__]
    return client.main()


def name_of(session: str) -> str:
    """Return the name of a forked client's process, as `ps -o comm` shows it: the beginning of its session's id."""
    return session[:15]


def _forget_the_parent() -> None:
    """Set anew what modules have taken from the environment, or drawn at random."""
    time.tzset()
    tempfile.tempdir = None
    random.seed()
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()


def _module_of_its_own(submission: Submission) -> str | None:
    """Name a module of the application that has the name of one loaded here: a new process would load its own."""
    path = list(submission.py_files)
    if not is_function(submission.application):
        path.append(str(Path(submission.application.removeprefix("file://")).absolute().parent))
    for module in pkgutil.iter_modules(path):
        if module.name in sys.modules:
            return f"the application has a module {module.name} of its own"
    return None


def _note(text: str) -> None:
    # Not by `logging`: the children would inherit its handlers.
    sys.stderr.write(f"{text}\n")


def peer_uid(connection: socket.socket) -> int:
    """Return the user of the process at the other end."""
    found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return int(struct.unpack("3i", found)[1])


def _lives(folder: Path) -> bool:
    """Tell whether a Spark server lives: it holds a lock on its folder, and deletes that when it ends."""
    try:
        home = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(home, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(home)
    return False


def _content(file: str) -> tuple[int, int, int]:
    """Return a mark of a file's content, which does not change when an installer links the file elsewhere."""
    try:
        found = os.stat(file)
    except OSError:
        return (0, 0, 0)
    return found.st_mtime_ns, found.st_ino, found.st_size


def _threads() -> int:
    return len(os.listdir("/proc/self/task"))


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    sys.exit(main())
