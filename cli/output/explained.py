"""What `cairn help` tells beyond options: the fields of each command's JSON, errors, findings of the doctor, reasons.

The texts of all but the last are beside this module, once: the site shows them as tables (`scripts/reference.py`), and
tests compare them with the product. They may have links of Markdown, relative to docs/reference/.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from importlib import resources

from ...checkpoint import remedies
from ...storage.records import dataclass

TOPICS = ("errors", "findings", "reasons")
"""Words after `cairn help` that are no commands."""

_ONLY_A_LINK = re.compile(r" \(\[[^\]]*\]\(\.\./([^)#]+)[^)]*\)\)")
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")


@dataclass(frozen=True, slots=True)
class ErrorText:
    """One code of an error."""

    name: str
    """Of its class."""
    code: str
    kind: str
    retry_cures: bool
    meaning: str
    remedy: str


@dataclass(frozen=True, slots=True)
class FindingText:
    """One kind of finding of `cairn doctor`."""

    place: str
    """`storage`, `worker` or `cluster`."""
    name: str
    severity: str
    what: str


def fields(command: str) -> tuple[tuple[str, str], ...]:
    """Give the fields that a command prints with `--json`: names, and what they are; empty for an unknown command."""
    _, _, rest = f"\n{_text('fields')}\n".partition(f"\ncairn {command}\n")
    lines = re.split(r"^\S", rest, maxsplit=1, flags=re.MULTILINE)[0].splitlines()
    found = (line.strip().partition(": ") for line in lines if line.strip())
    return tuple((names.removesuffix(":"), meaning) for names, _, meaning in found)


def errors() -> Iterator[ErrorText]:
    """Yield each code, in the order of the classes."""
    lines = _text("errors").splitlines()
    for head, meaning, remedy in zip(lines[::3], lines[1::3], lines[2::3], strict=True):
        name, code, kind, cures = head.split()
        yield ErrorText(name, code, kind, cures == "yes", meaning.strip(), remedy.strip())


def findings() -> Iterator[FindingText]:
    """Yield each finding, by where the doctor looks."""
    place = ""
    for line in _text("findings").splitlines():
        if not line.startswith(" "):
            place = line
            continue
        head, _, what = line.strip().partition(": ")
        name, _, severity = head.partition(", ")
        yield FindingText(place, name, severity, what)


def lines(about: str, columns: int) -> Iterator[str]:
    """Yield what `cairn help` prints about a topic, or below the options of a command.

    Args:
        about: one of `TOPICS`, or a command.
        columns: the width of the terminal.
    """
    if about == "errors":
        for error in errors():
            cures = "may cure it" if error.retry_cures else "does not help"
            yield f"{error.name} {error.code}: {error.kind}; a retry {cures}"
            yield from _paragraph(f"{error.meaning} {error.remedy}", columns)
    elif about == "findings":
        for finding in findings():
            yield f"{finding.name}: {finding.severity}, of the {finding.place}"
            yield from _paragraph(finding.what, columns)
    elif about == "reasons":
        for name, what in remedies.rows():
            yield name.strip("`")
            yield from _paragraph(what, columns)
    elif found := fields(about):
        yield from ("", "with --json it prints:")
        for names, meaning in found:
            yield from textwrap.wrap(names, columns, initial_indent="  ", subsequent_indent="  ")
            yield from _paragraph(meaning, columns, "      ")


def _paragraph(text: str, columns: int, indent: str = "    ") -> Iterator[str]:
    plain = _LINK.sub(r"\1", _ONLY_A_LINK.sub(r" (docs/\1)", text))
    yield from textwrap.wrap(plain, columns, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False)


def _text(name: str) -> str:
    return (resources.files("airflow_cairn") / "cli" / "output" / f"{name}.txt").read_text(encoding="utf-8")
