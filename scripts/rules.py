"""Lists the test modules that cite each rule of docs/semantics.md, as `semantics X9`.

Checks that a fast test cites each rule, and that each citation is a rule; `python -m scripts.rules T4` lists the tests.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from .setup.base import ROOT

_PAGE = ROOT / "docs" / "semantics.md"
_RULE = re.compile(r"^\| ([A-Z]\d+) \|", re.MULTILINE)
_CITATION = re.compile(r"semantics:? ((?:[A-Z]\d+(?:, | and )?)+)")
_FAST = ("unit/", "protocol/")
"""Folders in which each rule has a test: they start no Airflow and no Spark, so a broken rule shows at once."""
_NUMBER = re.compile(r"[A-Z]\d+")


def rules(page: str) -> list[str]:
    """Give the numbers of the rules that a page defines, in its order."""
    return list(dict.fromkeys(_RULE.findall(page)))


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


def main(arguments: list[str]) -> int:
    """Check all rules, or list the tests of some."""
    page, cited = _PAGE.read_text(), citations(ROOT / "tests")
    known = rules(page)
    unknown = sorted({*cited, *arguments} - set(known))
    problems = [f"{rule} is not a rule; {', '.join(sorted(cited.get(rule, ()))) or 'you'} cites it" for rule in unknown]
    for rule in arguments:
        print(*sorted(cited.get(rule, ())), sep="\n")
    problems += [f"no test below tests/unit or tests/protocol cites {rule}" for rule in homeless(page, cited)]
    for problem in problems:
        print(problem)
    print(f"rules: {len(problems)} problems in {len(known)} rules")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
