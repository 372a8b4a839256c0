"""Processes end with their starter, whatever ends that."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from scripts.harness import priority
from scripts.harness.processes import ProcessDiedError, RealProcess
from scripts.harness.wait import WaitTimeoutError, wait_until

pytestmark = pytest.mark.large

ROOT = Path(__file__).parents[2]

# A child that leaves the tree: its parent ends at once, it runs in a session of its own.
_ORPHAN_MAKER = """
import pathlib, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
pathlib.Path(sys.argv[1]).write_text(str(child.pid))
"""

_STARTER = """
import pathlib, signal, sys, threading
# What the one who runs the tests ignores (nohup, a shell's background) is inherited: this process must not care.
signal.signal(signal.SIGINT, signal.default_int_handler)
for number in (signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, signal.SIG_DFL)
from scripts.harness.processes import RealProcess
folder = pathlib.Path(sys.argv[1])
RealProcess("sleep", ["sleep", "600"], folder / "log")
RealProcess("orphans", [sys.executable, "-c", sys.argv[2], str(folder / "orphan")], folder / "log2")
while not (folder / "orphan").exists() or not (folder / "orphan").read_text():
    threading.Event().wait(0.05)
print("ready", flush=True)
if sys.argv[3] == "fall":
    raise RuntimeError("fallen")
threading.Event().wait()
"""


_NICE = """
import os, pathlib, sys
os.setpriority(os.PRIO_PROCESS, 0, 12)
from scripts.harness import priority
from scripts.harness.processes import RealProcess
# Not every system has a niceness of sessions, or lets one set it.
priority.set_session_niceness = lambda pid, niceness: set_.append((pid, niceness))
set_ = []
with RealProcess("sleep", ["sleep", "600"], pathlib.Path(sys.argv[1]) / "log") as started:
    print(os.getpriority(os.PRIO_PROCESS, started.pid), set_ == [(started.pid, 12)])
"""


def _mine(folder: Path) -> list[int]:
    pids = []
    for process in psutil.process_iter():
        try:
            out = any(str(folder) in file.path for file in process.open_files())
        except psutil.Error:
            continue
        if out and process.status() != psutil.STATUS_ZOMBIE:
            pids.append(process.pid)
    orphan = folder / "orphan"
    if orphan.exists() and psutil.pid_exists(int(orphan.read_text())):
        pids.append(int(orphan.read_text()))
    return pids


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, "fall"])
def test_nothing_outlives_the_one_who_started_it(tmp_path: Path, end: signal.Signals | str) -> None:
    command = [sys.executable, "-c", _STARTER, str(tmp_path), _ORPHAN_MAKER, str(end)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as starter:
        assert starter.stdout is not None
        assert starter.stdout.readline() == b"ready\n"
        if isinstance(end, signal.Signals):
            starter.send_signal(end)
        assert starter.wait(timeout=300) != 0
    wait_until(lambda: not _mine(tmp_path), 300, "every process to be gone")


def test_one_gives_way_as_its_starter_does(tmp_path: Path) -> None:
    """The session gives way too: Linux shares the processor among sessions first."""
    command = [sys.executable, "-c", _NICE, str(tmp_path)]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=600).stdout
    assert said.split() == ["12", "True"]


def test_the_niceness_of_a_session_is_read_and_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "autogroup"
    monkeypatch.setattr(priority, "_file", lambda pid: file if pid == 7 else tmp_path / "none")
    file.write_text("/autogroup-81 nice 5\n")
    assert priority.session_niceness(7) == 5
    priority.set_session_niceness(7, 12)
    assert file.read_text() == "12"
    # The session of the system's first process has none: Linux shows an empty file.
    file.write_text("")
    assert priority.session_niceness(7) is None
    assert priority.session_niceness(8) is None


def test_a_niceness_that_may_not_be_set_holds_nothing_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(priority, "_file", lambda _pid: tmp_path)
    priority.set_session_niceness(7, 12)
    assert tmp_path.is_dir()


def test_one_that_ignores_sigterm_is_ended_all_the_same(tmp_path: Path) -> None:
    stubborn = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"
    )
    with RealProcess("stubborn", [sys.executable, "-c", stubborn], tmp_path / "log") as process:
        process.wait_until(lambda: "up" in process.log_tail(), 300, "its first line")
        pid = process.pid
        process.stop(grace=0.3)
    assert not psutil.pid_exists(pid)
    assert process.returncode == -signal.SIGKILL


def test_a_death_while_waiting_shows_status_and_log(tmp_path: Path) -> None:
    with RealProcess("short", ["sh", "-c", "echo last words; exit 3"], tmp_path / "log") as process:
        process.reap()
        with pytest.raises(
            ProcessDiedError, match=r"short ended with status 3 while waiting for luck\n(.*\n)*last words"
        ):
            process.wait_until(lambda: False, 5, "luck")


def test_a_wait_in_vain_names_what_it_waited_for(tmp_path: Path) -> None:
    with (
        RealProcess("idle", ["sh", "-c", "echo here; sleep 600"], tmp_path / "log") as process,
        pytest.raises(WaitTimeoutError, match=r"waited 0\.2 s for luck"),
    ):
        process.wait_until(lambda: False, 0.2, "luck")
