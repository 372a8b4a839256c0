"""The doctor of tables: each refusal, planted one at a time, is named; a probe leaves nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import ForbiddenError
from pyiceberg.types import DecimalType, UUIDType

from airflow_cairn.checkpoint.health.findings import Examination
from airflow_cairn.cli.main import DAMAGED, FAILED, main
from airflow_cairn.tables import health
from airflow_cairn.tables.branches import BranchSink
from airflow_cairn.tables.health import examine_tables
from airflow_cairn.tables.iceberg import OpenIceberg
from airflow_cairn.tables.sink import TableSink
from airflow_cairn.tables.staged_files import StagedFiles
from tests.support.lake import Delta, Iceberg, Place

Plant = Callable[[Place, pytest.MonkeyPatch], Any]


def raising(error: Exception) -> Callable[..., Any]:
    def fail(*_: Any, **__: Any) -> None:
        raise error

    return fail


def forbidden_below(folder: str) -> Plant:
    """Have the store refuse what is written below a folder."""
    real = StagedFiles.probe

    def probe(files: StagedFiles, name: str) -> None:
        if name.startswith(folder):
            raise PermissionError(f"AccessDenied for {name}")
        real(files, name)

    return lambda _, patch: patch.setattr(StagedFiles, "probe", probe)


def constrain(place: Any, _: pytest.MonkeyPatch) -> None:
    place.table.alter.add_constraint({"positive": "id > 0"})
    place.table.alter.add_constraint({"small": "id < 9"})


def drop(place: Place, _: pytest.MonkeyPatch) -> None:
    place.drop()


def missing_but_created(place: Place, _: pytest.MonkeyPatch) -> None:
    place.drop()
    place.sink = place.new_sink(create=True)


def require_decimal(place: Any, _: pytest.MonkeyPatch) -> None:
    with place.table.update_schema(allow_incompatible_changes=True) as update:
        update.add_column("price", DecimalType(10, 2), required=True)


def rename(place: Any, _: pytest.MonkeyPatch) -> None:
    with place.table.update_schema() as update:
        update.rename_column("route", "way")
    place.sink = place.new_sink(read=True)


def branch_with_uuid(place: Any, patch: pytest.MonkeyPatch) -> None:
    """Spark writes what the library does not, and no file beside the table."""
    with place.table.update_schema() as update:
        update.add_column("who", UUIDType())
    forbidden_below("_cairn")(place, patch)
    place.sink = BranchSink("orders", place.new_sink(branch=True).table, lambda _: {"type": "sql", **place.properties})


FORBIDDEN = raising(ForbiddenError("NotAuthorized: main"))
AWAY = raising(ConnectionError("password=hunter2hunter2 refused"))
CASES: list[tuple[Any, Plant, str, str]] = [
    *((each, lambda *_: None, "", "does not see") for each in (Iceberg, Delta)),
    *((each, drop, "table-missing", "there is no Delta table|catalog has no table") for each in (Iceberg, Delta)),
    *((each, missing_but_created, "", "there is no table yet") for each in (Iceberg, Delta)),
    *((each, forbidden_below("_cairn"), "table-write", "AccessDenied for _cairn/doctor-") for each in (Iceberg, Delta)),
    (Delta, forbidden_below("_delta_log"), "table-commit", "AccessDenied for _delta_log/"),
    (Delta, constrain, "table-refused", "has the constraint positive, has the constraint small"),
    (Iceberg, lambda _, patch: patch.setattr(SqlCatalog, "commit_table", FORBIDDEN), "table-commit", "NotAuthorized"),
    (
        Iceberg,
        lambda _, patch: patch.setattr(SqlCatalog, "commit_table", lambda *_: None),
        "table-commit",
        "asked for another table",
    ),
    (Iceberg, require_decimal, "table-refused", "takes no null in the column price"),
    (Iceberg, rename, "table-refused", "had the column way as route"),
    (Iceberg, branch_with_uuid, "", "does not see"),
    (Iceberg, lambda _, patch: patch.setattr(TableSink, "open", AWAY), "table-unreachable", "ConnectionError"),
    (
        Iceberg,
        lambda _, patch: patch.setattr(health, "version", lambda of: "99" if of == "pyarrow" else "0.1"),
        "table-library",
        "made for >=",
    ),
]


@pytest.mark.parametrize(
    ("kind", "plant", "name", "text"), CASES, ids=[f"{at}-{kind.__name__}" for at, (kind, *_) in enumerate(CASES)]
)
def test_each_refusal_is_named(
    kind: Any, plant: Plant, name: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place: Place = kind(tmp_path, f"file://{tmp_path}/the lake")
    plant(place, monkeypatch)
    found = examine_tables([place.sink], write=True)
    assert [each.name for each in found.findings] == ([name] if name else [])
    said = "\n".join([*(each.what for each in found.masked().findings), *found.hints, *found.skipped.values()])
    assert any(part in said for part in text.split("|")) and "hunter2" not in said
    assert not list(tmp_path.rglob("*doctor-*")), "a probe leaves nothing"


def test_nothing_is_written_where_that_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for method in (StagedFiles, OpenIceberg):
        monkeypatch.setattr(method, "probe", raising(AssertionError("nothing may be written")))
    found = examine_tables([Iceberg(tmp_path, f"file://{tmp_path}/lake").sink], write=False)
    assert found.healthy and found.skipped == {"table orders: rights": "nothing was to be written"}


def test_the_command_takes_the_tables_of_a_dag(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[Any] = []

    def worker(*, ask: Any, cluster: str | None, **_: Any) -> Examination:
        asked.append((cluster, ask and ask()))
        return Examination()

    monkeypatch.setattr("airflow_cairn.tasks.health.examine.examine_worker", worker)
    by_stage = "airflow_cairn.operators.stage.trial.ask_by_stage"
    monkeypatch.setattr(by_stage, lambda task, conf: (task.task_id, conf))
    place = Delta(tmp_path, f"file://{tmp_path}/lake")
    file = tmp_path / "flights.py"
    file.write_text(
        "from airflow.sdk import DAG\n"
        "print('parsed')\n"
        "from airflow_cairn import CheckpointedTaskGroup, DeltaTable, SparkEpochOperator\n"
        f"tables = {{'orders': DeltaTable({place.url!r}), 'none': DeltaTable({place.url + '/none'!r})}}\n"
        "with DAG('flights', schedule=None):\n"
        "    with CheckpointedTaskGroup('e', storage='file:///x', reads_window=False, tables=tables):\n"
        "        SparkEpochOperator(task_id='a', application='a.py')\n"
    )
    assert main(["doctor", "--dag-file", str(file), "flights"]) == DAMAGED
    out = capsys.readouterr().out
    assert "ERROR table-missing: table none\n" in out and "1 error, 0 warnings; 5 checks passed" in out
    assert (
        main(["doctor", "--dag-file", str(file), "flights", "--cluster", "--stage", "e.a", "--conf", "a=b"]) == DAMAGED
    )
    assert asked == [(None, None), ("e.a", ("e.a", {"a": "b"}))]
    said = capsys.readouterr()
    assert "ERROR table-missing: table none\n" in said.out and said.err.count("parsed") == 1
    assert main(["doctor", "--dag-file", str(file), "trains"]) == FAILED
    assert "the file holds no DAG of that id" in capsys.readouterr().err
