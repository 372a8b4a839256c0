"""Output of a client that ran `applications/connect_kinds.py`, or none."""

from __future__ import annotations

import json
from typing import Any

from airflow_cairn.spark.remote.submission import NOT_RUN, Problem


def found(ended: tuple[int, str]) -> dict[str, Any]:
    """Give what the application found.

    Args:
        ended: the client's exit status and output.
    """
    status, output = ended
    assert status == 0, f"{output[:3000]}…{output[-3000:]}"
    [line] = [line for line in output.splitlines() if line.startswith("FOUND ")]
    result: dict[str, Any] = json.loads(line.removeprefix("FOUND "))
    return result


def problem_of(ended: tuple[int, str]) -> Problem:
    """Give why no application ran.

    Args:
        ended: the client's exit status and output.
    """
    status, output = ended
    assert status == NOT_RUN, output[-4000:]
    [problem] = filter(None, map(Problem.in_line, output.splitlines()))
    return problem


def check_restored(second: dict[str, Any]) -> None:
    """Check that the second epoch found all that the first has kept."""
    assert second["totals"] == list(range(10))
    assert 0 < second["of one subtask"] < 10
    assert (second["list"], second["large"], second["behind"]) == ([[1], [2]], 30_000, [0, 1, 2, 3])
    assert second["files"] == ["a.bin", "trees 1/ü=1.bin"]
    assert second["league"] == [7]
    assert second["sums"] == [10, 10, 14, 14, 18, 18, 22, 22, 26, 26], "of both epochs"
