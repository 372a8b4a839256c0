"""Processes that cannot be left behind.

Each is started in a session of its own with a log file, and is ended by its id together with everything below it.
Children that left the tree (a double fork, a parent that died) are found by their session, and by a mark in their
environment. Neither alone will do: Airflow's processes overwrite their environment when they set their title
(measured), others start sessions of their own. What still runs is ended when the interpreter exits, also after SIGINT
or SIGTERM.
"""

from __future__ import annotations

import atexit
import os
import pwd
import secrets
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import TypeVar

import psutil

from . import priority
from .wait import WaitTimeoutError, wait_until

T = TypeVar("T")

MARK = "SPARK_CAIRN_HARNESS_MARK"
"""The variable by which a process that left the tree is found; as one of SPARK_ a fork server gets it, too."""

_running: dict[int, RealProcess] = {}


class ProcessDiedError(AssertionError):
    """A process ended although it was still needed. The text holds its status and the end of its log."""


class RealProcess:
    """One started process and all that it starts.

    It runs as `user`, with the user's own group: only root may choose.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str | Path],
        log: Path,
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        user: str | None = None,
    ) -> None:
        _end_all_at_exit()
        self.name = name
        self.log = log
        self._mark = secrets.token_hex(8)
        log.parent.mkdir(parents=True, exist_ok=True)
        full = {**(os.environ if env is None else env), MARK: self._mark}
        with log.open("ab") as out:
            self._popen = subprocess.Popen(
                [str(word) for word in command],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env=full,
                cwd=cwd,
                user=user,
                group=None if user is None else pwd.getpwnam(user).pw_gid,
                extra_groups=None if user is None else [],
                start_new_session=True,
            )
        priority.pass_on(self.pid)
        _running[self.pid] = self

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def returncode(self) -> int | None:
        return self._popen.poll()

    def log_tail(self, lines: int = 40) -> str:
        text = self.log.read_text(errors="replace").splitlines()[-lines:]
        return "\n".join([f"--- end of {self.name}'s log {self.log} ---", *text])

    def family(self) -> list[psutil.Process]:
        """Give the process and all its descendants that run now, those that left the tree included."""
        found = {process.pid: process for process in _descendants(self.pid)}
        for process in psutil.process_iter():
            if process.pid not in found and self._is_ours(process):
                found.update((member.pid, member) for member in _descendants(process.pid))
        return [process for process in found.values() if _is_alive(process)]

    def _is_ours(self, process: psutil.Process) -> bool:
        try:
            return os.getsid(process.pid) == self.pid or process.environ().get(MARK) == self._mark
        except (psutil.Error, OSError):  # it has just ended, or is another user's
            return False

    def wait_until(self, condition: Callable[[], T | None], timeout: float, what: str) -> T:
        """Wait for a condition while the process lives (see `wait.wait_until`)."""

        def asked() -> T | None:
            answer = condition()
            if not answer and self.returncode is not None:
                text = f"{self.name} ended with status {self.returncode} while waiting for {what}"
                raise ProcessDiedError(f"{text}\n{self.log_tail()}")
            return answer

        return wait_until(asked, timeout, what, details=self.log_tail)

    def reap(self) -> None:
        """Take the exit status of the process, which has ended or is about to."""
        self._popen.wait()

    def kill(self) -> None:
        """End the process alone at once (SIGKILL), leaving its children to themselves; waits until it is gone."""
        self._popen.kill()
        self._popen.wait()

    def stop(self, grace: float = 10.0) -> None:
        """End the process and all below it: SIGTERM, then SIGKILL to what still runs. A second call does nothing."""
        stop_all([self], grace)

    def __enter__(self) -> RealProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def _descendants(pid: int) -> list[psutil.Process]:
    try:
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _is_alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _signal(process: psutil.Process, number: signal.Signals) -> None:
    try:
        process.send_signal(number)
    except psutil.NoSuchProcess:
        return


def stop_all(processes: Sequence[RealProcess], grace: float = 10.0) -> None:
    """End several processes and all below them together: SIGTERM, then SIGKILL to what still runs.

    Processes that ended already may have left children, which are ended too. Without grace they get SIGKILL at once.
    """
    if grace > 0:
        for member in _family(processes):
            _signal(member, signal.SIGTERM)
        _wait_for_end(processes, grace)
    # Asked again, because a parent may have started more while it ended.
    while left := _family(processes):
        for member in left:
            _signal(member, signal.SIGKILL)
        _wait_for_end(processes, 5.0)
    for process in processes:
        process.reap()
        _running.pop(process.pid, None)


def _family(processes: Sequence[RealProcess]) -> list[psutil.Process]:
    return [member for process in processes for member in process.family()]


def _wait_for_end(processes: Sequence[RealProcess], timeout: float) -> None:
    # Not psutil's own wait: it would take our children's exit status before Popen does.
    with suppress(WaitTimeoutError):
        wait_until(lambda: not _family(processes), timeout, "the processes to end")


def end_all() -> None:
    """End every process that this module started and that still runs."""
    stop_all(list(_running.values()), grace=5.0)


_armed = False


def _end_all_at_exit() -> None:
    """Register `end_all` once, for the interpreter's end and for SIGTERM and SIGHUP.

    SIGINT needs nothing: it becomes KeyboardInterrupt, unwinds, and the interpreter ends.
    """
    global _armed  # noqa: PLW0603 - one registration a process
    if _armed:
        return
    _armed = True
    atexit.register(_end_mine, os.getpid())
    if threading.current_thread() is not threading.main_thread():
        return
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _leave)


def _end_mine(owner: int) -> None:
    # A fork (multiprocessing) inherits the handlers, and must not end its parent's processes.
    if os.getpid() == owner:
        end_all()


def _leave(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + number)
