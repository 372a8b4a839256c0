"""`cairn regions`: the parts of a DAG's jobs that run again together. Needs Airflow and no storage."""

from __future__ import annotations

import argparse
import sys
from contextlib import redirect_stdout
from typing import TYPE_CHECKING

from .commands import Outcome

if TYPE_CHECKING:
    from ..operators.group.checks import JobRegions


def regions(options: argparse.Namespace) -> Outcome:
    """Return the regions of each job of a DAG (semantics F1).

    Raises:
        InvalidConfigError: the file cannot be parsed, or has no such DAG, or the DAG has no job.
    """
    # Airflow and DAG files may print; this command's output must stay machine-readable.
    with redirect_stdout(sys.stderr):
        from ..operators.group.checks import regions_in

        found = regions_in(options.dag_file, options.dag_id)
    lines = [line for job in found for line in _lines(job)]
    return Outcome(lines, {"dag": options.dag_id, "jobs": [_document(job) for job in found]})


def _lines(job: JobRegions) -> list[str]:
    regions = job.regions
    stages = f"{len(job.stages)} stage{'s' if len(job.stages) != 1 else ''}"
    head = f"job {job.job}: {stages} in {len(regions)} region{'s' if len(regions) != 1 else ''}"
    return [head, *(f"  {number}  {', '.join(region)}" for number, region in enumerate(regions, 1))]


def _document(job: JobRegions) -> dict[str, object]:
    return {
        "job": job.job,
        "triggered_by": job.task,
        "regions": [list(region) for region in job.regions],
        "edges": [
            {"from": up, "to": stage.uid, "exchange": "pipelined" if up in stage.pipelined else "blocking"}
            for stage in job.stages
            for up in stage.upstream
        ],
    }
