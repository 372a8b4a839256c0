"""`cairn regions`: what of a DAG's jobs runs again together. The one command that needs Airflow, and no storage."""

from __future__ import annotations

import argparse
import sys
from contextlib import redirect_stdout
from typing import TYPE_CHECKING

from .commands import Outcome

if TYPE_CHECKING:
    from ..operators.group.regions import JobRegions


def regions(options: argparse.Namespace) -> Outcome:
    """Give the regions of each job of a DAG (semantics F1).

    Raises:
        InvalidConfigError: the file cannot be parsed, or holds no such DAG, or the DAG no job.
    """
    # Airflow and DAG files may print; what this command prints must stay readable for a program.
    with redirect_stdout(sys.stderr):
        from ..operators.group.regions import regions_in

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
