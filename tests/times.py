"""Says where the time of `make test` went: each lane's time, and the ten slowest tests.

python -m tests.times REPORT: what `pytest --junitxml` has written.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from tests import lanes
from tests.real.airflow import side_by_side

SLOWEST = 10


@dataclass(frozen=True)
class Timed:
    """One test of a run."""

    nodeid: str
    waited: float
    """Seconds that its lane spent on it, with its fixtures: the first test that needs an Airflow pays for its start."""
    seconds: float
    """Seconds of the test itself: more than its lane spent on it, where it ran beside others."""


@dataclass(frozen=True)
class Report:
    """One run of pytest."""

    seconds: float
    """From its begin to its end."""
    tests: tuple[Timed, ...]


def read(path: Path) -> Report:
    """Read what one run has written."""
    suites = ElementTree.parse(path).getroot()
    tests = tuple(_timed(case) for case in suites.iter("testcase"))
    return Report(sum(float(suite.get("time", 0)) for suite in suites.iter("testsuite")), tests)


def _timed(case: ElementTree.Element) -> Timed:
    file = case.get("classname", "").replace(".", "/")
    waited = float(case.get("time", 0))
    own = case.find(f"properties/property[@name='{side_by_side.SECONDS}']")
    return Timed(f"{file}.py::{case.get('name')}", waited, waited if own is None else float(own.get("value", 0)))


def lane_times(report: Report) -> dict[str, tuple[int, float]]:
    """Give the number of tests and the seconds of each lane (tests/lanes.py), on one worker or on two that share it."""
    split = defaultdict[str, list[Timed]](list)
    for test in report.tests:
        split[lanes.of(test.nodeid)].append(test)
    return {lane: (len(tests), sum(test.waited for test in tests)) for lane, tests in sorted(split.items())}


def told(report: Report) -> str:
    """Say it for people."""
    times = {**lane_times(report), "in all": (len(report.tests), report.seconds)}
    lines = ["", "the time of each lane"]
    lines += [f"  {lane:<18} {count:>6,} tests {_minutes(seconds)}" for lane, (count, seconds) in times.items()]
    slowest = sorted(report.tests, key=lambda test: -test.seconds)
    lines += ["", "the ten slowest tests", *(f"  {test.seconds:>6.1f} s  {test.nodeid}" for test in slowest[:SLOWEST])]
    return "\n".join(lines)


def _minutes(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes:>4} min {rest:02} s"


def main(report: str) -> int:
    """Print it, if the run came to an end."""
    if Path(report).exists():
        print(told(read(Path(report))))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
