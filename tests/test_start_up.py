"""Modules that a start does not import: they cost much, and few starts need them. No timing is asserted."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.test_layers import ROOT, imports_of, modules

AWS = ("boto3", "botocore", "google.auth", "azure.identity")
SPARK = ("pyspark", "py4j", "pandas", "pyarrow", "pyiceberg", "deltalake", "psycopg")
NETWORK = ("asyncio", "email", "http.client", "requests", "ssl", "urllib.request", "urllib3")
COORDINATOR = tuple(
    f"airflow_cairn.checkpoint.{name}" for name in ("acts.claims", "cleaner", "coordinator", "savepoints.take")
)
"""Modules with which a job's tasks decide: no driver and no DAG file does."""
AIRFLOW = ("airflow", "pendulum", "pydantic", "sqlalchemy")
ANY = 10**6
"""A number of modules that nobody counts."""
PARSED_DAG = """
import airflow.sdk
from airflow_cairn import CheckpointConfig, CheckpointedTaskGroup, SparkEpochOperator
from airflow_cairn import DeltaTable, IcebergTable, PostgresTable
IcebergTable("lake.sales.orders"), DeltaTable("s3://lake/events"), PostgresTable("a.b", "dwh", "s3://lake/x")
"""
ALL_IN_AIRFLOW = """
import importlib, pkgutil
for room in ("operators", "sensors", "triggers", "launchers", "hooks", "tasks", "plugin"):
    package = importlib.import_module(f"airflow_cairn.{room}")
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        importlib.import_module(module.name)
"""
"""Every module that a DAG file, a task, the triggerer or the API server may import: none needs a PySpark."""


@pytest.mark.parametrize(
    ("code", "heavy", "most"),
    [
        ("from airflow_cairn import Epoch", AWS + SPARK + NETWORK + AIRFLOW + COORDINATOR, 120),
        ("from airflow_cairn import table", AWS + SPARK + NETWORK + AIRFLOW + COORDINATOR, ANY),
        (
            "import airflow_cairn.spark.remote.client",
            (*AWS, *SPARK, *AIRFLOW, *COORDINATOR, "grpc", "airflow_cairn.spark.epoch"),
            79,
        ),
        (
            "from airflow_cairn.spark.remote.client import *; exec('with pandas_when_used(): import_client()')",
            (*AWS, *AIRFLOW, "pandas"),
            ANY,
        ),
        ("import airflow_cairn.cli.main", AWS + SPARK + NETWORK + AIRFLOW, 138),
        ("from airflow_cairn.checkpoint import Coordinator", AWS + SPARK + NETWORK + AIRFLOW, ANY),
        (
            "from airflow_cairn.storage import open_store; open_store('file:///lake')",
            AWS + SPARK + NETWORK + AIRFLOW,
            ANY,
        ),
        (
            PARSED_DAG,
            (
                *AWS,
                *SPARK,
                "airflow.dag_processing.dagbag",
                "airflow.providers.standard.operators.python",
                *COORDINATOR,
            ),
            160,
        ),
        (ALL_IN_AIRFLOW, AWS + SPARK, ANY),
    ],
    ids=[
        "driver",
        "tables",
        "client",
        "client with PySpark",
        "command line",
        "coordinator",
        "local files",
        "DAG file",
        "Airflow",
    ],
)
def test_what_a_start_imports(code: str, heavy: tuple[str, ...], most: int, tmp_path: Path) -> None:
    """Nothing heavy, and of our modules at most so many: raise a number only for what every such start needs."""
    ask = f"""{code}
import sys
ours = sum(each.startswith('airflow_cairn') for each in sys.modules)
print('found', ours, *sorted(set({heavy!r}) & sys.modules.keys()))
"""
    command = [sys.executable, "-c", ask]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    _, ours, *found = done.stdout.splitlines()[-1].split()
    assert found == []
    assert int(ours) <= most, "each costs about a millisecond"


def test_the_names_that_a_start_must_not_import_exist() -> None:
    assert [name for name in (*COORDINATOR, "airflow_cairn.spark.epoch") if find_spec(name) is None] == []


def test_records_have_methods_that_are_made_when_they_are_used() -> None:
    """Python's own `dataclass` compiles six methods a class: it was half of the time of each start."""
    own = [
        f"{path.relative_to(ROOT)}: from storage/records.py take dataclass"
        for path in modules()
        # Every process of Airflow loads the plugin, and with it the timetable, but nothing else of Cairn.
        if path.name not in ("records.py", "timetable.py") and not path.is_relative_to(ROOT / "dags")
        for _, name in imports_of(path, path.read_text())
        if name == "dataclasses.dataclass"
    ]
    assert own == []
