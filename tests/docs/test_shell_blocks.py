"""The documentation's commands: each is one that the command line takes, and those that only look are run."""

from __future__ import annotations

import re
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

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
LOOKS = {"jobs", "checkpoints", "show", "verify", "savepoints", "stats"}
_OTHERS = re.compile(
    r"(?:pip|aws|export|airflow|\$SPARK_HOME/sbin/start-connect-server\.sh|"
    r"python -m airflow_cairn\.(?:testing|hooks\.class_archive)|python days\.py --local)\b"
)
"""Programs of others, and what they would reach; `aws` is run where the runbook is tested,
`days.py` in tests/unit/testing/test_by_hand.py."""


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
        if words[0] in LOOKS and "--watch" not in words and "--storage" in words:  # else it looks at a savepoint
            assert cli.main(words) == 0, f"{where}: {line}: {capsys.readouterr().err}"
            ran += 1
    assert ran >= 6


@pytest.mark.parametrize(("where", "line"), [each for each in LINES if each not in CAIRN])
def test_other_commands_are_known_ones(where: str, line: str) -> None:
    if line.startswith("make "):
        assert f"\n{shlex.split(line)[1]}: " in (ROOT / "Makefile").read_text(), f"{where}: no such target"
    else:
        assert _OTHERS.match(line), f"{where}: {line}"


def test_there_are_commands() -> None:
    assert len(CAIRN) > 10
