"""Fixtures of tests that let Airflow parse DAG files, or run an operator as Airflow does."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from scripts.setup.beside import ensure_launchers

if TYPE_CHECKING:
    from airflow.dag_processing.dagbag import DagBag
    from airflow.sdk import DAG

    from tests.support.airflow_stage import Job

_HEAD = """
from datetime import timedelta
from airflow.sdk import DAG, TaskGroup, task, task_group
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow_cairn.checkpoint import CheckpointConfig
from airflow_cairn.operators import *
from airflow_cairn.sensors import CheckpointSensor
"""


class DagFile:
    """Writes DAG files and has Airflow parse them, as the dag processor does."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._number = 0

    def _parse(self, body: str) -> DagBag:
        from airflow.dag_processing.dagbag import DagBag  # here: most tests need no Airflow

        self._number += 1
        path = self._folder / f"dag_{self._number}.py"
        path.write_text(_HEAD + body)
        return DagBag(dag_folder=str(path), bundle_name="test")

    def dag(self, body: str) -> DAG:
        """Parse a file that holds one DAG."""
        bag = self._parse(body)
        assert not bag.import_errors, "\n".join(bag.import_errors.values())
        (dag,) = bag.dags.values()
        return dag

    def error(self, body: str) -> str:
        """Parse a file that cannot be imported; gives what the page shows."""
        bag = self._parse(body)
        (text,) = bag.import_errors.values()
        return text


@pytest.fixture
def dag_file(tmp_path: Path) -> DagFile:
    return DagFile(tmp_path)


@pytest.fixture
def job(tmp_path: Path) -> Job:
    from tests.support.airflow_stage import Job  # here: it imports Airflow

    folder = tmp_path / "storage"
    folder.mkdir()
    return Job(folder)


Define = Callable[[str, str], None]
"""Defines a connection by its id and its JSON."""


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> Define:
    """Define Airflow connections in the environment, as a user may: id and JSON."""

    def define(conn_id: str, value: str) -> None:
        monkeypatch.setenv(f"AIRFLOW_CONN_{conn_id.upper()}", value)

    return define


Install = Callable[[str, str], None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Install a package: the group of its entry point, and the code of its module, whose `of` the entry point gives."""

    def put(group: str, code: str) -> None:
        folder = tmp_path / "site"
        info = folder / "plugged_package-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: plugged-package\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[{group}]\nplugged = plugged_package:of\n")
        (folder / "plugged_package.py").write_text(code)
        monkeypatch.syspath_prepend(str(folder))

    yield put
    sys.modules.pop("plugged_package", None)


class Said:
    """Log so far: operators and triggers log by structlog, which prints, modules by logging."""

    def __init__(self, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]) -> None:
        self._caplog = caplog
        self._capsys = capsys
        self._printed = ""

    @property
    def text(self) -> str:
        self._printed += self._capsys.readouterr().out
        return self._printed + self._caplog.text


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]) -> Said:
    caplog.set_level("INFO")
    return Said(caplog, capsys)


@pytest.fixture(scope="module")
def launcher_providers() -> Iterator[None]:
    """The providers of services, for one module alone: the other tests run with what users have."""
    import airflow

    folder = str(ensure_launchers())
    sys.path.append(folder)
    # Looked up by the package, which has put its own path together when it was imported.
    airflow.__path__.append(f"{folder}/airflow")
    yield
    airflow.__path__.remove(f"{folder}/airflow")
    sys.path.remove(folder)
    for name, module in list(sys.modules.items()):
        if name.startswith("airflow.") and (getattr(module, "__file__", None) or "").startswith(folder):
            del sys.modules[name]
