"""A cell of Airflow: Cairn's wheel beside one version of Airflow, and a pipeline that this Airflow schedules.

Nothing of this project's own environment takes part but the code that watches.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tomllib
from argparse import Namespace
from collections import Counter
from pathlib import Path
from typing import Any

from airflow_cairn.checkpoint import Coordinator
from airflow_cairn.cli.output import states
from airflow_cairn.storage import open_store
from scripts.harness.airflow_home import USERNAME, AirflowHome
from scripts.harness.spark.start import fast_conf
from scripts.harness.wait import wait_until
from scripts.setup.base import ROOT
from scripts.setup.uv import ensure_uv
from tests.matrix.cells import AirflowCell
from tests.matrix.environments import programs_of
from tests.support.wheel import built_wheel

HERE = Path(__file__).parent
DAILY = HERE / "dags" / "daily.py"
DAYS = (1, 2)
EXAMPLES = sorted(path.stem for path in (ROOT / "dags" / "examples").glob("[!_]*.py"))
REFUSED = "needs Airflow's retry policies, which Airflow has from 3.3 on"


def packages(cell: AirflowCell, extra: str = "spark") -> list[str]:
    """Give what a user installs with Cairn: this Airflow, what Cairn needs, and an extra."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    more = project["optional-dependencies"][extra]
    return [f"apache-airflow=={cell.airflow}", *cell.constraints, *project["dependencies"], *more]


def check(cell: AirflowCell, folder: Path) -> None:
    """Make a cell's environment, install Cairn into it and use it."""
    programs = programs_of(cell.name, cell.python, packages(cell))
    install(programs, folder)
    _check_facts(cell, _facts(programs, folder))
    _run_days(programs, folder)


def install(programs: Path, folder: Path) -> None:
    """Install the wheel as pip would, but for what it needs, which is there; then ask whether all fits."""
    into: tuple[str | Path, ...] = ("--no-config", "--python", programs / "python")
    for words in (("install", *into, "--no-deps", "--reinstall", built_wheel(folder)), ("check", *into)):
        command = [ensure_uv(), "pip", *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


def _facts(programs: Path, folder: Path) -> dict[str, Any]:
    """Import and parse in the cell, outside of the repository, whose folders would be found first."""
    copied = folder / "facts.py"
    shutil.copyfile(HERE / "airflow_facts.py", copied)
    asked = "import airflow_cairn; print(*airflow_cairn.__path__)"
    environ = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "PYTHON"))},
        "AIRFLOW_HOME": str(folder / "facts"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        **_of_the_dag(folder),
    }
    package = subprocess.run(
        [programs / "python", "-c", asked], capture_output=True, text=True, check=True, cwd=folder, env=environ
    ).stdout.split()[-1]
    folders: list[str | Path] = [f"{package}/dags", f"{package}/dags/examples", HERE / "dags"]
    words = [programs / "python", copied, *folders]
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=folder, env=environ)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    [line] = [line for line in done.stdout.splitlines() if line.startswith("FOUND ")]
    told: dict[str, Any] = json.loads(line.removeprefix("FOUND "))
    return told


def _check_facts(cell: AirflowCell, told: dict[str, Any]) -> None:
    assert (told["airflow"], told["python"]) == (cell.airflow, cell.python), told
    assert "site-packages" in told["from"], "from the wheel"
    assert told["modules"] > 100, told
    errors = dict(told["errors"])
    strategy = "restarting" in told["dags"]
    assert strategy is cell.has_retry_policies, "a restart strategy is refused where Airflow cannot keep to it"
    if not strategy:
        assert REFUSED in errors.pop(str(HERE / "dags" / "restarting.py"))
    assert errors == {}, errors
    assert {"flights", "daily", *EXAMPLES} <= set(told["dags"]), told["dags"]


def _of_the_dag(folder: Path) -> dict[str, str]:
    conf = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2", **fast_conf()}
    return {
        "MATRIX_STORAGE": f"file://{folder}/lake",
        "MATRIX_APPLICATIONS": str(HERE / "applications"),
        "MATRIX_MARKER": str(folder / "killed"),
        "MATRIX_SPARK_CONF": json.dumps(conf),
        "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": "local[2]"}),
    }


def _run_days(programs: Path, folder: Path) -> None:
    """Let Airflow schedule both days; on the second a driver and its JVM are killed, which takes a region along."""
    airflow = AirflowHome(folder / "airflow", env=_of_the_dag(folder), heartbeat_timeout=60, programs=programs)
    login = {"conn_type": "http", "host": airflow.url, "login": USERNAME, "password": airflow.password}
    airflow.add_env("AIRFLOW_CONN_CAIRN_AIRFLOW_API", json.dumps(login))
    shutil.copy(DAILY, airflow.dags_folder)
    with airflow:
        airflow.api.wait_for_dag("daily")
        airflow.api.unpause("daily")
        wait_until(
            lambda: len(airflow.api.runs("daily")) == len(DAYS), 900, "two runs", details=lambda: _states(airflow)
        )
        runs = [str(run["dag_run_id"]) for run in airflow.api.runs("daily")]
        for run in runs:
            assert airflow.api.wait_for_run("daily", run, timeout=900) == "success", airflow.api.explain("daily", run)
        tries = [
            [airflow.api.task("daily", run, f"epoch.{stage}").try_number for stage in ("routes", "report")]
            for run in runs
        ]
    assert (folder / "killed").exists(), "a driver was killed"
    assert tries == [[1, 1], [2, 2]], "the second day's region ran once more, as its first try was killed"
    coordinator = Coordinator(open_store(f"file://{folder}/lake"), "daily")
    totals = _rows(coordinator, "routes", "totals")
    assert {row["route"]: row["flights"] for row in totals} == expected_totals(), totals


def expected_totals() -> dict[str, int]:
    """Add up all days, without Spark and without Cairn."""
    totals: Counter[str] = Counter()
    for day in DAYS:
        for flight in range(day * 100, day * 100 + 100):
            totals[f"route {flight % 7}"] += flight
    return dict(totals)


def _rows(coordinator: Coordinator, stage: str, name: str) -> list[dict[str, Any]]:
    """Read the newest checkpoint's state as `cairn state` does: from its files, without Spark."""
    asked = Namespace(stage=stage, name=name, checkpoint=None, head=100)
    _, document = states.rows(coordinator, asked)
    found: list[dict[str, Any]] = document["rows"]
    return found


def _states(airflow: AirflowHome) -> str:
    return "\n".join(airflow.api.explain("daily", str(run["dag_run_id"])) for run in airflow.api.runs("daily"))
