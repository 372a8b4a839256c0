"""The check of the documentation sees what is broken, and lets stand what is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.check_docs import broken_links, broken_paths, broken_python, pages
from scripts.markdown import parse, slug


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "other.md").write_text(
        "# Semantics\n\n## S · Scheduling\n## Twice\n## Twice\n<a id='own'></a>\n"
    )
    return tmp_path.resolve()


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("[a](docs/other.md)", 0),
        ("[a](docs/none.md)", 1),
        ("![a](none.png)", 1),
        ("[a](docs/other.md#s--scheduling)", 0),
        ("[a](docs/other.md#twice-1)", 0),
        ("[a](docs/other.md#twice-2)", 1),
        ("[a](docs/other.md#own)", 0),
        ("# Here\n[a](#here)", 0),
        ("[a](#there)", 1),
        ("[a](../outside.md)", 1),
        ("[a](https://example.org/none.md)", 0),
        ("`[a](none.md)`", 0),
        ("```\n[a](none.md)\n```", 0),
        ("[a][b]\n\n[b]: none.md", 1),
        ("[a](docs/other.md 'title') and [b](none.md)", 1),
    ],
)
def test_links(root: Path, text: str, found: int) -> None:
    page = root / "README.md"
    page.write_text(text)
    assert len(list(broken_links(page, parse(text), root))) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("`docs/other.md` and `docs/`", []),
        ("`docs/none.md`", ["1: docs/none.md does not exist"]),
        ("`docs/test_x.py::test_y`", []),
        ("`tests/docs/test_x.py::test_z`", ["1: tests/docs/test_x.py has no test_z"]),
        ("`state/routes/1`, `docs/<name>.md` and docs/none.md", []),
        ("```\n`docs/none.md`\n```", []),
    ],
)
def test_paths_that_a_page_names_exist(root: Path, text: str, found: list[str]) -> None:
    (root / "tests" / "docs").mkdir(parents=True)
    (root / "tests" / "docs" / "test_x.py").write_text("def test_y() -> None: ...\n")
    assert list(broken_paths(parse(text), root)) == found


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        ("```python\nx = 1\n```", []),
        ("text\n\n```python\nx = 1\ny = = 2\n```", ["5: Python: invalid syntax"]),
        ("- item\n\n  ```python\n  if x:\n      y = 1\n  ```", []),
        ("```bash\nx = = 1\n```", []),
        ("```diff\n-if x:\n+if y:\n     z = 1\n```", []),
        ("```diff\n-x = = 1\n+x = 1\n```", ["2: Python: invalid syntax"]),
        ("```diff\n x = 1\n\n+y = = 1\n```", ["4: Python: invalid syntax"]),
    ],
)
def test_python_blocks(text: str, problems: list[str]) -> None:
    assert list(broken_python(parse(text))) == problems


def test_slugs_are_those_of_github() -> None:
    assert slug("W · Writing to and reading from the store") == "w--writing-to-and-reading-from-the-store"
    assert slug("`make demo`, in *four* minutes!") == "make-demo-in-four-minutes"
    assert slug("[A link](x.md) here") == "a-link-here"


def test_only_our_own_pages_are_read(root: Path) -> None:
    for folder in (".venv", ".cache", ".pytest_cache"):
        (root / folder).mkdir()
        (root / folder / "README.md").touch()
    assert [path.name for path in pages(root)] == ["other.md"]
