"""What cannot be done is said before anything else, and a storage that is not there is no empty one (semantics O2)."""

import re
from pathlib import Path

import pytest

from airflow_cairn.cli.main import main
from airflow_cairn.cli.output import listings
from airflow_cairn.storage import open_store
from tests.support.documented import DOCS
from tests.support.world.world import World


def test_a_root_that_does_not_exist_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    there = tmp_path / "there"
    there.mkdir()
    assert main(["jobs", "--storage", f"file://{there}"]) == 0
    assert capsys.readouterr().out == f"no jobs in file://{there}\n"
    for words in (["jobs"], ["checkpoints", "flights"], ["stats", "flights"], ["savepoint", "flights", "file:///kept"]):
        assert main([*words, "--storage", f"file://{tmp_path}/typo"]) == 2
        said = capsys.readouterr()
        assert said.out == ""
        assert said.err.startswith("cairn: the storage does not exist: there is no such folder.")
        assert f"storage=`file://{tmp_path}/typo`" in said.err
    assert not (tmp_path / "typo").exists(), "looking makes nothing"


@pytest.mark.parametrize("words", [["savepoint", "flights", "ROOT/flights/x"], ["stop", "flights", "--target", "ROOT"]])
def test_what_is_refused_says_no_request_id(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:  # semantics P1
    root = tmp_path / "root"
    root.mkdir()
    World(open_store(f"file://{root}")).run_epoch("e1")
    words = [word.replace("ROOT", f"file://{root}") for word in words]
    assert main([*words, "--storage", f"file://{root}"]) == 2
    said = capsys.readouterr().err
    assert "request id" not in said
    assert said.count("\n") == 2, "the error, and what to type next"


def test_the_tables_in_the_docs_have_the_columns_of_the_tool() -> None:
    tools = [listings._HEADINGS, listings._JOB_HEADINGS]
    found = 0
    for page in DOCS.rglob("*.md"):
        for heading in re.findall(r"^((?:id|job) .*\bDAG run\b.*)\n-- *-", page.read_text(), re.MULTILINE):
            shown = tuple(re.split(r" {2,}", heading.strip()))
            assert any(shown == tuple(each for each in tool if each in shown) for tool in tools), (page, shown)
            found += 1
    assert found >= 2
