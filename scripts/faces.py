"""The faces of the package: what a user may import. Prints the list, as the site shows it.

The faces are read, not imported, so this needs no Airflow. `tests/test_faces.py` holds that faces, documentation and
example DAGs agree.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from .setup.base import ROOT

FACES = (".", "operators", "sensors", "hooks", "triggers", "plugin", "spark", "checkpoint", "storage", "testing")
"""Folders whose `__init__` a user imports from, the package itself first; nothing below them is public."""

_PAGES = ROOT / "docs" / "reference"
ERRORS = ROOT / "cli" / "output" / "errors.txt"
"""Explains each error, which the list of the faces only names."""

EXPLAINED = {
    "Operators": "operators.md",
    "Tables": "tables.md",
    "Sources": "sources.md",
    "Epoch": "epoch.md",
    "Doctor": "doctor.md",
    "Storage": "storage.md",
    "Test a pipeline": "../how-to/test-a-pipeline.md",
}
"""Pages that explain names: the first with a name in a heading, a row or a call is linked in place of its docstring."""


def package(face: str) -> str:
    """Give the dotted name of a face."""
    return "airflow_cairn" if face == "." else f"airflow_cairn.{face}"


def exported(face: str) -> dict[str, Path]:
    """Give what a face imports from below, and the module that defines each name."""
    folder = ROOT / face
    found: dict[str, Path] = {}
    for node in ast.walk(ast.parse((folder / "__init__.py").read_text())):
        if isinstance(node, ast.ImportFrom) and node.level and node.module:
            start = folder if node.level == 1 else folder.parent
            module = start.joinpath(*node.module.split(".")).with_suffix(".py")
            found.update({alias.asname or alias.name: module for alias in node.names})
    return dict(sorted(found.items()))


def summary(module: Path, name: str) -> str:
    """Give the first line of what a module says of one of its names.

    Raises:
        LookupError: the module does not define the name, or says nothing of it.
    """
    body = ast.parse(module.read_text()).body
    for node, after in zip(body, [*body[1:], None], strict=True):
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == name:
            text = ast.get_docstring(node)
        elif isinstance(node, ast.Assign) and name in map(ast.unparse, node.targets) and isinstance(after, ast.Expr):
            text = str(ast.literal_eval(after.value))
        else:
            continue
        if text:
            return text.splitlines()[0]
    raise LookupError(f"{module.relative_to(ROOT)} says nothing of {name}")


def _lines() -> Iterator[str]:
    errors = set(re.findall(r"^(\w+Error) ", ERRORS.read_text(), re.MULTILINE))
    texts = {f"[{title}]({name})": (_PAGES / name).read_text() for title, name in EXPLAINED.items()}
    told: set[tuple[str, str]] = set()
    for face in FACES:
        words = ast.get_docstring(ast.parse((ROOT / face / "__init__.py").read_text())) or ""
        yield f"\n## {package(face)}\n\n{words.splitlines()[0]}\n"
        found = {(name, summary(module, name)) for name, module in exported(face).items()}
        lists: dict[str, set[str]] = {title: set() for title in (*texts, "[Errors](errors.md)")}
        lists["As above"] = {name for name, _ in found & told} - errors
        others = []
        for name, text in sorted(found - told):
            explained = re.compile(rf"^(?:#+|\|) `?{name}\b|`(?:[a-z_]+\.)*{name}\(", re.MULTILINE)
            title = next((title for title, page in texts.items() if explained.search(page)), None)
            if name in errors:
                lists["[Errors](errors.md)"].add(name)
            elif title:
                lists[title].add(name)
            else:
                others.append(f"- `{name}`: {text}\n")
        for heading, names in lists.items():
            if names:
                yield f"\n{heading}: {', '.join(f'`{name}`' for name in sorted(names))}.\n"
        if others:
            yield "\n"
            yield from others
        told |= found


def names() -> str:
    """Write the list."""
    return "".join(_lines()).lstrip("\n")


def main() -> int:
    """Print the list."""
    print(names())
    return 0


if __name__ == "__main__":
    sys.exit(main())
