"""The table in docs/semantics.md of which test modules cite which rule: generated from `semantics X9` in the tests.

`--write` refreshes the table; without it a table that is out of date is an error.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from .setup.base import ROOT

_PAGE = ROOT / "docs" / "semantics.md"
_HEADING = "## Which tests hold which rule"
_RULE = re.compile(r"^\| ([A-Z]\d+) \|", re.MULTILINE)
_CITATION = re.compile(r"semantics:? ((?:[A-Z]\d+(?:, | and )?)+)")
_FAST = ("unit/", "protocol/")
"""Where each rule has a test: the folders that start no Airflow and no Spark, so that a broken rule shows at once."""
_NUMBER = re.compile(r"[A-Z]\d+")


def rules(page: str) -> list[str]:
    """Give the numbers of the rules that a page defines, in its order."""
    return list(dict.fromkeys(_RULE.findall(page.partition(_HEADING)[0])))


def citations(folder: Path) -> dict[str, set[str]]:
    """Give, for each rule that is cited below `folder`, the modules that cite it, relative to `folder`."""
    found: dict[str, set[str]] = {}
    for path in sorted(folder.rglob("test_*.py")):
        for citation in _CITATION.findall(path.read_text()):
            for rule in _NUMBER.findall(citation):
                found.setdefault(rule, set()).add(path.relative_to(folder).as_posix())
    return found


def homeless(page: str, cited: dict[str, set[str]]) -> list[str]:
    """Give the rules that no test below `tests/unit` or `tests/protocol` cites."""
    return [rule for rule in rules(page) if not any(name.startswith(_FAST) for name in cited.get(rule, ()))]


def _by_folder(modules: set[str]) -> str:
    folders: dict[str, list[str]] = {}
    for name in sorted(modules):
        folder, _, module = name.removeprefix("unit/").rpartition("/")
        folders.setdefault(folder, []).append(module.removeprefix("test_").removesuffix(".py"))
    return "; ".join(f"{folder}: {', '.join(names)}" for folder, names in folders.items()) or "none"


def section(page: str, cited: dict[str, set[str]]) -> str:
    """Write the page's last section."""
    rows = [f"| {rule} | {_by_folder(cited.get(rule, set()))} |" for rule in rules(page)]
    lines = [
        _HEADING,
        "",
        "Generated from what the tests cite (`python -m scripts.rules --write`), by their folder below `tests/` or",
        "`tests/unit/`: `cli: show` is `tests/unit/cli/test_show.py`.",
        "",
        "| rule | cited in |",
        "|---|---|",
        *rows,
    ]
    return "\n".join(lines) + "\n"


def main(arguments: list[str]) -> int:
    """Check or write the table.

    Args:
        arguments: `--write`, or nothing.

    Returns:
        The exit status.
    """
    page, cited = _PAGE.read_text(), citations(ROOT / "tests")
    unknown = sorted(cited.keys() - set(rules(page)))
    wanted = f"{page.partition(_HEADING)[0].rstrip()}\n\n{section(page, cited)}"
    problems = [f"{', '.join(sorted(cited[rule]))} cites {rule}, which is no rule" for rule in unknown]
    problems += [f"no test below tests/unit or tests/protocol cites {rule}" for rule in homeless(page, cited)]
    if "--write" in arguments:
        _PAGE.write_text(wanted)
    elif page != wanted:
        problems.append("docs/semantics.md is out of date. Type: .venv/bin/python -m scripts.rules --write")
    for problem in problems:
        print(problem)
    print(f"rules: {len(problems)} problems, cited by no test: {', '.join(r for r in rules(page) if r not in cited)}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
