"""`make demo` as a newcomer runs it: its own process, everything real, and nothing left behind."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing, suppress
from datetime import timedelta
from functools import partial
from pathlib import Path

import psutil
import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from pyiceberg.catalog import load_catalog

from scripts.demo.__main__ import main
from scripts.demo.flights_input import FIRST_DAY, SCHEMA, write_flights
from scripts.demo.lake import ROWS, Lake
from scripts.harness.airflow_api import AirflowApi
from scripts.harness.postgres_server import PostgresServer
from scripts.harness.processes import RealProcess
from scripts.harness.wait import wait_until
from scripts.setup.base import ROOT
from scripts.setup.venv import VENV
from tests.docs.test_shell_blocks import LINES

pytestmark = pytest.mark.e2e

_TYPED = ("airflow connections add cairn_session ", "airflow dags trigger flights --logical-date ")
"""First words of lines that pages have one type in a running Airflow; the second reads a day once more."""


def typed() -> str:
    """Give these lines of the pages, for bash."""
    lines = [line for begin in _TYPED for _, line in LINES if line.startswith(begin)]
    assert len(lines) == len(_TYPED)
    # A day earlier than on the page: two epochs end the DAG before that.
    return "\n".join(["set -eu", *lines]).replace("--logical-date 2001-01-02", "--logical-date 2001-01-01")


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[Callable[..., RealProcess]]:
    """Start the demonstration. Its Airflow ends with the test, also with one that fails or that Ctrl-C interrupts."""
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    with ExitStack() as started:

        def start(*options: str) -> RealProcess:
            command = [sys.executable, "-m", "scripts.demo", *options]
            env = {**os.environ, "TMPDIR": str(temporary)}
            return started.enter_context(RealProcess("demo", command, tmp_path / "demo.log", cwd=ROOT, env=env))

        yield start


def ended(process: RealProcess, timeout: float) -> str:
    """Wait until the demonstration has ended and give what it printed."""
    wait_until(lambda: process.returncode is not None, timeout, "the demonstration to end", details=process.log_tail)
    return process.log.read_text()


def many(process: RealProcess) -> list[psutil.Process] | None:
    """Give the demonstration's processes, once Airflow's are among them."""
    family = process.family()
    return family if len(family) > 4 else None


def routes_of(flights: Path, days: int) -> set[tuple[str, str]]:
    """Give the routes of the first days of the input, by plain Python."""
    end = FIRST_DAY + timedelta(days=days)
    return {
        (row["origin"], row["destination"])
        for row in pq.read_table(flights).to_pylist()
        if row["date"] < end and None not in (row["delay"], row["origin"], row["destination"])
    }


def ctrl_c(process: RealProcess, tmp_path: Path, family: list[psutil.Process]) -> str:
    """Press Ctrl-C: every process ends, and the demonstration's folder goes. Gives what was printed."""
    (folder,) = (tmp_path / "tmp").glob("cairn-demo-*")
    psutil.Process(process.pid).send_signal(signal.SIGINT)
    printed = ended(process, 600)
    wait_until(lambda: not left(family), 600, "all processes to be gone", details=lambda: str(left(family)))
    assert "every process that the demonstration started has been ended" in printed
    assert process.family() == []
    assert not folder.exists()
    return printed


def left(family: list[psutil.Process]) -> list[psutil.Process]:
    return [each for each in family if each.is_running()]


