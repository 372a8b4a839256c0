"""Spark's work by its event log: the time in which queries and other jobs ran, and the CPU time of tasks."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

CONF = {"spark.eventLog.enabled": "true", "spark.eventLog.compress": "false", "spark.eventLog.rolling.enabled": "false"}
"""Conf without `spark.eventLog.dir`, which names the folder."""
_START = "org.apache.spark.sql.execution.ui.SparkListenerSQLExecutionStart"
_END = "org.apache.spark.sql.execution.ui.SparkListenerSQLExecutionEnd"


@dataclass(frozen=True)
class Work:
    """Spark's work in some span of time."""

    busy_s: float
    """The time in which a query was planned, executed or committed, or a job ran: the job that looks for the schema of
    a folder belongs to no query."""
    query_s: float
    """The time in which at least one query ran: planned, executed or committed."""
    queries: int
    task_cpu_s: float
    """CPU time of the tasks."""


def union_s(spans: Iterable[tuple[float, float]]) -> float:
    """Return the length of the union of spans."""
    covered = reached = 0.0
    for begin, end in sorted(spans):
        covered += max(0.0, end - max(begin, reached))
        reached = max(reached, end)
    return covered


def events(folder: Path) -> Iterator[dict[str, object]]:
    """Read every whole line of every event log in a folder."""
    for file in sorted(path for path in folder.iterdir() if path.is_file() and not path.name.startswith(".")):
        for line in file.read_text().splitlines():
            try:
                yield json.loads(line)
            except ValueError:  # the last line, while the application writes it
                continue


def work(folder: Path, begin_s: float, end_s: float) -> Work:
    """Measure the work between two moments of the applications that log into a folder."""
    begun: dict[object, float] = {}
    jobs_begun: dict[object, float] = {}
    spans, jobs, cpu_ns = [], [], 0
    for number, event in enumerate(events(folder)):
        kind = event.get("Event")
        if kind == _START:
            begun[event["executionId"]] = float(str(event["time"])) / 1000
        elif kind == _END:
            begin = begun.pop(event["executionId"], None)
            if begin is not None and begin_s <= begin <= end_s:
                spans.append((begin, float(str(event["time"])) / 1000))
        elif kind == "SparkListenerJobStart":
            jobs_begun[event["Job ID"]] = float(str(event["Submission Time"])) / 1000
        elif kind == "SparkListenerJobEnd":
            begin = jobs_begun.pop(event["Job ID"], None)
            if begin is not None and begin_s <= begin <= end_s:
                jobs.append((begin, float(str(event["Completion Time"])) / 1000))
        elif kind == "SparkListenerTaskEnd":
            info, metrics = event["Task Info"], event.get("Task Metrics") or {}
            assert isinstance(info, dict), number
            assert isinstance(metrics, dict), number
            if begin_s <= info["Finish Time"] / 1000 <= end_s:
                cpu_ns += metrics.get("Executor CPU Time", 0)
    return Work(union_s([*spans, *jobs]), union_s(spans), len(spans), cpu_ns / 1e9)
