"""`cairn doctor`: what is wrong with a storage and its jobs, why it matters, and what mends it."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from ..checkpoint import system_runtime
from ..checkpoint.health.examine import examine_storage
from ..checkpoint.health.findings import Examination, Finding, Severity
from ..storage.port import ObjectStore
from .output import text


def doctor(store: ObjectStore, options: argparse.Namespace) -> Examination:
    """Make every check.

    Raises:
        NoCheckpointError: the storage has no such job.
    """
    return examine_storage(store, system_runtime(), options.job, write=not options.read_only, deep=options.deep)


def lines(found: Examination) -> Iterator[str]:
    """Say what was found, errors first, and how much was looked at."""
    columns = text.width()
    for each in found.sorted():
        yield from _finding(each, columns)
        yield ""
    for name, reason in found.skipped.items():
        yield from text.paragraph(f"not checked: {name}: {reason}", columns)
    errors = sum(each.severity is Severity.ERROR for each in found.findings)
    warnings = len(found.findings) - errors
    said = f"{_count(errors, 'error')}, {_count(warnings, 'warning')}; " if found.findings else "nothing is wrong; "
    yield f"{said}{_count(len(found.passed), 'check')} passed, {len(found.skipped)} not made"


def _finding(each: Finding, columns: int) -> Iterator[str]:
    yield from text.paragraph(f"{each.severity.upper()} {each.name}: {each.subject}", columns)
    yield from text.labelled("what", each.what, columns)
    yield from text.labelled("why", each.why, columns)
    yield from text.labelled("to mend it", each.mend, columns)


def _count(number: int, of: str) -> str:
    return f"{number} {of}" if number == 1 else f"{number} {of}s"
