"""`make test` says where its time went."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from scripts.setup.base import ROOT
from tests.times import read, told

QUICK = """<testsuites><testsuite time="480.4">
{}
</testsuite></testsuites>""".format(
    "\n".join(
        f'<testcase classname="tests.unit.cli.test_show" name="test_a[{number}]" time="{number}"/>'
        for number in range(12)
    )
)
REAL = """<testsuites><testsuite time="700.2">
<testcase classname="tests.real.airflow.test_hands" name="test_b" time="600.0"/>
<testcase classname="tests.real.airflow.test_shapes" name="test_c" time="90.5"/>
<testcase classname="tests.real.spark.test_epochs" name="test_d" time="61.2"><failure message="no"/></testcase>
</testsuite></testsuites>"""

SAID = """
the time of each lane
  without real parts     12 tests    8 min 00 s
  all others              1 tests    1 min 01 s
  with an Airflow         2 tests   11 min 30 s
  in all                 15 tests   19 min 41 s

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
    """The two lanes of one run are told apart; each is as long as its tests, one after the other."""
    paths = []
    for name, text in (("quick", QUICK), ("real", REAL)):
        paths.append(tmp_path / f"{name}.xml")
        paths[-1].write_text(text)
    assert told(map(read, paths)) == SAID


def test_it_reads_what_pytest_writes(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    one = f"{Path(__file__).relative_to(ROOT)}::test_lanes_and_slowest_tests"
    command = [sys.executable, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", f"--junitxml={report}", one]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=300)
    (timed,) = read(report).tests
    assert timed.nodeid == one
    assert timed.seconds > 0


def test_a_run_that_wrote_nothing_is_left_out(tmp_path: Path) -> None:
    """Somebody who presses Ctrl-C in the second run still learns about the first."""
    quick = tmp_path / "quick.xml"
    quick.write_text(QUICK)
    command = [sys.executable, "-m", "tests.times", str(quick), str(tmp_path / "missing.xml")]
    said = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True, timeout=300).stdout
    assert "without real parts     12 tests    8 min 00 s" in said
    assert "with an Airflow" not in said
