"""The sources of the site: plain pages, links to code that lead somewhere, and no page that nobody finds."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from scripts.check_docs import broken_links, pages
from scripts.markdown import parse, with_links
from scripts.reference import marks, part
from scripts.setup.base import ROOT
from scripts.site.sources import Section, Sources, below, sections, unlisted

README = """\
# Cairn

See [the code](code/a.py), `[not this](code/a.py)` and ![a picture](docs/a.svg).
"""
INDEX = """\
# All pages

## Understand it

- [Concepts](concepts.md), [its end](concepts.md#end)

## Know why

- [Decisions](decisions/README.md), [what has changed](../CHANGES.md)
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = (tmp_path / "repository").resolve()
    for name, text in {
        "README.md": README,
        "CHANGES.md": "# Changes\n",
        "docs/README.md": INDEX,
        "code/a.py": "a = 1\n",
        "docs/a.svg": "<svg/>",
        "docs/concepts.md": "# Concepts\n\n[home](../README.md#cairn), [all](../code), [w](https://x.org/a)\n\n## End",
        "docs/decisions/README.md": "# Decisions\n\n[1](0001-one.md), [up](../concepts.md)\n",
        "docs/decisions/0001-one.md": "# One\n\n```text\n[a](../../code/a.py)\n```\n",
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.mark.parametrize(
    ("text", "changed"),
    [
        ("[a](x.md#b) and [c](y.md 'title')", "[a](X.MD#B) and [c](Y.MD 'title')"),
        ("`[a](x.md)` [`b`](x.md)", "`[a](x.md)` [`b`](X.MD)"),
        ("```text\n[a](x.md)\n```\n[a](x.md)", "```text\n[a](x.md)\n```\n[a](X.MD)"),
        ("[a]: x.md\n", "[a]: X.MD\n"),
        ("no link", "no link"),
    ],
)
def test_links_are_changed_and_code_is_not(text: str, changed: str) -> None:
    assert with_links(text, str.upper) == changed


def test_the_index_says_which_page_is_where(root: Path) -> None:
    assert sections(INDEX) == [
        Section("Understand it", ("docs/concepts.md",)),
        Section("Know why", ("docs/decisions/README.md", "CHANGES.md")),
    ]
    assert below("docs/decisions/README.md", (root / "docs/decisions/README.md").read_text()) == [
        "docs/decisions/0001-one.md"
    ]
    assert unlisted(root) == []
    (root / "docs/lost.md").write_text("# Lost\n")
    assert unlisted(root) == ["docs/lost.md"]


def test_every_page_is_in_the_index() -> None:
    """Add it to a section of docs/README.md, or to the list of its folder's README.md"""
    assert unlisted(ROOT) == []


def test_a_page_of_the_site_is_its_page_with_links_to_code_that_lead_there(root: Path, tmp_path: Path) -> None:
    Sources(root, tmp_path / "site").write()
    index = (tmp_path / "site/index.md").read_text()
    assert index.startswith(README.replace("[the code](code/a.py)", "[the code](files/code/a.py.md)"))
    assert "/sections/understand-it\n/sections/know-why\n/docs/README\n" in index
    assert (
        ((tmp_path / "site/docs/README.md").read_text().partition("[Decisions]")[2])
        == "(../docs/decisions/README.md), [what has changed](../CHANGES.md)\n"
    )
    assert "(../index.md#cairn), [all](../files/code.md), [w](https://x.org/a)" in (
        (tmp_path / "site/docs/concepts.md").read_text()
    )
    shown = (tmp_path / "site/files/code/a.py.md").read_text()
    assert "a = 1" in shown
    assert "nosearch: true" in shown
    assert "(code/a.py.md)" in (tmp_path / "site/files/code.md").read_text()
    assert (tmp_path / "site/docs/a.svg").read_text() == "<svg/>"
    assert "/docs/decisions/0001-one\n" in (tmp_path / "site/docs/decisions/README.md").read_text()


def test_with_the_address_of_a_forge_links_to_code_lead_there(root: Path, tmp_path: Path) -> None:
    Sources(root, tmp_path / "site", "https://forge.example.org/cairn/blob/main/").write()
    assert "[the code](https://forge.example.org/cairn/blob/main/code/a.py)" in (
        (tmp_path / "site/index.md").read_text()
    )
    assert not (tmp_path / "site/files").exists()


def test_no_link_of_the_site_is_broken(tmp_path: Path) -> None:
    """Sphinx is not installed here: the links of its input are checked."""
    folder = tmp_path.resolve() / "site"
    Sources(ROOT, folder, generated={mark: part(mark) for mark in marks()}).write()
    written = sorted(folder.rglob("*.md"))
    problems = [f"{path}:{each}" for path in written for each in broken_links(path, parse(path.read_text()), folder)]
    assert problems == []
    assert len(written) > 80


def test_what_the_search_puts_first_and_last_are_pages() -> None:
    """A page that is renamed keeps its place in the results only if the scorer knows its new name."""
    scorer = (ROOT / "scripts" / "site" / "scorer.js").read_text()
    [last, first] = re.findall(r"/\^\((.*?)\)/\.test", scorer)
    names = [path.relative_to(ROOT).as_posix() for path in pages(ROOT)]
    for beginning in (last + "|" + first).replace("\\/", "/").split("|"):
        copied = beginning == "files/"  # of code, which `make site` writes
        assert copied or any(name.startswith(beginning) for name in names), beginning
