"""docs/reference/cli.md has each option of each command, with its default and its bounds, and no other."""

import argparse
import re

import pytest

from airflow_cairn.cli.main import parser
from scripts.setup.base import ROOT

REFERENCE = ROOT / "docs" / "reference"
COMMANDS: dict[str, argparse.ArgumentParser] = next(
    action.choices for action in parser()._actions if isinstance(action, argparse._SubParsersAction)
)
WATCH = {"--watch", "--interval"}
COMMON = {"--help", "--storage", "--conn", "--endpoint-url", "--region", "--json"}


def section(title: str) -> str:
    """Give what stands below a title, up to the next one; that of the doctor is a page."""
    if title == "`cairn doctor`":
        return (REFERENCE / "doctor.md").read_text()
    page = (REFERENCE / "cli.md").read_text()
    return re.split(r"^##+ ", page.partition(f"# {title}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]


def rows(text: str) -> dict[str, str]:
    """Give the rows of options by the option."""
    found = re.findall(r"^\| (`--[^|]+)\|(.*)$", text, re.MULTILINE)
    return {name: rest for names, rest in found for name in re.findall(r"`(--[a-z-]+)", names)}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_section_has_the_words_of_its_command(command: str) -> None:
    own, said = section(f"`cairn {command}`"), rows(section("Options of all commands") + section("Watching"))
    said = {**{name: row for name, row in said.items() if name in WATCH | COMMON}, **rows(own)}
    taken = set()
    for action in COMMANDS[command]._actions:
        if not action.option_strings:
            assert str(action.metavar or action.dest) in own, f"cairn {command} takes {action.metavar}"
            continue
        names = [name for name in action.option_strings if name.startswith("--") and name != "--help"]
        taken.update(names)
        for name in names:
            fixed = re.findall(r"\b\d+\b|CAIRN_\w+|\((\w+_\w+)\)", action.help or "")
            assert all(each in said[name] for each in fixed), f"cairn {command} {name}: {action.help}"
    assert taken - WATCH - COMMON == set(rows(own)), f"cairn {command}"
    assert not taken & WATCH or "#watching" in own