def test_all_rows_are_equal_and_ctrl_c_leaves_nothing(tmp_path: Path, demo: Callable[..., RealProcess]) -> None:
    """On S3, with KEEP=1: a stage is killed in the second epoch, and the state equals one plain pass.

    It prints an address and a login that work. Ctrl-C comes while a stage of another run works, and ends it too, with
    the Spark server that outlives the tasks.
    """
    # semantics F2, R1, V2
    flights = tmp_path / "own-flights.parquet"
    write_flights(flights, 3)
    options = ["--epochs", "2", "--kill", "clean@2", "--storage", "s3", "--flights", str(flights)]
    process = demo(*options, "--keep")
    process.wait_until(lambda: "Press Ctrl-C" in process.log.read_text(), 1200, "the end of the demonstration")
    printed = process.log.read_text()
    assert "SIGKILL to clean, while Spark writes for it" in printed
    assert "STATE ROWS EQUAL" in printed
    for state in ("routes.totals", "airports.traffic"):
        wrote = rf"the last epoch wrote [\d,]+ bytes for {state}(; a snapshot .* has|, which is all of it)"
        assert re.search(wrote, printed)
    routes = routes_of(flights, days=2)
    airports = {airport for route in routes for airport in route}
    assert f"({len(routes):,} of routes.totals, {len(airports):,} of airports.traffic)" in printed
    assert "nothing is left over" in printed
    assert "FAILED JOB_FAILOVER_REGION" in printed
    found = re.search(r"stays up at (\S+)  \(user: (\S+), password: (\S+)\)", printed)
    assert found is not None
    api = AirflowApi(found[1], found[2], found[3])
    assert f"\nThe checkpoints: {found[1]}/dags/flights/plugin/checkpoints\n" in printed
    tried = printed.partition("Three commands to try:\n")[2].partition("\nThe DAG is ")[0]
    look, *others = tried.splitlines()
    assert [each.split()[:2] for each in others] == [["make", "demo"], ["make", "demo"]]
    shown = subprocess.run(["bash", "-c", look], cwd=ROOT, capture_output=True, text=True, check=False)
    assert "(JOB_FAILOVER_REGION)" in shown.stdout, shown.stderr
    assert [run["state"] for run in api.runs("flights")] == ["success", "success"]
    api.close()
    [home] = (tmp_path / "tmp").glob("cairn-demo-*/airflow")
    path = os.pathsep.join([str(VENV / "bin"), os.environ["PATH"]])
    asked = subprocess.run(
        ["bash", "-c", typed()],
        env={**os.environ, "AIRFLOW_HOME": str(home), "PATH": path},
        cwd=home,
        capture_output=True,
        text=True,
        check=False,
    )
    assert asked.returncode == 0, asked.stdout + asked.stderr
    process.wait_until(lambda: clients(process, tmp_path), 600, "a client")
    # The server has left the tree of processes: the task that started it has ended.
    family = [*process.family(), *running(psutil.process_iter(), f"{tmp_path}/tmp/")]
    assert running(family, "SparkSubmit"), "the server"
    printed = ctrl_c(process, tmp_path, family)
    assert process.returncode == 0, printed


def clients(process: RealProcess, tmp_path: Path) -> list[psutil.Process]:
    """The clients of the Spark server, also those that are forked."""
    found = running(process.family(), "airflow_cairn.spark.remote.client")
    for each in running(psutil.process_iter(), f"{tmp_path}/tmp/"):
        with suppress(psutil.Error):  # it has just ended
            found += each.children() if "airflow_cairn.spark.remote.fork_server" in each.cmdline() else ()
    return found


@pytest.mark.soak  # an Airflow and a Spark of its own
def test_ctrl_c_before_the_end(tmp_path: Path, demo: Callable[..., RealProcess]) -> None:
    """On files, with the generated input: it ends by what Ctrl-C ends any command with."""
    process = demo("--epochs", "1", "--kill", "none")
    # The plain pass is a Spark driver too, and Airflow starts beside it.
    process.wait_until(lambda: running(process.family(), "SparkSubmit"), 600, "a Spark driver")
    # Processes are not counted twice: some of them live for a moment only.
    family = process.wait_until(lambda: many(process), 600, "Airflow to start")
    printed = ctrl_c(process, tmp_path, family)
    assert process.returncode == 130, printed
    assert "storage: file://" in printed


