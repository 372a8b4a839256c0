"""The house stands: an import only points downwards, and the lower floors need neither Airflow, Spark nor boto3.

Between the top-level folders and, inside the large ones, between their rooms (scripts/rooms.py).
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from scripts.rooms import ROOMS, floor_of, is_room

ROOT = Path(__file__).parents[1]

# Top to bottom. A layer may import itself and whatever stands below it.
HOUSE = (
    *("plugin", "operators", "sensors", "triggers", "launchers", "tasks"),
    *("hooks", "tables", "spark", "checkpoint", "storage"),
)
MAY_IMPORT = {layer: set(HOUSE[position:]) for position, layer in enumerate(HOUSE)} | {
    "cli": {"cli", "checkpoint", "storage"},
    "dags": {"dags", *HOUSE},
    # Users import these in their tests; no other folder does, but an application that runs by hand.
    "testing": {"testing", "operators", "spark", "checkpoint", "storage"},
}
# Imported when the command runs: only Airflow can tell what a DAG file says and how a worker's Airflow is set up, and
# Spark alone merges a large state.
MAY_IMPORT_TOO = {
    "cli/commands.py": {"operators"},
    "cli/doctor.py": {"tasks", "spark", "operators"},
    "cli/airflow_api.py": {"hooks"},
    "cli/output/states.py": {"spark"},
    "dags/applications/routes.py": {"testing"},
}
AIRFLOW_LAYERS = {"plugin", "operators", "sensors", "triggers", "launchers", "tasks", "hooks", "dags"}
# Third-party roots -> where they may be imported.
GUARDED = {
    "airflow": AIRFLOW_LAYERS,
    "pyspark": {"spark", "testing", *AIRFLOW_LAYERS},
    "boto3": {"storage/s3/clients.py"},
    "botocore": {"storage/s3/clients.py", "storage/s3/store.py"},
    "pyiceberg": {
        "tables/iceberg.py",
        "tables/iceberg_catalog.py",
        "tables/iceberg_columns.py",
        "tables/iceberg_partitions.py",
        "tables/branches.py",
        "tables/transactions.py",
    },
    "deltalake": {"tables/delta.py"},
    "psycopg": {"tables/postgres.py"},
    "google": {"storage/gcs.py", "launchers/dataproc.py"},
    "azure": {"storage/azure.py"},
}


def modules() -> Iterator[Path]:
    for layer in MAY_IMPORT:
        yield from sorted((ROOT / layer).rglob("*.py"))


def _name(path: Path) -> list[str]:
    parts = ["airflow_cairn", *path.relative_to(ROOT).with_suffix("").parts]
    return parts[:-1] if parts[-1] == "__init__" else parts


def _only_for_types(tree: ast.AST) -> set[ast.AST]:
    """Give the nodes below `if TYPE_CHECKING:`, which never run."""
    skipped: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            skipped.update(inner for statement in node.body for inner in ast.walk(statement))
    return skipped


def imports_of(path: Path, source: str) -> Iterator[tuple[int, str]]:
    """Give line and dotted name of each import, those inside functions included, relative ones made absolute."""
    tree = ast.parse(source)
    package = _name(path) if path.name == "__init__.py" else _name(path)[:-1]
    skipped = _only_for_types(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) + 1 - node.level]) if node.level else ""
            start = ".".join(filter(None, [base, node.module or ""]))
            found = [f"{start}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in found:
            # The layers' own direction is checked for types too; what is heavy is not loaded by them.
            if node not in skipped or name.startswith("airflow_cairn."):
                yield node.lineno, name


def broken_rules(path: Path, source: str) -> list[str]:
    relative = path.relative_to(ROOT)
    layer = relative.parts[0]
    broken = []
    for line, name in imports_of(path, source):
        root, *rest = name.split(".")
        where = f"{relative}:{line} imports {name}"
        may_import = MAY_IMPORT[layer] | MAY_IMPORT_TOO.get(relative.as_posix(), set())
        if root == "airflow_cairn" and rest and rest[0] in MAY_IMPORT and rest[0] not in may_import:
            broken.append(f"{where}: {layer} may import only {sorted(may_import)}")
        broken += _broken_rooms(where, ".".join(_name(path)[1:]), ".".join(rest) if root == "airflow_cairn" else "")
        if root in GUARDED and not GUARDED[root] & {layer, relative.as_posix()}:
            broken.append(f"{where}: only {sorted(GUARDED[root])} may")
        if root in {"scripts", "tests"} or (root == "airflow_cairn" and rest[:1] in (["scripts"], ["tests"])):
            broken.append(f"{where}: what builds and tests the package is no part of it")
    return broken


def _broken_rooms(where: str, module: str, imported: str) -> list[str]:
    """Say whether a module imports from a room above its own, in the same top-level folder."""
    here, there = floor_of(module), floor_of(imported)
    if (
        here is None
        or there is None
        or module.split(".", maxsplit=1)[0] != imported.split(".", maxsplit=1)[0]
        or here[1] == there[1]
    ):
        return []
    # Two rooms on one floor know nothing of each other; single modules beside the rooms may.
    if there[0] < here[0] or (there[0] == here[0] and not (is_room(module) and is_room(imported))):
        return []
    return [f"{where}: {here[1]} stands below it, or beside it (docs/rooms.md)"]


def _circle(imports: Mapping[str, set[str]]) -> list[str]:
    """Give modules that import each other in a circle, the first one last too; none where there is none."""
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Imports for types and inside functions count too: they hide a circle, and do not open it."""
    known = {".".join(_name(path)): path for path in modules()}
    imports = {
        module: {
            target
            for _, name in imports_of(path, path.read_text())
            for target in (name, name.rpartition(".")[0])
            if target in known and known[target].name != "__init__.py"
        }
        for module, path in known.items()
        if path.name != "__init__.py"
    }
    assert _circle(imports) == []
    assert set(_circle({**imports, "airflow_cairn.storage.names": {"airflow_cairn.checkpoint.documents.layout"}})) >= {
        "airflow_cairn.storage.names",
        "airflow_cairn.checkpoint.documents.layout",
    }


