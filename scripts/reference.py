"""The parts of the pages that the code says already: options, fields, errors, findings, arguments, names, rooms.

A page has a comment, `<!-- generated: errors -->`, and a sentence that says where a reader of the plain page finds the
same. `make site` puts the text in its place, which `python -m scripts.reference` prints as JSON; without `--json` it
prints what a page has there, such as `python -m scripts.reference arguments SparkEpochOperator`.
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
import importlib
import inspect
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from airflow_cairn.checkpoint import remedies
from airflow_cairn.cli.main import parser
from airflow_cairn.cli.output import hints
from airflow_cairn.tasks import metrics as metrics_module

from . import faces, rooms
from .check_docs import pages
from .schema import attribute_docs
from .setup.base import ROOT
from .site.sources import GENERATED

_COLUMNS = 98
_ARGUMENT = re.compile(r"^    (\*{0,2}\w+): (.*)$")


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


def commands() -> str:
    """Write what `cairn --help` prints."""
    whole = parser()
    formatter: Any = whole.formatter_class
    whole.formatter_class = partial(formatter, width=_COLUMNS)
    return f"```console\n$ cairn --help\n{whole.format_help().rstrip()}\n```\n"


def command(name: str) -> str:
    """Write what `cairn NAME --help` prints, and a table of the fields of its JSON."""
    verbs = next(each for each in parser()._actions if isinstance(each, argparse._SubParsersAction))
    verb = verbs.choices[name]
    verb.formatter_class = partial(argparse.HelpFormatter, width=_COLUMNS)
    options = f"```console\n$ cairn {name} --help\n{verb.format_help().rstrip()}\n```\n"
    found = hints.fields(name)
    if not found:
        return options
    rows = ((", ".join(f"`{each}`" for each in _names(names)), meaning) for names, meaning in found)
    return f"{options}\n`cairn {name} --json` prints:\n\n{_table(('field', 'meaning'), rows)}\n"


def _names(names: str) -> list[str]:
    return re.findall(r"[^\s,{]+(?:\{[^}]*\})?", names)


def errors() -> str:
    """Write the table of all codes of errors."""
    rows = (
        (
            f"`{each.name}`",
            f"`{each.code}`",
            f"`{each.kind}`",
            "yes" if each.retry_cures else "no",
            each.meaning,
            each.remedy,
        )
        for each in hints.errors()
    )
    return _table(("Error", "Code", "Kind", "A retry may cure it", "What it means", "What to do"), rows) + "\n"


def findings(place: str) -> str:
    """Write the table of what the doctor finds on the `storage`, a `worker` or the `cluster`."""
    rows = ((f"`{each.name}`", each.severity, each.what) for each in hints.findings() if each.place == place)
    return _table(("Finding", "Kind", "What is wrong"), rows) + "\n"


def reasons() -> str:
    """Write the table of the reasons of failed checkpoints."""
    return _table(("Reason", "What happened"), remedies.rows()) + "\n"


def arguments(name: str) -> str:
    """Write the table of the arguments of a public class, method or function: name, default, meaning."""
    return _table(("argument", "default", "meaning"), _arguments_of(_public(name))) + "\n"


def attributes(name: str) -> str:
    """Write the table of the attributes of a public dataclass: name, meaning."""
    return _table(
        ("attribute", "meaning"), ((f"`{each}`", said) for each, said in attribute_docs(_public(name)).items())
    )


def properties(name: str) -> str:
    """Write the table of the properties of a public class: name, type, meaning."""
    found = ((each, member) for each, member in inspect.getmembers(_public(name)) if isinstance(member, property))
    rows = (
        (f"`{each}`", f"`{member.fget.__annotations__['return']}`", " ".join((member.__doc__ or "").split()))
        for each, member in found
    )
    return _table(("property", "type", "meaning"), rows) + "\n"


def _public(name: str) -> Any:
    name, _, method = name.partition(".")
    found = (getattr(importlib.import_module(faces.package(face)), name, None) for face in faces.FACES)
    made = next(each for each in found if each is not None)
    return getattr(made, method) if method else made


def _arguments_of(made: Any) -> Iterator[tuple[str, str, str]]:
    said = documented(inspect.getdoc(made) or "") or attribute_docs(made)
    taken = inspect.signature(made).parameters
    own = dataclasses.fields(made) if isinstance(made, type) and dataclasses.is_dataclass(made) else ()
    made_anew = {each.name: each.default_factory for each in own if callable(each.default_factory)}
    for name, text in said.items():
        plain = name.lstrip("*")
        if plain in taken or plain not in {"args", "kwargs"}:
            default = taken[plain].default if plain in taken else inspect.Parameter.empty
            if plain in made_anew and plain in taken:
                default = made_anew[plain]()
            yield (f"`{plain}`" if plain == name else "others", _default(default), f"{text[:1].upper()}{text[1:]}")


def documented(docstring: str) -> dict[str, str]:
    """Give the arguments that a docstring describes, each as one line."""
    _, _, rest = docstring.partition("\nArgs:\n")
    found: dict[str, str] = {}
    last = ""
    for line in rest.splitlines():
        if line and not line.startswith(" "):
            break
        if match := _ARGUMENT.match(line):
            last, found[match[1]] = match[1], match[2]
        elif line.strip():
            found[last] += f" {line.strip()}"
        else:
            break
    return found


def _default(value: Any) -> str:
    if value is inspect.Parameter.empty:
        return ""
    if isinstance(value, timedelta):
        return f"`timedelta({_largest_unit(value)})`"
    plain = isinstance(value, bool | int | float | str | tuple | dict | None)
    return f"`{value!r}`" if plain else f"`{type(value).__name__}()`"


def _largest_unit(span: timedelta) -> str:
    units = {"hours": timedelta(hours=1), "minutes": timedelta(minutes=1), "seconds": timedelta(seconds=1)}
    return next((f"{unit}={span // one}" for unit, one in units.items() if span and not span % one), "0")


def metrics() -> str:
    """Write the table of the metrics, with the text that stands below each."""
    body = ast.parse(Path(metrics_module.__file__).read_text()).body
    said = {
        ast.unparse(assigned.targets[0]): str(ast.literal_eval(text.value))
        for assigned, text in pairwise(body)
        if isinstance(assigned, ast.Assign) and isinstance(text, ast.Expr)
    }
    by_metric = {vars(metrics_module)[name]: " ".join(text.split()) for name, text in said.items() if name.isupper()}
    rows = ((f"`{each.name}`", f"{each.kind}", by_metric[each]) for each in metrics_module.METRICS)
    return _table(("metric", "kind", "meaning"), rows) + "\n"


def matrix(kind: str) -> str:
    """Write the table of the combinations of versions that `make matrix` runs."""
    from tests.matrix import cells  # they are the tests', and name what is installed for them

    tables = {
        "airflow": cells.airflow_table,
        "drivers": cells.driver_table,
        "connect": cells.connect_table,
        "iceberg": cells.iceberg_table,
    }
    return tables[kind]() + "\n"


_PARTS: dict[str, Callable[..., str]] = {
    "commands": commands,
    "command": command,
    "errors": errors,
    "findings": findings,
    "reasons": reasons,
    "arguments": arguments,
    "attributes": attributes,
    "properties": properties,
    "metrics": metrics,
    "matrix": matrix,
    "names": faces.names,
    "rooms": rooms.table,
}


def part(mark: str) -> str:
    """Write what a mark stands for, such as `command show`.

    Raises:
        LookupError: there is no such part.
    """
    kind, *about = mark.split()
    if kind not in _PARTS:
        raise LookupError(f"`generated: {mark}` is none of {', '.join(_PARTS)}")
    return _PARTS[kind](*about)


def marks() -> list[str]:
    """Give the marks of all pages, each once."""
    return list(dict.fromkeys(mark for path in pages(ROOT) for mark in GENERATED.findall(path.read_text())))


def main(words: list[str]) -> int:
    """Print one part, or with `--json` all parts of all pages by their marks."""
    if words == ["--json"]:
        print(json.dumps({mark: part(mark) for mark in marks()}))
    else:
        print(part(" ".join(words)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
