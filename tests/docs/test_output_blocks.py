"""The documentation's output has its maker beside it; what `cairn` prints of a job is compared with what a page shows.

A console block shows its maker: the command above the output. Where no test here types that, and above each block
`text`, a comment that no reader sees names it: `<!-- printed by: … -->` with a command of the page, or with the file
that has the words. What no program prints is a drawing: `<!-- drawing -->`.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from airflow_cairn.cli import main as cli
from airflow_cairn.storage import open_store
from scripts.check_docs import pages
from scripts.doc_blocks import TUTORIAL, Kind, doc_blocks
from scripts.markdown import Block, parse
from scripts.setup.base import ROOT
from tests.docs.outputs import JOBS
from tests.docs.test_shell_blocks import Answers

_MARK = re.compile(r"<!-- (?:drawing|printed by: (?P<maker>.+)) -->")
_NAMES = (
    "cairn_airflow_api|epoch|routes|totals|airports|report|flights|clean|tidy|lake|in the whole bucket|what  |why  |"
    "to mend it  "
)
_NOT_FIXED = re.compile(rf"\S*\d\S*|…|`.*?`|\(.*?\)|\b(?:{_NAMES})|[:·;,.]")
"""Parts that differ each time in a line that some source prints."""
_STORAGE = re.compile(r"--storage ((?:file|s3)://\S+)")


class Printed:
    """A block with output.

    Args:
        page: its path in the repository.
        block: the block.
        mark: the line above it.
    """

    def __init__(self, page: str, block: Block, mark: str) -> None:
        self.page, self.block, self.mark = page, block, _MARK.fullmatch(mark.strip())

    @property
    def where(self) -> str:
        """Name it as an editor does."""
        return f"{self.page}:{self.block.first_line}"

    @property
    def maker(self) -> str:
        """Name above the block of what printed it; empty without one."""
        return (self.mark["maker"] or "") if self.mark else ""

    def typed(self) -> list[tuple[str, str]]:
        """Give the commands, each with what the page shows below it."""
        parts = re.split(r"^\$ ", self.block.text.replace("\\\n", ""), flags=re.MULTILINE)[1:]
        return [(command, output.strip("\n")) for command, _, output in (part.partition("\n") for part in parts)]

    def job(self) -> str:
        """Say how the first of its commands begins for which a job is made here; empty if there is none."""
        return next((begin for begin in JOBS for command, _ in self.typed() if command.startswith(f"{begin} ")), "")


def outputs() -> list[Printed]:
    """Give each block with output that no other check compares: those of the tutorial and the help are."""
    found = []
    for path in pages(ROOT):
        name, lines = path.relative_to(ROOT).as_posix(), path.read_text().splitlines()
        if name == TUTORIAL or not (name.startswith("docs/") or "/" not in name):
            continue
        for block in parse(path.read_text()).blocks:
            each = Printed(name, block, lines[block.first_line - 3] if block.first_line > 2 else "")
            if block.language == "text" or (block.language == "console" and any(output for _, output in each.typed())):
                found.append(each)
    return [each for each in found if "--help\n" not in each.block.text]


OUTPUTS = outputs()
COMPARED = [each for each in OUTPUTS if each.block.language == "console" and each.job()]


def same(text: str) -> str:
    """Give a text without its random ids, its line breaks and the answer that a user types."""
    text = re.sub(r"\b(?:1-)?[0-9a-f]{16}\b|\b(?:1-)?[0-9a-f]{4}…", "ID", text)
    return " ".join(text.replace("[y/N] y\n", "[y/N] ").split())


@pytest.mark.parametrize("each", OUTPUTS, ids=lambda each: each.where)
def test_every_output_has_its_maker_beside_it(each: Printed) -> None:
    console = each.block.language == "console"
    assert each.mark or (console and each in COMPARED), f"{each.where}: write <!-- printed by: … --> above it"
    assert each.maker or not (console and each.mark), f"{each.where}: a console block is no drawing"


@pytest.mark.parametrize("each", [each for each in OUTPUTS if each.maker], ids=lambda each: each.where)
def test_the_maker_is_there_and_has_the_words(each: Printed) -> None:
    page = (ROOT / each.page).read_text()
    if each.maker.startswith(("make ", "cairn ")):
        assert f"\n$ {each.maker}" in page, f"{each.where}: the page has no such command"
        return
    text = "\n".join((ROOT / name).read_text() for name in each.maker.split(", "))
    text = re.sub(r'"\s*\n\s*f?"', "", text)
    shown = "\n".join(line for line in each.block.text.splitlines() if not line.startswith("$ "))
    fixed = [part.strip() for part in _NOT_FIXED.split(shown) if len(part.split()) > 2]
    assert fixed, f"{each.where} has no words to find"
    assert [part for part in fixed if not is_in(part, text)] == []


def is_in(part: str, text: str) -> bool:
    """Tell whether a text has these words, or those of each line if they are lines of their own."""
    lines = part.splitlines()
    return " ".join(part.split()) in text or (
        len(lines) > 1 and all(line.strip() in text for line in lines if len(line.split()) > 2)
    )


@pytest.mark.parametrize("each", COMPARED, ids=lambda each: each.where)
def test_commands_print_what_the_page_shows(
    each: Printed, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line `…` at the end stands for the rest"""
    monkeypatch.setenv("COLUMNS", "100")
    (tmp_path / "dags").mkdir()
    for block in doc_blocks(ROOT):
        # The first DAG of the page is the one that it goes on about.
        if block.page == each.page and block.kind is Kind.DAG:
            (tmp_path / "dags" / "flights.py").write_text(block.dag_file().replace('DAG("docs"', 'DAG("flights"'))
            break
    monkeypatch.chdir(tmp_path)
    JOBS[each.job()](open_store(f"file://{tmp_path}"))
    monkeypatch.setattr("sys.stdin", Answers("y\n"))
    for command, output in each.typed():
        storage = next(iter(_STORAGE.findall(command)), "no storage")
        cli.main(shlex.split(command.replace(storage, f"file://{tmp_path}"))[1:])
        said = capsys.readouterr()
        logs_elsewhere = command.startswith("cairn regions ")  # Airflow's log is on standard error
        printed = same(((not logs_elsewhere) * said.err + said.out).replace(f"file://{tmp_path}", storage))
        wanted, cut, _ = output.partition("\n…")
        assert (printed[: len(same(wanted))] if cut else printed) == same(wanted), f"{each.where}: {command}\n{said}"


def test_there_are_outputs() -> None:
    assert len(COMPARED) >= 6
    assert sum(not each.maker for each in OUTPUTS) > len(COMPARED), "there are drawings too"
