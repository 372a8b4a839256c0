"""Finds the program that the demonstration is asked to kill, and stops it in the middle of its write."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import psutil

from airflow_cairn.spark.remote.fork_server import name_of
from airflow_cairn.spark.remote.submission import RELEASE, VARIABLE, session_id

from ..harness.wait import wait_until

SERVER = "server"
"""In the place of a stage: the Spark server that all stages share."""
_CLIENT = "airflow_cairn.spark.remote.client"
_STEP_S = 0.03
"""Seconds that a program runs between two looks at what it has done."""


@dataclass(frozen=True)
class KillOrder:
    """The process to kill, and the epoch in which to kill it (1-based)."""

    stage: str
    """The stage whose driver, or whose client, is killed; or `SERVER`."""
    epoch: int


def programs_of(handover_key: str, token: str) -> list[psutil.Process]:
    """Find the program that was started with a handover: a driver's JVM, or the client of a Spark server."""
    return _processes(lambda process: _runs(process, handover_key, name_of(session_id(token))))


def servers_of(nonce: str) -> list[psutil.Process]:
    """Find the JVM of a job's Spark server."""
    folder = f"cairn-server-{nonce}"
    return _processes(lambda process: is_java(process) and any(folder in word for word in process.cmdline()))


def caught_writing(
    programs: list[psutil.Process], has_written: Callable[[], bool], has_acknowledged: Callable[[], bool]
) -> bool:
    """Let a program run a step at a time until it writes, so that it cannot be done between two looks.

    Returns:
        Whether it stands still in the middle of its write. If not, it runs on, or has ended.
    """
    pause = threading.Event()
    while _running(programs):
        send(programs, signal.SIGSTOP)
        # The signal is sent before it has come.
        wait_until(lambda: _running(programs) <= {psutil.STATUS_STOPPED}, 60, "the program to stand still", interval=0)
        if has_acknowledged():
            break
        if has_written():
            return True
        send(programs, signal.SIGCONT)
        pause.wait(_STEP_S)
    send(programs, signal.SIGCONT)
    return False


def is_java(process: psutil.Process) -> bool:
    """Tell whether a process is a JVM."""
    return "java" in process.cmdline()[0]


def send(programs: list[psutil.Process], number: signal.Signals) -> str:
    """Send a signal to processes and all below them; gives their ids as text."""
    told = []
    for program in programs:
        with suppress(psutil.NoSuchProcess):
            for each in (program, *program.children(recursive=True)):
                with suppress(psutil.NoSuchProcess):
                    each.send_signal(number)
                    told.append(str(each.pid))
    return ", ".join(told)


def _running(programs: list[psutil.Process]) -> set[str]:
    """Give the states of those programs that have not ended, and of all below them."""
    states: set[str] = set()
    for program in programs:
        with suppress(psutil.NoSuchProcess):
            states |= {each.status() for each in (program, *program.children(recursive=True))}
    return states - {psutil.STATUS_ZOMBIE}


def _processes(wanted: Callable[[psutil.Process], bool]) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):  # it has just ended, or is another user's
            if process.cmdline() and wanted(process):
                found.append(process)
    return found


def _runs(process: psutil.Process, handover_key: str, forked: str) -> bool:
    words = process.cmdline()
    if process.name() == forked:
        return True
    if is_java(process):
        return any(word.endswith(handover_key) for word in words)
    return _CLIENT in words and words[-1] != RELEASE and handover_key in process.environ().get(VARIABLE, "")
