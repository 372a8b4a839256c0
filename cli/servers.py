"""`cairn servers`: the Spark servers that the stages of jobs share."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from ..checkpoint import Coordinator
from ..checkpoint.views.servers import ServerRow
from ..checkpoint.views.servers import servers as servers_of
from ..checkpoint.views.wording import moment
from .output import text

_HEADINGS = ("job", "server", "state", "for", "where", "started", "lease until")
_RUN = 24
"""Columns for a DAG run's id."""
_MACHINE = 8
"""Characters of a machine's hash: enough to tell a few apart."""


def servers(jobs: Iterable[Coordinator], now_ms: int) -> tuple[list[str], dict[str, Any]]:
    """List the servers of some jobs.

    Args:
        jobs: their coordinators.
        now_ms: the time, milliseconds since 1970 UTC.
    """
    rows = [row for job in jobs for row in servers_of(job.files, now_ms)]
    lines = text.table(_HEADINGS, [_cells(row) for row in rows]) if rows else ["no Spark servers"]
    return lines, {"servers": [asdict(row) for row in rows]}


def _cells(row: ServerRow) -> tuple[str, ...]:
    return (
        row.job,
        row.server,
        row.state,
        text.run_name(row.run_id, _RUN) if row.run_id is not None else "the job",
        _where(row),
        moment(row.started_at_ms),
        moment(row.lease_until_ms),
    )


def _where(row: ServerRow) -> str:
    if row.port is None:
        return "-"
    at = row.host if row.machine is None else f"loopback of {row.machine[:_MACHINE]}"
    return f"{at}:{row.port}"
