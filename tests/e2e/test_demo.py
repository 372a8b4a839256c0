"""`make demo` as a newcomer runs it: its own process, everything real, and nothing left behind."""

from __future__ import annotations

import re
import signal
import sys
from pathlib import Path

import psutil
import pytest

from scripts.demo.flights_input import write_flights
from scripts.harness.airflow_api import AirflowApi
from scripts.harness.processes import RealProcess
from scripts.harness.wait import wait_until
from scripts.setup.base import ROOT

pytestmark = pytest.mark.e2e


def demo(tmp_path: Path, *options: str) -> RealProcess:
    """Start the demonstration."""
    return RealProcess("demo", [sys.executable, "-m", "scripts.demo", *options], tmp_path / "demo.log", cwd=ROOT)


def ended(process: RealProcess, timeout: float) -> str:
    """Wait until the demonstration has ended and give what it printed."""
    wait_until(lambda: process.returncode is not None, timeout, "the demonstration to end", details=process.log_tail)
    return process.log.read_text()


def check(printed: str) -> None:
    """Check what it says when a driver was killed in the second of two epochs."""
    assert "SIGKILL to the Spark driver" in printed
    assert "STATE ROWS EQUAL" in printed
    assert "nothing is left over" in printed
    assert "FAILED JOB_FAILOVER_REGION" in printed


def test_it_ends_with_all_rows_equal(tmp_path: Path) -> None:
    """On S3: one driver is killed in the second epoch, and the state equals one plain pass (semantics F2, R1)."""
    flights = tmp_path / "own-flights.parquet"
    write_flights(flights, 3)
    options = ["--epochs", "2", "--kill", "clean@2", "--storage", "s3", "--flights", str(flights)]
    process = demo(tmp_path, *options)
    printed = ended(process, 1200)
    assert process.returncode == 0, printed
    check(printed)
    assert process.family() == []


def test_keep_leaves_airflow_up_until_ctrl_c(tmp_path: Path) -> None:
    """On files, with KEEP=1: it comes out the same, and prints an address and a login that work (semantics F2, R1)."""
    process = demo(tmp_path, "--epochs", "2", "--kill", "routes@2", "--keep")
    process.wait_until(lambda: "Press Ctrl-C" in process.log.read_text(), 1200, "the end of the demonstration")
    printed = process.log.read_text()
    check(printed)
    found = re.search(r"stays up at (\S+)  \(user: (\S+), password: (\S+)\)", printed)
    assert found is not None
    api = AirflowApi(found[1], found[2], found[3])
    assert [run["state"] for run in api.runs("flights")] == ["success", "success"]
    api.close()
    psutil.Process(process.pid).send_signal(signal.SIGINT)
    ended(process, 60)
    assert process.family() == []


def test_ctrl_c_leaves_nothing(tmp_path: Path) -> None:
    """Ctrl-C while Spark drivers run ends every process and removes the folder."""
    process = demo(tmp_path, "--epochs", "1", "--kill", "none")
    process.wait_until(lambda: "clean acknowledged" in process.log.read_text(), 600, "the first stage")
    process.wait_until(lambda: drivers(process.family()), 300, "a Spark driver")
    family = process.family()
    assert len(family) > 4
    folder = storage_folder(process.log.read_text()).parent
    assert folder.exists()
    psutil.Process(process.pid).send_signal(signal.SIGINT)
    printed = ended(process, 60)
    assert process.returncode == 130, printed
    wait_until(lambda: not [each for each in family if each.is_running()], 10, "all processes to be gone")
    assert "every process that the demonstration started has been ended" in printed
    assert not folder.exists()


def drivers(family: list[psutil.Process]) -> list[psutil.Process]:
    """Give the Spark drivers among some processes."""
    return [each for each in family if each.is_running() and "SparkSubmit" in " ".join(each.cmdline())]


def storage_folder(printed: str) -> Path:
    """Read the storage's folder off what the demonstration printed."""
    found = re.search(r"storage: file://(\S+)", printed)
    assert found is not None
    return Path(found[1])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--kill", "routes"], "KILL must be none or STAGE@EPOCH"),
        (["--kill", "wait@1"], "with a stage of clean, routes, airports, report"),
        (["--kill", "clean@9", "--epochs", "2"], "KILL names epoch 9, and there are 2"),
        (["--epochs", "0"], "EPOCHS must be at least 1, not 0"),
        (["--flights", "nowhere.parquet"], "FLIGHTS: there is no file"),
        (["--storage", "ftp"], "invalid choice: 'ftp'"),
    ],
)
def test_bad_options_are_refused_at_once(tmp_path: Path, options: list[str], message: str) -> None:
    """Before anything is started."""
    process = demo(tmp_path, *options)
    printed = ended(process, 60)
    assert process.returncode == 2
    assert message in printed
