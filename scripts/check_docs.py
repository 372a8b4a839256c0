"""Checks the documentation: links, anchors and paths resolve, Python compiles, the help of the command is as quoted.

A fenced block that starts with `$ cairn … --help` must hold what the command prints. `--write` refreshes those blocks.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

from .markdown import Block, Page, parse
from .setup.base import ROOT
from .setup.venv import VENV

_NOT_OURS = {".venv", ".cache", "build", "dist", "node_modules"}
_PROMPT = re.compile(r"^\$ cairn(?P<words>( [a-z-]+)*) --help$")
_REFRESH = "Type: .venv/bin/python -m scripts.check_docs --write"
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


def help_of(words: list[str]) -> str:
    """Give what `cairn … --help` prints, 100 columns wide.

    Args:
        words: the sub-command, or none.

    Raises:
        subprocess.CalledProcessError: the command failed.
    """
    env = {**os.environ, "COLUMNS": "100", "NO_COLOR": "1", "PYTHON_COLORS": "0"}
    command: list[str | Path] = [VENV / "bin" / "cairn", *words, "--help"]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL).stdout


def _quoted_help(page: Page) -> Iterator[tuple[Block, list[str]]]:
    for block in page.blocks:
        if prompt := _PROMPT.match(block.text.partition("\n")[0]):
            yield block, prompt["words"].split()


def _with_help(path: Path, *, write: bool) -> Iterator[str]:
    """Have a page's blocks hold the help that they quote, or yield those that do not."""
    text = path.read_text()
    for block, words in _quoted_help(parse(text)):
        prompt = block.text.partition("\n")[0]
        wanted = f"{prompt}\n{help_of(words).rstrip()}\n"
        if block.text.rstrip() == wanted.rstrip():
            continue
        if write:
            text = text.replace(block.text, wanted)
        else:
            yield f"{block.first_line}: `{prompt}` prints something else now. {_REFRESH}"
    if write and text != path.read_text():
        path.write_text(text)


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


def check_help(root: Path, *, write: bool) -> list[str]:
    """Check that a page below `root` quotes the help of the command, and each what it quotes as it is.

    Args:
        root: the repository.
        write: refresh what is quoted instead of comparing it.

    Returns:
        What is wrong, one line each.
    """
    problems: list[str] = []
    quoted: set[str] = set()
    try:
        for path in pages(root):
            quoted.update(" ".join(words) for _, words in _quoted_help(parse(path.read_text())))
            problems += [f"{path.relative_to(root)}:{problem}" for problem in _with_help(path, write=write)]
        if "" not in quoted:
            problems.append("no page quotes `$ cairn --help`")
        return problems
    except subprocess.CalledProcessError as error:
        return [*problems, f"cairn --help fails: {error.stderr.strip().splitlines()[-1]}"]


def main(arguments: list[str]) -> int:
    """Check, and print what is wrong.

    Args:
        arguments: `--write`, or nothing.

    Returns:
        The exit status.
    """
    problems = check_help(ROOT, write="--write" in arguments)
    problems += check_pages(ROOT)
    for problem in problems:
        print(problem)
    print(f"docs: {len(problems)} problems in {len(list(pages(ROOT)))} pages")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
