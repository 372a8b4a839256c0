"""`--watch` as its user sees it: a real process on a terminal and in a pipe (semantics O1, O2)."""

import fcntl
import io
import json
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from airflow_cairn.checkpoint.reasons import Reason
from airflow_cairn.checkpoint.views import checkpoint_list
from airflow_cairn.cli.commands import Outcome
from airflow_cairn.cli.main import Watch, main
from airflow_cairn.storage import open_store
from airflow_cairn.storage.errors import ForbiddenError, StorageError, UnavailableError
from tests.support.world.world import World

PATIENCE_S = 300


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A job with a pending checkpoint."""
    world = World(open_store(f"file://{tmp_path}"))
    world.trigger("a")
    return world


class Terminal:
    """A process on a terminal of 24 lines and 80 columns, and what it has drawn."""

    def __init__(self, master: int, process: subprocess.Popen[bytes]) -> None:
        self._master = master
        self.process = process
        self.text = ""

    def wait_for(self, text: str) -> None:
        """Read until a text has come, and forget what came up to it."""
        deadline = time.monotonic() + PATIENCE_S
        while text not in self.text:
            assert time.monotonic() < deadline, self.text
            if select.select([self._master], [], [], 1)[0] and not self._read():
                assert text in self.text, f"it has ended: {self.text}"
        self.text = self.text.partition(text)[2]

    def wait_for_the_end(self) -> int:
        """Read what is left, and give the exit status."""
        while self._read():
            pass
        return self.process.wait(PATIENCE_S)

    def _read(self) -> bool:
        try:
            self.text += os.read(self._master, 65536).decode()
        except OSError:  # the process has ended, and with it the other side
            return False
        return True


@contextmanager
def terminal(world: World, *words: str) -> Iterator[Terminal]:
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    env = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    env["NO_COLOR"] = "1"
    command = [sys.executable, "-m", "airflow_cairn.cli.main", *words, "--storage", world.store.uri, "--watch"]
    process = subprocess.Popen([*command, "--interval", "1"], stdin=slave, stdout=slave, stderr=slave, env=env)
    os.close(slave)
    try:
        yield Terminal(master, process)
    finally:
        process.kill()
        process.wait()
        os.close(master)


def test_show_redraws_at_each_ack_and_ends_with_the_checkpoint(world: World) -> None:
    with terminal(world, "show", "flights", "1") as screen:
        screen.wait_for("0 of 4 stages")
        screen.wait_for("looking every 1 s, Ctrl-C ends")
        world.run_stage("a", "clean")  # changes no head: it is the marker that is seen
        screen.wait_for("1 of 4 stages")
        world.coordinator().abort(1, Reason.JOB_FAILURE, "by hand")
        screen.wait_for("checkpoint 1 of flights: FAILED")
        screen.wait_for("; over")
        assert screen.wait_for_the_end() == 0


@pytest.mark.parametrize("words", [("checkpoints", "flights"), ("show", "flights"), ("stats", "flights")])
def test_the_others_go_on_until_ctrl_c(world: World, words: tuple[str, ...]) -> None:
    with terminal(world, *words) as screen:
        screen.wait_for("Ctrl-C ends")
        world.coordinator().abort(1, Reason.JOB_FAILURE, "by hand")
        screen.wait_for("JOB_FAILURE")
        screen.wait_for("Ctrl-C ends")
        screen.process.send_signal(signal.SIGINT)
        assert screen.wait_for_the_end() == 130
        assert "Traceback" not in screen.text


def test_ctrl_c_counts_at_any_moment_of_a_wait(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    release = threading.Condition._release_save  # type: ignore[attr-defined] # its own, and there it strikes

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    def release_and_interrupt(condition: threading.Condition) -> None:
        release(condition)
        interrupt()

    # A Ctrl-C comes where a condition is waited for: between two lines that leave its lock in a state of its own.
    monkeypatch.setattr(threading.Condition, "_release_save", release_and_interrupt)
    monkeypatch.setattr(time, "sleep", interrupt)
    assert main(["stats", "flights", "--storage", world.store.uri, "--watch"]) == 130


def test_into_a_pipe_what_is_new_is_appended(world: World) -> None:
    command = [sys.executable, "-m", "airflow_cairn.cli.main", "show", "flights", "1", "--storage", world.store.uri]
    process = subprocess.Popen([*command, "--watch", "--json", "--interval", "1"], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["checkpoint"]["acks"] == 0
        world.run_stage("a", "clean")
        assert json.loads(process.stdout.readline())["checkpoint"]["acks"] == 1
        world.coordinator().abort(1, Reason.JOB_FAILURE, "by hand")
        assert json.loads(process.stdout.readline())["checkpoint"]["status"] == "FAILED"
        assert process.stdout.readline() == ""
        assert process.wait(PATIENCE_S) == 0
    finally:
        process.kill()
        process.communicate()


def test_what_has_not_changed_is_not_shown_again() -> None:
    pulses = iter([1, 1, 2, 2, 2])
    shown = iter(["one", "two"])
    waits: list[float] = []
    out, err = io.StringIO(), io.StringIO()

    def wait(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 5:
            raise KeyboardInterrupt

    watch = Watch(lambda: Outcome([next(shown)], {}), lambda: next(pulses), 7, wait, lambda: 0)
    with pytest.raises(KeyboardInterrupt):
        watch.run(out, err)
    assert waits == [7] * 5, "it looks once an interval"
    assert out.getvalue() == "--- 1970-01-01 00:00:00Z\none\n--- 1970-01-01 00:00:00Z\ntwo\n"
    assert err.getvalue() == ""


def pulses_of(*answers: object) -> Callable[[], Hashable]:
    left = iter(answers)

    def pulse() -> Hashable:
        answer = next(left)
        if isinstance(answer, Exception):
            raise answer
        return answer

    return pulse


def test_a_store_that_does_not_answer_is_asked_again() -> None:  # semantics W3
    out, err = io.StringIO(), io.StringIO()
    looks = iter([Outcome(["one"], {}), Outcome(["again"], {}, over=True)])
    pulse = pulses_of(1, UnavailableError("timed out"), UnavailableError("timed out"), 1)
    Watch(lambda: next(looks), pulse, 1, lambda seconds: None, lambda: 0).run(out, err)
    assert out.getvalue().splitlines()[1::2] == ["one", "again"]
    assert err.getvalue() == "cairn: timed out; asking again\n", "said once"


@pytest.mark.parametrize("pulses", [(UnavailableError("timed out"),), (1, ForbiddenError("refused"))])
def test_other_errors_end_it_and_so_does_a_first_look_that_fails(pulses: tuple[object, ...]) -> None:
    watch = Watch(lambda: Outcome([], {}), pulses_of(*pulses), 1, lambda seconds: None, lambda: 0)
    with pytest.raises(StorageError, match=r"timed out|refused"):
        watch.run(io.StringIO(), io.StringIO())


def test_the_pulse_of_one_checkpoint_is_its_own_and_the_heads() -> None:  # semantics O1
    world = World()
    world.trigger("a")

    def pulses() -> list[Hashable]:
        return [checkpoint_list.pulse(world.coordinator(), each) for each in (None, 1, 2)]

    before = pulses()
    world.drive(world.submit("a", "clean").handover)
    assert [old == new for old, new in zip(before, pulses(), strict=True)] == [False, False, True]
