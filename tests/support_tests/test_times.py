"""`make test` says where its time went."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from scripts.setup.base import ROOT
from tests.times import read, told

REPORT = """<testsuites><testsuite time="700.2">
<testcase classname="tests.real.airflow.test_hands" name="test_b" time="600.0"/>
<testcase classname="tests.real.airflow.test_shapes" name="test_c" time="0.5">
<properties><property name="seconds" value="90.5"/></properties></testcase>
<testcase classname="tests.real.spark.test_epochs" name="test_d" time="61.2"><failure message="no"/></testcase>
{}
</testsuite></testsuites>""".format(
    "\n".join(
        f'<testcase classname="tests.unit.cli.test_show" name="test_a[{number}]" time="{number}"/>'
        for number in range(12)
    )
)

SAID = """
the time of each lane
  in one JVM              1 tests    1 min 01 s
  with an Airflow         2 tests   10 min 00 s
  without real parts     12 tests    1 min 06 s
  in all                 15 tests   11 min 40 s

the ten slowest tests
   600.0 s  tests/real/airflow/test_hands.py::test_b
    90.5 s  tests/real/airflow/test_shapes.py::test_c
    61.2 s  tests/real/spark/test_epochs.py::test_d
    11.0 s  tests/unit/cli/test_show.py::test_a[11]
    10.0 s  tests/unit/cli/test_show.py::test_a[10]
     9.0 s  tests/unit/cli/test_show.py::test_a[9]
     8.0 s  tests/unit/cli/test_show.py::test_a[8]
     7.0 s  tests/unit/cli/test_show.py::test_a[7]
     6.0 s  tests/unit/cli/test_show.py::test_a[6]
     5.0 s  tests/unit/cli/test_show.py::test_a[5]"""


def test_lanes_and_slowest_tests(tmp_path: Path) -> None:
    """A test that ran beside others is as slow as it was itself; its lane did not spend that on it."""
    path = tmp_path / "times.xml"
    path.write_text(REPORT)
    assert told(read(path)) == SAID


@pytest.mark.large
def test_it_reads_what_pytest_writes(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    one = f"{Path(__file__).relative_to(ROOT)}::test_lanes_and_slowest_tests"
    command = [sys.executable, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", f"--junitxml={report}", one]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=300)
    (timed,) = read(report).tests
    assert timed.nodeid == one
    assert timed.seconds > 0


def test_a_run_that_wrote_nothing(tmp_path: Path) -> None:
    """Ctrl-C ends pytest before it writes."""
    command = [sys.executable, "-m", "tests.times", str(tmp_path / "missing.xml")]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True, timeout=300)
    assert (done.stdout, done.stderr) == ("", "")