def test_no_module_is_longer_than_500_lines() -> None:
    lines = {path.relative_to(ROOT).as_posix(): len(path.read_text().splitlines()) for path in modules()}
    assert {name: many for name, many in lines.items() if many > 500} == {}


def test_every_import_points_downwards() -> None:
    broken = [rule for path in modules() for rule in broken_rules(path, path.read_text())]
    assert not broken, "\n" + "\n".join(broken)


@pytest.mark.parametrize(
    ("module", "source", "found"),
    [
        ("storage/x.py", "from ..checkpoint import head", 1),
        ("storage/x.py", "def f():\n    from airflow_cairn.checkpoint.documents import head", 1),
        ("storage/x.py", "from .. import checkpoint", 1),
        ("storage/x.py", "import boto3", 1),
        ("storage/s3/clients.py", "import boto3", 0),
        ("storage/s3/store.py", "import boto3", 1),
        ("storage/x.py", "from botocore.config import Config", 1),
        ("checkpoint/x.py", "from ..storage import port", 0),
        ("checkpoint/x.py", "import pyspark.sql", 1),
        ("spark/x.py", "from airflow.sdk import DAG", 1),
        ("spark/x.py", "from pyspark.sql import DataFrame", 0),
        ("cli/x.py", "from ..spark import epoch", 1),
        ("cli/x.py", "from ..checkpoint import head", 0),
        ("cli/x.py", "def f():\n    from ..operators import y", 1),
        ("cli/commands.py", "def f():\n    from ..operators import y", 0),
        ("cli/commands.py", "from ..sensors import y", 1),
        ("testing/x.py", "from ..spark import y", 0),
        ("testing/x.py", "from ..hooks import y", 1),
        ("testing/x.py", "from airflow.sdk import DAG", 1),
        ("sensors/x.py", "from ..operators import y", 1),
        ("sensors/x.py", "from ..triggers import y", 0),
        ("launchers/x.py", "from ..triggers import y", 1),
        ("storage/x.py", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import boto3", 0),
        ("storage/x.py", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from ..spark import y", 1),
        ("hooks/x.py", "from scripts.harness import ports", 1),
    ],
)
def test_the_check_sees_a_breach(module: str, source: str, found: int) -> None:
    assert len(broken_rules(ROOT / module, source)) == found


_UPWARDS = {
    "storage/local/x.py": "from ..s3.store import S3Store",
    "storage/s3/x.py": "from ..probe import probe",
    "hooks/versions.py": "from .task_refs import TaskRef",
    "checkpoint/masking.py": "from .documents import head",
    "checkpoint/documents/x.py": "from ..store import acks",
    "checkpoint/rules/x.py": "from ..store.job_files import JobFiles",
    "checkpoint/store/x.py": "from ..sources import files",
    "checkpoint/rows/x.py": "from ..coordinator import Coordinator",
    "checkpoint/sources/x.py": "from ..acts.restore import choose",
    "checkpoint/acts/x.py": "from ..savepoints import take",
    "checkpoint/savepoints/x.py": "from ..coordinator import Coordinator",
    "checkpoint/extensions/x.py": "from ..cleaner import Cleaner",
    "checkpoint/cleaner.py": "from .views import stats",
    "checkpoint/coordinator.py": "from .views.stats import read",
    "checkpoint/views/x.py": "from ..health.examine import examine_storage",
    "spark/stored/x.py": "from ..output import writer",
    "spark/execution/x.py": "from ..handover import conf",
    "spark/output/x.py": "from ..kinds import list_state",
    "spark/kinds/x.py": "from ..input import inputs",
    "spark/input/x.py": "from ..event_time import event_time",
    "spark/event_time/x.py": "from ..epoch import Epoch",
    "plugin/drawings/x.py": "from ..page.jobs import Jobs",
    "plugin/interventions/x.py": "from ..page.jobs import Jobs",
    "tasks/clearing.py": "from .health.examine import examine_worker",
    "tasks/health/x.py": "from ..reports import notes",
    "operators/graph/x.py": "from ..stage.drivers import DurableSubmit",
    "operators/stage/x.py": "from ..trigger.operator import TriggerCheckpointOperator",
    "operators/failure/x.py": "from ..trigger import checks",
    "operators/trigger/x.py": "from ..group.task_group import CheckpointedTaskGroup",
}
"""An import that points up, for each room."""


@pytest.mark.parametrize("module", _UPWARDS)
def test_an_import_that_points_up_is_seen(module: str) -> None:
    assert len(broken_rules(ROOT / module, _UPWARDS[module])) == 1


def test_every_room_is_on_a_floor() -> None:
    for top, floors in ROOMS.items():
        named = {name for floor in floors for name in floor.split()}
        folders = {path.parent.name for path in (ROOT / top).glob("*/__init__.py")}
        assert folders <= named, f"{top}: {sorted(folders - named)} stand in no floor of scripts/rooms.py"
        single = {path.stem for path in (ROOT / top).glob("*.py")} - {"__init__"}
        assert "*" in named or single <= named, f"{top}: {sorted(single - named)} stand in no floor"
        assert named - {"*"} <= folders | single, f"{top}: {sorted(named - folders - single)} are not there"


_BLOCKED = ("airflow", "pyspark", "boto3", "botocore", "google", "azure", "requests")
_NEED_A_PACKAGE = (*(".s3.store", ".s3.clients", ".gcs", ".azure", ".network.http", "__main__"),)
_BLOCKER = f"""
import importlib.abc, sys

class Blocker(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {_BLOCKED!r}:
            raise ImportError("blocked: " + name)

sys.meta_path.insert(0, Blocker())
"""


def _with_blocker(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", _BLOCKER + code]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.parametrize("name", _BLOCKED)
def test_the_blocker_blocks(name: str, tmp_path: Path) -> None:
    done = _with_blocker(f"import {name}", tmp_path)
    assert f"ImportError: blocked: {name}" in done.stderr


def test_the_lower_floors_stand_alone(tmp_path: Path) -> None:
    code = (
        "import importlib, pkgutil\n"
        "for root in ('airflow_cairn.checkpoint', 'airflow_cairn.storage', 'airflow_cairn.cli'):\n"
        "    package = importlib.import_module(root)\n"
        "    for found in pkgutil.walk_packages(package.__path__, root + '.'):\n"
        f"        if not found.name.endswith({_NEED_A_PACKAGE!r}):\n"
        "            importlib.import_module(found.name)\n"
        "            print(found.name)\n"
    )
    done = _with_blocker(code, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "airflow_cairn.storage.port" in done.stdout.split()
