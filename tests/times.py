"""Says where the time of `make test` went: each lane's time, and the ten slowest tests.

python -m tests.times REPORT…: what each `pytest --junitxml` has written, one for each run of pytest.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from tests import lanes

SLOWEST = 10
QUICK = "without real parts"


@dataclass(frozen=True)
class Timed:
    """One test of a run."""

    nodeid: str
    seconds: float
    """Its fixtures with it: the first test that needs an Airflow pays for its start."""


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
    return Timed(f"{file}.py::{case.get('name')}", float(case.get("time", 0)))


def lane_times(report: Report) -> dict[str, tuple[int, float]]:
    """Give the number of tests and the seconds of each lane.

    A run that needs real parts has two lanes beside each other, in each of which one test follows the other
    (tests/lanes.py). Any other run is one lane.
    """
    split = defaultdict[str, list[Timed]](list)
    for test in report.tests:
        split[lanes.of(test.nodeid)].append(test)
    if lanes.AIRFLOW not in split:
        return {QUICK: (len(report.tests), report.seconds)}
    return {lane: (len(tests), sum(test.seconds for test in tests)) for lane, tests in sorted(split.items())}


def told(reports: Iterable[Report]) -> str:
    """Say it for people."""
    reports = list(reports)
    lines = ["", "the time of each lane"]
    for report in reports:
        lines += [
            f"  {lane:<18} {count:>6,} tests {_minutes(seconds)}"
            for lane, (count, seconds) in lane_times(report).items()
        ]
    total = sum(len(report.tests) for report in reports)
    lines.append(f"  {'in all':<18} {total:>6,} tests {_minutes(sum(report.seconds for report in reports))}")
    slowest = sorted((test for report in reports for test in report.tests), key=lambda test: -test.seconds)
    lines += ["", "the ten slowest tests", *(f"  {test.seconds:>6.1f} s  {test.nodeid}" for test in slowest[:SLOWEST])]
    return "\n".join(lines)


def _minutes(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes:>4} min {rest:02} s"


def main(paths: list[str]) -> int:
    """Print it for the runs that came to an end."""
    print(told(read(Path(path)) for path in paths if Path(path).exists()))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
