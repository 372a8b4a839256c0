"""Colours where a terminal is, and nowhere else."""

import os
import pty
from pathlib import Path

import pytest

from airflow_cairn.cli.main import main
from airflow_cairn.storage import open_store
from tests.support.world.world import World

GREEN, YELLOW, RED = "\x1b[32mCOMPLETED\x1b[0m", "\x1b[33mIN_PROGRESS\x1b[0m", "\x1b[31mcairn:\x1b[0m"


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A job with a completed checkpoint and a pending one."""
    world = World(open_store(f"file://{tmp_path}"))
    world.run_epoch("a")
    world.trigger("b")
    return world


def seen(monkeypatch: pytest.MonkeyPatch, *words: str) -> str:
    """Run a command on a terminal, and give what it shows there."""
    master, slave = pty.openpty()
    with os.fdopen(slave, "w") as terminal:
        monkeypatch.setattr("sys.stdout", terminal)
        monkeypatch.setattr("sys.stderr", terminal)
        main(list(words))
        terminal.flush()
        shown = os.read(master, 1 << 16).decode()
    os.close(master)
    return shown


def test_states_and_errors_have_colours_on_a_terminal(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    table = seen(monkeypatch, "checkpoints", "flights", "--storage", world.store.uri)
    assert GREEN in table
    assert YELLOW in table
    assert RED in seen(monkeypatch, "checkpoints", "nope", "--storage", world.store.uri)


@pytest.mark.parametrize(
    ("name", "value", "words"), [("NO_COLOR", "1", ()), ("TERM", "dumb", ()), ("TERM", "xterm", ("--json",))]
)
def test_who_wants_none_gets_none(
    world: World, monkeypatch: pytest.MonkeyPatch, name: str, value: str, words: tuple[str, ...]
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv(name, value)
    for job in ("flights",) if words else ("flights", "nope"):
        assert "\x1b" not in seen(monkeypatch, "checkpoints", job, *words, "--storage", world.store.uri)


def test_a_file_gets_none(world: World, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    assert main(["checkpoints", "flights", "--storage", world.store.uri]) == 0
    assert "\x1b" not in capsys.readouterr().out


def test_a_name_is_no_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    world = World(open_store(f"file://{tmp_path}"))
    world.run_epoch("FAILED-over")
    shown = seen(monkeypatch, "jobs", "--storage", world.store.uri)
    assert "FAILED-over" in shown
    assert "\x1b[31m" not in shown
