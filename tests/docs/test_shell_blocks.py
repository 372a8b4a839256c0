"""The documentation's commands: each is one that the command line takes, and those that only look are run."""

from __future__ import annotations

import io
import json
import re
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from airflow_cairn.checkpoint import system_runtime
from airflow_cairn.cli import main as cli
from airflow_cairn.cli.arguments.parser import parser
from airflow_cairn.storage import open_store
from scripts.doc_blocks import Kind, doc_blocks
from scripts.setup.base import ROOT
from tests.support.world.world import CONFIG, World

BLOCKS = [each for each in doc_blocks(ROOT) if each.kind is Kind.SHELL]
LINES = [
    (f"{block.page}:{block.line + number}", line.removeprefix("$ ").partition("  #")[0].strip())
    for block in BLOCKS
    for number, line in enumerate(block.text.splitlines())
    if line.startswith("$ ") and "--help" not in line
]
CAIRN = [(where, line) for where, line in LINES if line.startswith("cairn ")]
CHANGES = {"adopt", "dispose", "resume", "rewind", "savepoint", "stop"}
LOOKS = {"jobs", "checkpoints", "show", "verify", "savepoints", "stats", "doctor"}
_OTHERS = re.compile(
    r"(?:pip|aws|export|airflow|\$SPARK_HOME/sbin/start-connect-server\.sh|"
    r"python -m airflow_cairn\.(?:testing|hooks\.class_archive)|python days\.py --local)\b"
)
"""Programs of others, and what they would reach; `aws` is run where the runbook is tested,
`days.py` in tests/unit/testing/test_by_hand.py."""


def verb(line: str) -> str:
    """Give the command of a line."""
    return shlex.split(line)[1]


@pytest.mark.parametrize(("where", "line"), CAIRN)
def test_the_command_line_takes_every_cairn_command(where: str, line: str) -> None:
    parser().parse_args(shlex.split(line)[1:])


def test_commands_that_look_are_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In a folder that stands for the pages' storages, where `flights` has 17 checkpoints"""
    (tmp_path / "lake").mkdir()
    world = World(open_store(f"file://{tmp_path}/lake"), replace(CONFIG, retained=20))
    for number in range(1, 18):
        world.run_epoch(f"e{number}")
    ran = 0
    for where, line in CAIRN:
        words = shlex.split(re.sub(r"(?:file|s3)://[\w./-]+", f"file://{tmp_path}/lake", line))[1:]
        if "fligths" in words:  # the one that fails: test_output_blocks.py has it
            continue
        if words[0] in LOOKS and "--watch" not in words and "--storage" in words:  # else it looks at a savepoint
            assert cli.main(words) == 0, f"{where}: {line}: {capsys.readouterr().err}"
            ran += 1
    assert ran >= 6


def contents(folder: Path) -> dict[Path, bytes]:
    """Give all files below a folder."""
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


class Answers(io.StringIO):
    """A person at a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("where", "line"), [each for each in CAIRN if verb(each[1]) in CHANGES])
def test_commands_that_change_something_are_run(
    where: str, line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each on a job of its own with three checkpoints and a savepoint; who is asked says yes"""
    (tmp_path / "lake").mkdir()
    store = open_store(f"file://{tmp_path}/lake")
    world = World(store, replace(CONFIG, retained=20))
    world.clock.now_ms = system_runtime().now_ms()
    world.read_days("e1", "e2", "e3")
    for number in range(1, 4):
        world.run_epoch(f"e{number}")
    kept = f"file://{tmp_path}/kept"
    assert cli.main(["savepoint", "flights", kept, "--storage", store.uri, "--json"]) == 0
    savepoint = json.loads(capsys.readouterr().out)["savepoint"]
    if line.startswith("cairn resume flights "):  # it goes on under its own name
        assert cli.main(["stop", "flights", "--target", kept, "--storage", store.uri]) == 0
    typed = re.sub(r"s3://lake/kept/savepoint-\S+", savepoint, line).replace("s3://lake/kept", kept)
    typed = re.sub(r"(?:s3|file):///?lake/cairn", store.uri, typed)
    monkeypatch.setattr("sys.stdin", Answers("y\n"))
    before = contents(tmp_path)
    capsys.readouterr()
    assert cli.main(shlex.split(typed)[1:]) == 0, f"{where}: {line}: {capsys.readouterr().err}"
    assert contents(tmp_path) != before, f"{where}: {line} has changed nothing"


@pytest.mark.parametrize(("where", "line"), [each for each in LINES if each not in CAIRN])
def test_other_commands_are_known_ones(where: str, line: str) -> None:
    if line.startswith("make "):
        assert f"\n{shlex.split(line)[1]}: " in (ROOT / "Makefile").read_text(), f"{where}: no such target"
    else:
        assert _OTHERS.match(line), f"{where}: {line}"


def test_there_are_commands() -> None:
    assert len(CAIRN) > 10
