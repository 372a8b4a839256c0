"""Checks the documentation: links, anchors and paths resolve, Python compiles."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

from .markdown import Page, parse
from .setup.base import ROOT

_NOT_OURS = {".venv", ".cache", "build", "dist", "node_modules"}
_PATH = re.compile(r"`((?:[\w.-]+/)+[\w.-]*|[\w-]+\.toml)(?:::(\w+))?`")


def pages(root: Path) -> Iterator[Path]:
    """Yield the Markdown files below `root` that are the project's own, in order."""
    for path in sorted(root.rglob("*.md")):
        folders = path.relative_to(root).parts[:-1]
        if not any(part in _NOT_OURS or part.endswith(("_cache", ".egg-info")) for part in folders):
            yield path


def broken_links(path: Path, page: Page, root: Path) -> Iterator[str]:
    """Yield what is wrong with each relative link of a page."""
    for line, target in page.links():
        parts = urlsplit(target)
        if parts.scheme or parts.netloc:
            continue
        aim = (path.parent / unquote(parts.path)).resolve() if parts.path else path
        if not aim.is_relative_to(root):
            yield f"{line}: {target} leads out of the repository"
        elif not aim.exists():
            yield f"{line}: {target} does not exist"
        elif parts.fragment and aim.suffix == ".md" and unquote(parts.fragment) not in parse(aim.read_text()).anchors():
            yield f"{line}: {target} names an anchor that {aim.name} does not have"


def broken_paths(page: Page, root: Path) -> Iterator[str]:
    """Yield what a page names in the repository and is not there: a `checkpoint/reasons.py`, a `tests/x.py::test_y`.

    A path may also begin below `tests/`. One of a store, or of a user's own, begins with no folder of the repository.
    """
    for line, text in page.prose:
        for path, test in _PATH.findall(text):
            top = path.partition("/")[0]
            if top in _NOT_OURS or not (root / top).exists():
                continue
            aim = next((each for each in (root / path, root / "tests" / path) if each.exists()), None)
            if aim is None:
                yield f"{line}: {path} does not exist"
            elif test and f"def {test}(" not in aim.read_text():
                yield f"{line}: {path} has no {test}"


def broken_python(page: Page) -> Iterator[str]:
    """Yield the syntax error of each Python block that has one, and of both sides of each diff."""
    for block in (side for each in page.blocks for side in dict.fromkeys((each.side("-"), each.side("+")))):
        if block.language in {"python", "py"}:
            try:
                compile(block.text, "block", "exec", dont_inherit=True)
            except SyntaxError as error:
                yield f"{block.first_line + (error.lineno or 1) - 1}: Python: {error.msg}"


def check_pages(root: Path) -> list[str]:
    """Check links, paths and Python of every page below `root`.

    Returns:
        What is wrong, one line each, as `file:line: problem`.
    """
    problems = []
    for path in pages(root):
        page = parse(path.read_text())
        found = [*broken_links(path, page, root), *broken_paths(page, root), *broken_python(page)]
        problems += [f"{path.relative_to(root)}:{problem}" for problem in found]
    return problems


def main() -> int:
    """Check, and print what is wrong."""
    problems = check_pages(ROOT)
    for problem in problems:
        print(problem)
    print(f"docs: {len(problems)} problems in {len(list(pages(ROOT)))} pages")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
