"""What the documentation says a log shows, some source prints."""

from __future__ import annotations

import re

from scripts.setup.base import ROOT

_LAYERS = ("operators", "sensors", "triggers", "tasks", "hooks", "spark", "checkpoint", "storage")
_CELL = re.compile(r"^\| `([^`]+)` \|", re.MULTILINE)
_VARIABLE = re.compile(r"…|\b\d+\b|\broutes\b|·|\battempt 2\b|\bopened\b|(?<=from) checkpoint")


def quoted_lines() -> list[str]:
    """Give the log lines that the operations guide quotes."""
    page = (ROOT / "docs" / "operations.md").read_text()
    table = page[page.index("## What the log says") : page.index("## Manual changes")]
    return _CELL.findall(table)


def sources() -> str:
    """Give the text of every module that logs, with strings that span lines put together."""
    text = "\n".join(path.read_text() for layer in _LAYERS for path in sorted((ROOT / layer).rglob("*.py")))
    return re.sub(r'"\s*\n\s*f?"', "", text)


def test_every_quoted_log_line_is_printed() -> None:
    """Each fixed part of a quoted line stands in a source; numbers, names and … stand for anything."""
    lines = quoted_lines()
    assert len(lines) >= 8
    text = sources()
    missing = [
        (line, part.strip(" :"))
        for line in lines
        for part in _VARIABLE.split(line)
        if len(part.strip(" :")) > 2 and part.strip(" :") not in text
    ]
    assert missing == []
