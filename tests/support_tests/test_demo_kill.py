"""The demonstration kills a program while it writes, and not after its acknowledgement."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import psutil
import pytest

from airflow_cairn.checkpoint.documents import layout
from airflow_cairn.checkpoint.documents.attempt import Handover
from airflow_cairn.checkpoint.documents.server_record import KEY, ServerEntry, ServersDocument, ServerState
from airflow_cairn.checkpoint.reasons import AckAnswer
from airflow_cairn.spark.remote.submission import RELEASE, VARIABLE
from scripts.demo.strike import SERVER, KillOrder, caught_writing, send
from scripts.demo.watch import AT_WORK, Watcher
from tests.support.acking import ack_of
from tests.support.memory_store import MemoryStore
from tests.support.world.world import World

NONCE = "53505fb4cdec7f66"
WAITS = "import sys; print('ready', flush=True); sys.stdin.read()"
CLIENT = "airflow_cairn.spark.remote.client"


def started(name: str, *words: str, **env: str) -> subprocess.Popen[str]:
    """Start a process that only has the name and the words of another one; it lives until it is killed."""
    process = subprocess.Popen(
        [name, "-c", WAITS, *words],
        executable=sys.executable,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **env},
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


class Play:
    """A job in its first epoch, one of whose stages has a program that has written its first file.

    Args:
        order: what is to be killed.
    """

    def __init__(self, order: KillOrder) -> None:
        self.world = World(MemoryStore())
        self.world.trigger("e1")
        self.world.run_stage("e1", "clean")
        self.handover: Handover = self.world.submit("e1", AT_WORK).handover
        at = self.handover
        self.key = layout.handover(at.checkpoint, AT_WORK, at.token)
        self.world.files.create_bytes(
            f"{layout.execution_folder(at.checkpoint, AT_WORK, at.attempt, at.token)}part", b"x"
        )
        self.said: list[str] = []
        self.processes: list[subprocess.Popen[str]] = []
        self.watcher = Watcher(self.world.coordinator(), self.said.append, order)

    def driver(self) -> subprocess.Popen[str]:
        """Start what looks like the stage's driver."""
        return self._kept(started("java", self.key))

    def client(self, *words: str) -> subprocess.Popen[str]:
        """Start what looks like the stage's client of a Spark server."""
        submission = json.dumps({"handed": {"spark.cairn.handover": self.key}})
        return self._kept(started("python", CLIENT, *words, **{VARIABLE: submission}))

    def server(self) -> subprocess.Popen[str]:
        """Start what looks like the job's Spark server."""
        entry = ServerEntry(NONCE, "here", ServerState.UP, 1, 2)
        self.world.files.create(KEY, ServersDocument(self.world.files.job, 1, (entry,)))
        return self._kept(started("java", f"/tmp/cairn-server-{NONCE}/server.py"))

    def _kept(self, process: subprocess.Popen[str]) -> subprocess.Popen[str]:
        self.processes.append(process)
        return process


def play_of(order: KillOrder) -> Iterator[Play]:
    play = Play(order)
    yield play
    for process in play.processes:
        process.kill()
        process.communicate()


@pytest.fixture
def play() -> Iterator[Play]:
    yield from play_of(KillOrder(AT_WORK, 1))


@pytest.fixture
def play_with_server() -> Iterator[Play]:
    yield from play_of(KillOrder(SERVER, 1))


def test_a_driver_that_writes_is_killed(play: Play) -> None:
    driver = play.driver()
    play.watcher.look()
    assert play.watcher.killed == KillOrder(AT_WORK, 1)
    assert driver.wait(300) == -9
    assert f"SIGKILL to the Spark driver of {AT_WORK}, while it writes" in play.said[-1]
    assert not play.watcher.recovered, "no attempt has failed yet"


def test_a_client_that_writes_is_killed_and_what_releases_another_is_not(play: Play) -> None:
    releases, client = play.client(RELEASE), play.client()
    play.watcher.look()
    assert client.wait(300) == -9
    assert f"SIGKILL to {AT_WORK}, while Spark writes for it (process {client.pid})" in play.said[-1]
    assert releases.poll() is None


def test_the_server_is_killed_while_the_client_stands_still(play_with_server: Play) -> None:
    client, server = play_with_server.client(), play_with_server.server()
    play_with_server.watcher.look()
    assert server.wait(300) == -9
    assert play_with_server.said[-1].startswith(f"  >>> SIGKILL to the Spark server, while it writes for {AT_WORK}")
    assert f"a Spark server is up, and all stages share it: {NONCE}" in play_with_server.said[0]
    assert psutil.Process(client.pid).status() != psutil.STATUS_STOPPED


def test_one_that_has_acknowledged_goes_on(play: Play) -> None:
    # semantics A2
    driver = play.driver()
    assert play.world.coordinator().acknowledge(ack_of(play.handover)) is AckAnswer.SUCCESS
    play.watcher.look()
    assert play.watcher.killed is None
    assert driver.poll() is None
    assert psutil.Process(driver.pid).status() != psutil.STATUS_STOPPED
    assert play.said[-1] == (f"  {AT_WORK} has acknowledged before it could be killed; the next epoch has its turn")
    said = list(play.said)
    play.watcher.look()
    assert play.said == said


def test_a_program_runs_a_step_at_a_time_until_it_writes(play: Play) -> None:
    driver = play.driver()
    process = psutil.Process(driver.pid)
    looks: list[str] = []

    def has_written() -> bool:
        looks.append(process.status())
        return len(looks) == 3

    assert caught_writing([process], has_written, lambda: False)
    assert looks == [psutil.STATUS_STOPPED] * 3
    send([process], signal.SIGKILL)
    assert not caught_writing([process], lambda: False, lambda: False), "it has ended"
