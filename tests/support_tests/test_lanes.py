"""`make test` gives the Airflow and Spark a worker each, others the rest, and the processor to the Airflow's first."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from scripts.setup.base import ROOT
from tests import lanes

FROM_TESTS = """
import sys
sys.path.insert(0, {root!r})
import os, pathlib, pytest
from scripts.harness import priority
from scripts.harness.wait import wait_until
from tests import conftest, lanes

# Not every system has a niceness of sessions, or lets one set it: a file stands in for Linux's.
priority._file = lambda pid: pathlib.Path({session!r})

pytest_sessionstart = conftest.pytest_sessionstart
pytest_collection_modifyitems = conftest.pytest_collection_modifyitems
pytest_xdist_make_scheduler = conftest.pytest_xdist_make_scheduler
pytest_configure_node = conftest.pytest_configure_node
pytest_runtest_setup = conftest.pytest_runtest_setup

@pytest.fixture
def others_side_by_side():
    # Another worker takes this lane's next module while this one waits here.
    notes = pathlib.Path({notes!r})
    wait_until(lambda: {taken_over!r} in notes.read_text(), 600, {taken_over!r})

@pytest.fixture
def note(request, worker_id):
    here, session = os.getpriority(os.PRIO_PROCESS, 0), priority.session_niceness(os.getpid())
    with open({notes!r}, "a") as file:
        file.write(f"{{request.node.nodeid}} {{worker_id}} {{here}} {{session}}\\n")
"""

FILES = {
    "tests/docs/test_blocks.py": 4,
    "tests/real/airflow/test_hands.py": 3,
    "tests/real/airflow/test_shapes.py": 1,
    "tests/real/s3/test_rights.py": 1,
    "tests/real/spark/test_epochs.py": 4,
    "tests/real/spark/test_tables.py": 4,
    "tests/real/spark/test_clouds.py": 2,
    **{f"tests/unit/test_{letter}.py": 3 for letter in "abcd"},
}
WAITS, TAKEN_OVER = "tests/docs/test_blocks.py", "tests/real/spark/test_clouds.py"
"""The first test of one module ends only when another worker has taken another module of its lane."""


def run(folder: Path, workers: int) -> list[list[str]]:
    """Run the files' tests; gives of each its id, its worker, and how much the two give way."""
    notes, session = folder / "notes", folder / "session"
    notes.touch()
    session.write_text("/autogroup-7 nice 3\n")
    for name, count in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        waits = (
            "others_side_by_side" if workers > 1 and name == WAITS and number == 0 else "" for number in range(count)
        )
        path.write_text("\n".join(f"def test_{number}(note, {wait}): pass" for number, wait in enumerate(waits)))
    places = {"root": str(ROOT), "notes": str(notes), "session": str(session), "taken_over": TAKEN_OVER}
    (folder / "conftest.py").write_text(FROM_TESTS.format(**places))
    (folder / "pytest.ini").write_text("[pytest]\naddopts = --import-mode=importlib\n")
    options = ["-q", "-p", "no:cacheprovider", "-n", str(workers), "--dist", "loadscope"]
    command = [sys.executable, "-m", "pytest", *options]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=1500, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert session.read_text() == "3", "it is as it was"
    ran = [line.split() for line in notes.read_text().splitlines()]
    assert len(ran) == len({nodeid for nodeid, *_ in ran}) == sum(FILES.values())
    return ran


@pytest.mark.soak  # the lanes of make test have four
@pytest.mark.large
@pytest.mark.timeout(1800)
def test_one_worker_runs_all_lanes(tmp_path: Path) -> None:
    assert {worker for _, worker, *_ in run(tmp_path, 1)} == {"gw0"}


@pytest.mark.large
@pytest.mark.timeout(1800)
def test_four_lanes(tmp_path: Path) -> None:
    """Every test runs once; the Airflow has a worker of its own, which goes first, Spark has one, and others help."""
    ran = run(tmp_path, 4)
    here = os.getpriority(os.PRIO_PROCESS, 0)
    workers, priorities = defaultdict[str, set[str]](set), defaultdict[str, set[str]](set)
    for nodeid, worker, *niceness in ran:
        workers[lanes.of(nodeid)].add(worker)
        priorities[lanes.of(nodeid)].add(" ".join(niceness))
    (airflow,), (spark,) = workers[lanes.AIRFLOW], workers[lanes.SPARK]
    assert airflow not in workers[lanes.SPARK] | workers[lanes.OTHERS] | workers[lanes.QUICK]
    assert len(workers[lanes.OTHERS]) >= 2
    begins: dict[str, str] = {}
    for nodeid, worker, *_ in ran:
        begins.setdefault(worker, lanes.of(nodeid))
    assert (begins[airflow], begins[spark]) == (lanes.AIRFLOW, lanes.SPARK)
    assert set(begins.values()) == {lanes.AIRFLOW, lanes.SPARK, lanes.OTHERS, lanes.QUICK}
    own = {lanes.AIRFLOW: here, lanes.SPARK: max(here, lanes.OF_SPARK)}
    lower = max(here, lanes.NICENESS)
    assert priorities == {lane: {f"{own.get(lane, lower)} {lanes.NICENESS}"} for lane in workers}


def test_what_begins_first_is_there() -> None:
    assert [name for name in lanes.LONGEST if not (ROOT / name).is_file()] == []
