"""docs/reference/cli.md has a section for each command; options and fields come from the command itself."""

import argparse
import re

import pytest

from airflow_cairn.cli.main import parser
from airflow_cairn.cli.output import hints
from scripts.reference import command
from scripts.setup.base import ROOT

REFERENCE = ROOT / "docs" / "reference"
COMMANDS: dict[str, argparse.ArgumentParser] = next(
    action.choices for action in parser()._actions if isinstance(action, argparse._SubParsersAction)
)


def section(title: str) -> str:
    """Give what stands below a title, up to the next one."""
    page = (REFERENCE / "cli.md").read_text()
    return re.split(r"^##+ ", page.partition(f"# {title}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]


@pytest.mark.parametrize("name", COMMANDS)
def test_a_section_has_its_command(name: str) -> None:
    assert f"<!-- generated: command {name} -->" in section(f"`cairn {name}`")
    written = command(name)
    assert all(option in written for action in COMMANDS[name]._actions for option in action.option_strings)
    assert hints.fields(name), f"cairn {name} --json prints an object; cli/output/fields.txt says what is in it"
    assert all(f"`{each}`" in written for each, _ in hints.fields(name) if not {",", " "} & {*each})


def test_no_other_command_has_fields() -> None:
    text = (ROOT / "cli" / "output" / "fields.txt").read_text()
    assert set(re.findall(r"^cairn (.*)$", text, re.MULTILINE)) == set(COMMANDS)
