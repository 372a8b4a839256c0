"""The documentation's code, sorted by what runs it: Airflow's parser, a Spark application, or a shell.

A diff is what it makes of a file; one that imports nothing of Cairn is an excerpt, of which only the syntax is checked.
A block that is a part of another says so in its first line, where a reader sees it: `# in the group above`. All others
run as they stand, with the addresses of a test's own parts.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from .check_docs import pages
from .markdown import Block, parse

IN_GROUP = "# in the group above"
TUTORIAL = "docs/tutorial.md"

_DAG = re.compile(r"airflow\.sdk|airflow_cairn\.(?:operators|sensors|hooks|plugin|checkpoint) import")
_FACE = re.compile(r"^\s*from airflow_cairn import \(?([\w,\s]+?)\)?$", re.MULTILINE)
_OF_APPLICATIONS = {"DataCheckError", "Epoch", "StateTtl", "state", "table"}
"""Names that applications import from the package's own face; all others there are for DAG files."""
_STORE = re.compile(r"s3=S3Options\(endpoint_url=")
_MODULE = re.compile(r"^class (?P<name>[A-Z]\w+)", re.MULTILINE)
_IMPORTED = re.compile(r"\nwith DAG\(|^with DAG\(|savepoint_dag\(\"", re.MULTILINE)


class Kind(Enum):
    """The kind of process that runs a block."""

    DAG = "dag"
    MODULE = "module"
    """A class that a DAG file of the same page imports."""
    APPLICATION = "application"
    SHELL = "shell"
    TUTORIAL = "tutorial"
    """Of the tutorial, which is run as a whole, in its order."""
    STORE = "store"
    """Opens a store on an S3 server."""


@dataclass(frozen=True)
class DocBlock:
    """A block, where it stands, and what runs it."""

    page: str
    line: int
    kind: Kind
    text: str

    @property
    def where(self) -> str:
        """Name it as an editor does."""
        return f"{self.page}:{self.line}"

    @property
    def first(self) -> str:
        return self.text.partition("\n")[0]

    def module(self) -> str:
        """Give the name under which a DAG file of its page imports it (`OrderIds` is in `order_ids`)."""
        found = _MODULE.search(self.text)
        return re.sub(r"(?<!^)(?=[A-Z])", "_", found["name"]).lower() if found else ""

    def dag_file(self) -> str:
        """Give a file that Airflow can import: the block, in a DAG where it makes none."""
        text = self.text
        if _IMPORTED.search(text):
            return text
        if self.first.startswith(IN_GROUP):
            text = _GROUP + textwrap.indent(_GIVEN + text, "    ")
        return _HEAD + textwrap.indent(text, "    ")


_HEAD = """\
from airflow.sdk import DAG, CronDataIntervalTimetable, task
from airflow_cairn import CheckpointConfig, CheckpointedTaskGroup, SparkEpochOperator

with DAG("docs", schedule=CronDataIntervalTimetable("0 0 * * *", timezone="UTC"), max_active_runs=1):
"""
_GROUP = 'with CheckpointedTaskGroup("epoch", storage="s3://lake/cairn"):\n'
_GIVEN = """\
report = SparkEpochOperator(task_id="reported", application="report.py")
clean = SparkEpochOperator(task_id="clean", application="clean.py")
routes = SparkEpochOperator(task_id="routes", application="routes.py")
@task
def check_rows(): ...
"""


def doc_blocks(root: Path) -> Iterator[DocBlock]:
    """Yield each Python and shell block of the pages that users read."""
    for path in pages(root):
        name = path.relative_to(root).as_posix()
        if name != "README.md" and not name.startswith("docs/"):
            continue
        for written in parse(path.read_text()).blocks:
            block = written.side("+")
            kind = None if written.language == "diff" and "airflow_cairn" not in block.text else _kind(block)
            if kind is not None:
                yield DocBlock(name, block.first_line, Kind.TUTORIAL if name == TUTORIAL else kind, block.text)


def _kind(block: Block) -> Kind | None:
    if block.language in {"bash", "console"}:
        return Kind.SHELL
    if block.language not in {"python", "py"}:
        return None
    first = block.text.partition("\n")[0]
    if _STORE.search(block.text):
        return Kind.STORE
    if _MODULE.search(block.text):
        return Kind.MODULE
    from_face = {name.strip() for names in _FACE.findall(block.text) for name in names.split(",") if name.strip()}
    in_dag = first.startswith(IN_GROUP) or _DAG.search(block.text) or from_face - _OF_APPLICATIONS
    return Kind.DAG if in_dag else Kind.APPLICATION