@pytest.mark.soak
def test_each_stage_is_a_spark_submit_of_its_own(tmp_path: Path, demo: Callable[..., RealProcess]) -> None:
    """With SESSION=submit no server is started: a stage acknowledges, and Ctrl-C ends the driver of the next one."""
    process = demo("--epochs", "1", "--kill", "none", "--session", "submit")
    process.wait_until(lambda: "checkpoint 1: clean acknowledged" in process.log.read_text(), 600, "the first stage")
    assert "Spark server is up" not in process.log.read_text()
    submitted = partial(running, program="applications/routes.py")
    process.wait_until(lambda: running(submitted(process.family()), "SparkSubmit"), 600, "the driver of the next one")
    printed = ctrl_c(process, tmp_path, process.family())
    assert process.returncode == 130, printed


def running(processes: Iterable[psutil.Process], program: str) -> list[psutil.Process]:
    """Give those of some processes that run a program, or were told of a file."""
    found = []
    for each in processes:
        with suppress(psutil.Error):  # it has just ended, or is another user's
            if program in " ".join(each.cmdline()):
                found.append(each)
    return found


def short(folder: Path) -> Path:
    """Write flights whose delay is no 64-bit number."""
    schema = SCHEMA.set(SCHEMA.get_field_index("delay"), pa.field("delay", pa.int16()))
    pq.write_table(schema.empty_table(), folder / "short.parquet")
    return folder / "short.parquet"


def test_the_reader_of_tables_tells_what_is_wrong(tmp_path: Path) -> None:
    """Without a pipeline: rows that come early, in parts, and twice in one of the three tables."""
    said: list[str] = []
    day = FIRST_DAY.date().isoformat()
    rows = pa.table({"date": [FIRST_DAY], "delay": [7], "origin": ["A"], "destination": ["B"]}, schema=ROWS)
    totals = tmp_path / "totals.parquet"
    pq.write_table(pa.table({"origin": ["A"], "destination": ["B"], "flights": [1], "delay_sum": [7]}), totals)
    with PostgresServer() as server, closing(Lake(tmp_path / "lake", server.dsn, said.append)) as lake:

        def insert() -> None:
            with psycopg.connect(server.dsn) as connection:
                connection.execute("INSERT INTO flights VALUES ('2001-01-01', 7, 'A', 'B')")

        catalog = json.loads(lake.env["AIRFLOW_CONN_FLIGHTS_CATALOG"])["extra"]
        load_catalog("lake", **catalog).load_table("flights.days").append(rows)
        write_deltalake(f"{lake.env['CAIRN_FLIGHTS_TABLES']}/delta", rows, mode="append")
        lake.check(wait_until(lake.take, 60, "a look"), {day})
        assert not lake.shows({day}), "two of three tables"
        insert()
        assert lake.conclude(totals, {day}), said
        assert lake.shows({day})
        assert f"epoch 1 ({day}): iceberg 1 rows, delta 1 rows, postgres 1 rows" in said
        insert()
        assert not lake.conclude(totals, set())
    assert said[-3:] == [
        "FAILED: the rows of postgres differ from the plain pass",
        f"FAILED: a reader saw rows of {day} before its checkpoint was complete",
        f"FAILED: a reader saw 1, 2 rows of {day} in postgres",
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--kill", "routes"], "KILL must be none, server@EPOCH or STAGE@EPOCH"),
        (["--kill", "server@1", "--session", "submit"], "with SESSION=submit there is none"),
        (["--kill", "wait@1"], "with a stage of clean, routes, airports, report"),
        (["--kill", "clean@9", "--epochs", "2"], "KILL names epoch 9, and there are 2"),
        (["--epochs", "0"], "EPOCHS must be at least 1, not 0"),
        (["--tables", "--flights", "SHORT"], "TABLES: the column delay of"),
        (["--flights", "nowhere.parquet"], "FLIGHTS: there is no file"),
        (["--storage", "ftp"], "invalid choice: 'ftp'"),
    ],
)
def test_bad_options_are_refused_at_once(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    options: list[str],
    message: str,
) -> None:
    """Before anything is started."""
    words = [str(short(tmp_path)) if each == "SHORT" else each for each in options]
    monkeypatch.setattr(sys, "argv", ["demo", *words])
    with pytest.raises(SystemExit) as ends:
        main()
    assert ends.value.code == 2
    assert message in capsys.readouterr().err
