"""The table of scenarios says what the tests say: which row has which test, how often what ran, which checkpoints."""

from __future__ import annotations

import ast
import re

import pytest

from scripts.setup.base import ROOT

E2E = ROOT / "tests" / "real" / "airflow"
ROW = re.compile(
    r"^\| (?P<number>\d+) \|.*\| (?P<seen>[^|]+) \| (?P<on>submit|Connect|both) "
    r"\| `(?P<file>test_[a-z_]+\.py)` \|$"
)
NAMES = {
    "COMPLETED": "COMPLETED",
    "FAILOVER": "JOB_FAILOVER_REGION",
    "FAILED": "JOB_FAILURE",
    "SUSPENDED": "CHECKPOINT_COORDINATOR_SUSPEND",
}


SIGNS = {"COMPLETED": "✓", "JOB_FAILOVER_REGION": "↻"}
"""How the table writes the two commonest outcomes; it names the others."""
ON_BOTH = {"ON_SUBMIT", "ON_CONNECT"}


def table() -> dict[int, tuple[str, str, str]]:
    """Give what each row has seen, the file of its test, and the transports that it runs on."""
    lines = (ROOT / "docs" / "failover.md").read_text().splitlines()
    found = [row for line in lines if (row := ROW.match(line))]
    assert len(found) == sum(bool(re.match(r"\| \d", line)) for line in lines), "a row of another form"
    return {int(row["number"]): (row["seen"], row["file"], row["on"]) for row in found}


def numbered_in(file: str) -> dict[int, ast.FunctionDef]:
    """Give the tests of a file whose names end in the number of a row."""
    functions = [each for each in ast.parse((E2E / file).read_text()).body if isinstance(each, ast.FunctionDef)]
    numbered = [(each, re.search(r"_(\d+)$", each.name)) for each in functions if each.name.startswith("test_")]
    return {int(number[1]): each for each, number in numbered if number}


def on_both_in(file: str) -> set[int]:
    """Give the rows of which a test of a file runs on both transports; row 21 has one that is not its main one."""
    decorated = [
        each.name
        for each in ast.parse((E2E / file).read_text()).body
        if isinstance(each, ast.FunctionDef)
        and any(ast.unparse(mark) in {"ON_SUBMIT", "ON_CONNECT"} for mark in each.decorator_list)
    ]
    return {int(found[1]) for name in decorated if (found := re.search(r"_(\d+)(_in_spark)?$", name))}


def said(test: ast.FunctionDef) -> str | None:
    """Give what a test expects in its `check`, as the table says it; None where it is put together."""
    for call in ast.walk(test):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "check":
            options = {each.arg: each.value for each in call.keywords}
            try:
                tries = ast.literal_eval(options["tries"])
                outcomes = ast.literal_eval(_Spelt().visit(options["outcomes"]))
            except ValueError:
                return None
            ran = ", ".join(f"{stage} {number}" for stage, number in tries.items())
            return f"{ran}; " + ", ".join(
                f"{id_}·{attempt} {SIGNS.get(how, f'`{how}`')}" for id_, attempt, how in outcomes
            )
    return None


class _Spelt(ast.NodeTransformer):
    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Constant(NAMES[node.id]) if node.id in NAMES else node


@pytest.mark.parametrize("file", sorted(path.name for path in E2E.glob("test_failover*.py")))
def test_each_row_says_what_its_test_expects(file: str) -> None:
    rows = {number: seen for number, (seen, where, _) in table().items() if where == file}
    tests = numbered_in(file)
    assert rows.keys() == tests.keys()
    for number, test in tests.items():
        expected = said(test)
        assert expected is None or expected in rows[number], f"row {number}: {expected}"


def test_each_row_names_the_transports_that_its_test_runs_on() -> None:
    rows = table()
    both = set().union(*(on_both_in(file) for file in {file for _, file, _ in rows.values()}))
    # These are of stages on a server: one job with both, and one with nothing else.
    expected = {number: "both" if number in both else "submit" for number in rows} | {22: "both"}
    expected |= dict.fromkeys((23, 28, 32), "Connect")
    assert {number: on for number, (_, _, on) in rows.items()} == expected


@pytest.mark.parametrize("number", sorted(row for row, (_, file, _) in table().items() if "failover" not in file))
def test_checkpoints_that_a_row_names_are_expected_elsewhere_too(number: int) -> None:
    seen, file, _ = table()[number]
    tuples = [each for each in ast.walk(ast.parse((E2E / file).read_text())) if isinstance(each, ast.Tuple)]
    expected = {ast.unparse(each) for each in tuples}
    names = {sign: name for name, sign in SIGNS.items()}
    for id_, attempt, how in re.findall(r"(\d+)·(\d+) (\S+?)[,.;]", seen):
        assert f"({id_}, {attempt}, '{names.get(how, how.strip('`'))}')" in expected


def test_each_row_stands_once_and_in_order() -> None:
    numbers = [int(found[1]) for found in re.finditer(r"^\| (\d+) \|", (ROOT / "docs/failover.md").read_text(), re.M)]
    assert numbers == sorted(set(numbers))


def test_the_table_of_renewed_tasks_says_what_its_test_expects() -> None:
    page = (
        (ROOT / "docs" / "failover.md").read_text().split("## After a stage's task was renewed\n")[1].split("\n## ")[0]
    )
    shown = re.findall(r"\| (src \d, left [^|]+) \|", page)
    expected = re.findall(r"\(\d, \"(src \d, left [^\"]+)\"\)", (E2E / "test_renewed.py").read_text())
    assert shown == expected
    assert len(shown) == 8
