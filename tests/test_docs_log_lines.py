"""Log lines in the documentation: some source prints each; and the runbook has a row for each warning."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from airflow_cairn.cli.output import hints
from scripts.setup.base import ROOT

_LAYERS = ("operators", "sensors", "triggers", "launchers", "tasks", "hooks", "spark", "checkpoint", "storage")
_ALL = (*_LAYERS, "plugin", "cli", "testing")
_LOGGERS = ("logging.getLogger('airflow_cairn')", "logging.getLogger('spark')", "logging.getLogger()")
"""Cairn's, what a driver prints, and the root, whose handlers are asked."""
_METHODS = {"debug", "info", "warning", "error", "exception", "log"}
_WHOLE = "%s"
"""A line that another function has written as a whole."""
_CELL = re.compile(r"^\| `([^`]+)` \|", re.MULTILINE)
_FILLED_IN = re.compile(r"%[-.\d]*[a-z]")
_NO_ACTION = {
    "No local copy of",
    "its server was killed",
    "A later compaction gives it up",
    "A write is stopped",
    "Acknowledged late, after the end of its attempt",
    "Cleaning failed; the next completed checkpoint cleans again",
    "Could not ask Airflow about the DAG run",
    "Could not find out whether the DAG",
    "Could not find out whether the connection",
    "Could not find out whether this attempt still counts; the driver goes on",
    "No checkpoint was triggered, and this task tries again",
    "No link to Spark while the application runs",
    "No note on",
    "No note on the run",
    "Spark could not end what ran in the session of stage",
    "The application did not end within",
    "The application was killed and its session not released; the next try does that",
    "The application was killed, and its session is released: the server stops what it has begun",
    "The asset events say no rows",
    "The checkpoint is left to the task that waits for it",
    "The log of driver pod",
    "The decline could not be written; the operator reports the failure",
    "The next cleaning tries again",
    "The session of stage",
    "The stages that had acknowledged in checkpoint",
    "The storage cannot be reached, asking again",
    "The storage cannot be reached, asking again in",
    "This server ends",
    "This server takes no more stages",
    "This task keeps the right to trigger until another stage sees that it has ended",
    "What an unfinished compaction wrote could not be deleted",
    "What has to run again cannot be cleared now, asking again",
    "What sessions have left was not dropped",
    "What this driver wrote could not be deleted; the cleaner deletes it later",
    "Which sessions are to be closed is not known",
    "could not be cancelled",
    "is up at port",
    "s: its session is released without it",
    "was left unfinished, and is given up",
    (
        "which this head.json never handed out: it is older than that checkpoint, as after a restore "
        "from a backup. That does not count, and the epoch runs again"
    ),
}
"""Warnings after which nothing is to do, unless they go on coming: the runbook says so of every line without a row."""
_SAYS_IT = {
    "Disposed although",
    (
        "It counts as running, because it may be another deployment's; its checkpoint ends with its "
        "timeout. If you have deleted it, type: cairn adopt JOB --dag"
    ),
    (
        "The checkpoint was not restored by this callback, and no other try follows: mend the cause, "
        "which follows, then clear the task"
    ),
    (
        "The magic committer's classes are not on the classpath: Spark commits to S3 by copying every "
        "file. That is safe, and slow"
    ),
    "is not a plain http or https URL; write https://spark-history.example.com",
    "these extras are not used by Cairn",
    "too: the one beside the DAG file is taken",
    "which the checkpoint does not publish; it publishes",
}
"""Warnings that name the remedy, so that the runbook would only repeat it."""
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


def calls(layers: tuple[str, ...]) -> Iterator[tuple[str, ast.Call]]:
    """Give every call in some folders, and where it is."""
    for layer in layers:
        for path in sorted((ROOT / layer).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Call):
                    yield f"{path.relative_to(ROOT)}:{node.lineno}", node


def warnings() -> Iterator[tuple[str, str]]:
    """Give where a warning or an error is logged, and the longest part of its text that is always the same."""
    for where, call in calls(_LAYERS):
        match call:
            case ast.Call(ast.Attribute(attr="warning" | "error" | "exception"), [ast.Constant(value=text), *_]):
                fixed = max((part.strip(" .,:;()") for part in _FILLED_IN.split(str(text))), key=len)
                if fixed:
                    yield where, fixed


def test_every_warning_is_in_the_runbook() -> None:
    """Say what it means and what to do, in the line itself, in docs/operations.md or in the page about that service"""
    pages = ["operations.md", "how-to/warm-sessions.md", "how-to/run-on-spark-connect.md", "how-to/run-on-a-service.md"]
    pages += ["reference/metrics.md", "reference/operators.md"]
    said = " ".join("\n".join((ROOT / "docs" / page).read_text() for page in pages).split())
    found = list(warnings())
    assert len(found) > 40
    known = _NO_ACTION | _SAYS_IT
    assert known <= {text for _, text in found}, "a line that is no more"
    missing = [f"{where}: {text}" for where, text in found if text not in said and text not in known]
    assert not missing, "\n".join(missing)


def messages() -> Iterator[tuple[str, str]]:
    """Give where a line is logged, and its text; empty if the call does not hold it."""
    for where, call in calls(_ALL):
        if (
            isinstance(call.func, ast.Attribute)
            and call.func.attr in _METHODS
            and re.fullmatch(r"(\w+\.)*_?(log|logger)", ast.unparse(call.func.value))
        ):
            text = call.args[call.func.attr == "log"]
            yield where, str(text.value if isinstance(text, ast.Constant) else "")


def test_every_line_begins_with_a_capital() -> None:
    """Log lines are read at night, among those of other programs."""
    found = list(messages())
    assert len(found) > 150
    assert [each for each in found if not each[1][:1].isupper() and each[1] != _WHOLE] == []


def test_every_line_has_the_source_that_the_runbook_names() -> None:
    """A filter by one source in Airflow's log viewer shows Cairn's lines and no others."""
    others = [
        f"{where}: {ast.unparse(call)}"
        for where, call in calls(_ALL)
        if (ast.unparse(call.func) == "logging.getLogger" and ast.unparse(call) not in _LOGGERS)
        or re.fullmatch(r"self\.log\.(debug|info|warning|error|exception|log)", ast.unparse(call.func))
    ]
    assert others == []
    assert "`airflow_cairn`" in (ROOT / "docs" / "operations.md").read_text()


def test_every_error_says_what_it_means_and_what_to_do() -> None:
    """Entries stand in `cairn help errors`, to which the runbook leads."""
    told = list(hints.errors())
    assert len(told) > 50
    assert [each.code for each in told if not each.meaning or not each.remedy] == []
