"""The demonstration kills a driver while it writes, and not after its acknowledgement."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import psutil
import pytest

from airflow_cairn.checkpoint.documents import layout
from airflow_cairn.checkpoint.documents.attempt import Handover
from airflow_cairn.checkpoint.reasons import AckAnswer
from scripts.demo.watch import KillOrder, Watcher
from tests.support.acking import ack_of
from tests.support.jobs import wide
from tests.support.memory_store import MemoryStore

STAGE = "flights.stage_00"


class Play:
    """A job in its first epoch, whose only stage has a driver that has written its first file."""

    def __init__(self) -> None:
        self.world = wide(MemoryStore(), 1)
        self.world.trigger("e1")
        self.handover: Handover = self.world.submit("e1", STAGE).handover
        at = self.handover
        key = layout.handover(at.checkpoint, STAGE, at.token)
        program = "import sys; print('ready', flush=True); sys.stdin.read()"
        self.driver = subprocess.Popen(
            ["java", "-c", program, key],
            executable=sys.executable,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.driver.stdout is not None
        assert self.driver.stdout.readline() == "ready\n"
        self.world.files.create_bytes(
            f"{layout.execution_folder(at.checkpoint, STAGE, at.attempt, at.token)}part", b"x"
        )
        self.said: list[str] = []
        self.watcher = Watcher(self.world.coordinator(), self.said.append, KillOrder(STAGE, 1))


@pytest.fixture
def play() -> Iterator[Play]:
    play = Play()
    yield play
    play.driver.kill()
    play.driver.communicate()


def test_a_driver_that_writes_is_killed(play: Play) -> None:
    play.watcher.look()
    assert play.watcher.killed
    assert play.driver.wait(300) == -9
    assert "SIGKILL to the Spark driver" in play.said[-1]


def test_one_that_has_acknowledged_goes_on(play: Play) -> None:
    # semantics A2
    assert play.world.coordinator().acknowledge(ack_of(play.handover)) is AckAnswer.SUCCESS
    play.watcher.look()
    assert not play.watcher.killed
    assert play.driver.poll() is None
    assert psutil.Process(play.driver.pid).status() != psutil.STATUS_STOPPED
    assert play.said[-1] == f"  the Spark driver of {STAGE} has acknowledged before it could be killed"
    said = list(play.said)
    play.watcher.look()
    assert play.said == said
