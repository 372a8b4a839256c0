"""docs/reference/versions.md shows the cells of `make matrix`, and only what they prove."""

from __future__ import annotations

import sys
import tomllib
from importlib.metadata import version

import pyspark
import pytest

from airflow_cairn.hooks import versions
from airflow_cairn.spark.execution import transport
from scripts.check_types import OLDEST_DRIVER
from scripts.reference import marks, part
from scripts.setup.base import ROOT
from tests.matrix import __main__ as command
from tests.matrix.cells import AIRFLOWS, CONNECTS, DRIVERS, MAIN


def test_the_page_shows_the_cells() -> None:
    assert {"matrix airflow", "matrix drivers", "matrix connect"} <= {*marks()}
    assert all(f"| `{cell.name}` |" in part("matrix drivers") for cell in DRIVERS)
    assert all(f"| `{cell.name}` |" in part("matrix airflow") for cell in AIRFLOWS)
    assert all(f"| `{cell.name}` |" in part("matrix connect") for cell in CONNECTS)
    assert [cell.server for cell in CONNECTS if cell.is_refused] == ["3.5.9"]


def test_the_bounds_of_airflow_are_those_of_the_oldest_cells() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    [airflow] = [line for line in project["dependencies"] if line.startswith("apache-airflow>")]
    oldest = min((cell.airflow for cell in AIRFLOWS), key=lambda found: tuple(map(int, found.split("."))))
    assert airflow == f"apache-airflow>={oldest},<4"
    assert project["requires-python"] == f">={min(AIRFLOWS, key=lambda cell: cell.python).python}"
    [main] = [cell for cell in AIRFLOWS if cell.is_main]
    assert (main.airflow, main.python) == (version("apache-airflow"), ".".join(map(str, sys.version_info[:2])))
    assert main.has_retry_policies
    assert versions.HAS_RETRY_POLICIES


def test_the_bounds_are_those_of_the_oldest_cells() -> None:
    pythons = [tuple(map(int, cell.python.split("."))) for cell in DRIVERS]
    sparks = [tuple(map(int, cell.pyspark.split(".")[:2])) for cell in DRIVERS]
    assert min(pythons) == tuple(map(int, OLDEST_DRIVER.split(".")))
    assert min(sparks) == transport.OLDEST


def test_what_a_driver_runs_is_linted_for_the_oldest_python() -> None:
    ruff = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["ruff"]
    assert set(ruff["per-file-target-version"].values()) == {f"py{OLDEST_DRIVER.replace('.', '')}"}


def test_the_main_cell_is_what_the_tests_run_with() -> None:
    assert pyspark.__version__ == MAIN
    assert [cell.pyspark for cell in DRIVERS if cell.with_tests] == ["3.5.9", MAIN]


def test_a_cell_that_there_is_not_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.main(["spark-1.6"])
    assert "there is no cell 'spark-1.6'. There are spark-3.5.9-python-3.10," in capsys.readouterr().err
