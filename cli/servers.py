"""`cairn servers`: the Spark servers that the stages of jobs share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..checkpoint import Coordinator
from ..checkpoint.secrets.masking import masked
from ..checkpoint.views.servers import ServerRow
from ..checkpoint.views.servers import servers as servers_of
from ..checkpoint.views.wording import moment
from ..storage.errors import CairnError, ErrorKind
from ..storage.port import ObjectStore
from .output import text

_HEADINGS = ("job", "server", "state", "for", "input (UTC)", "where", "started", "lease until")
_RUN = 24
"""Columns for a DAG run's id."""


def servers(store: ObjectStore, jobs: Iterable[str], now_ms: int) -> tuple[list[str], dict[str, Any]]:
    """List the servers of some jobs. A job whose record cannot be read is named, and the others are listed.

    Args:
        store: the storage.
        jobs: their names.
        now_ms: the time, milliseconds since 1970 UTC.

    Raises:
        CairnError: the store could not be asked.
    """
    rows: list[ServerRow] = []
    problems: dict[str, str] = {}
    for job in jobs:
        try:
            rows += servers_of(Coordinator(store, job), now_ms)
        except CairnError as error:
            # As for heads: a broken document, or a folder that is no job's.
            if error.kind not in (ErrorKind.DATA, ErrorKind.INVALID):
                raise
            problems[job] = masked(str(error))
    lines = text.table(_HEADINGS, [_cells(row) for row in rows]) if rows else ["no Spark servers"]
    for name, problem in problems.items():
        lines += text.paragraph(f"{name}: its record of servers cannot be read: {problem}", text.width())
    found = [{"job": name, "problem": problem} for name, problem in problems.items()]
    return lines, {"servers": [row.as_json() for row in rows], "problems": found}


def _cells(row: ServerRow) -> tuple[str, ...]:
    return (
        row.job,
        row.server,
        row.state,
        text.run_name(row.run_id, _RUN) if row.run_id is not None else "the job",
        text.window(row.input),
        row.where or "-",
        moment(row.started_at_ms),
        moment(row.lease_until_ms),
    )
