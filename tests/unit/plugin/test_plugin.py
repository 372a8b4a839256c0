"""Cairn's entry points in Airflow: found, and light."""

import asyncio
import importlib
import pkgutil
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import httpx
import pytest
from airflow.providers_manager import ProvidersManager
from airflow.sdk import BaseHook, BaseOperator, BaseSensorOperator
from airflow.sdk.bases.decorator import DecoratedOperator
from airflow.triggers.base import BaseTrigger

from airflow_cairn.operators.stage.launched import LaunchedStage
from airflow_cairn.plugin.page.airflow_server import OwnAirflowApi
from airflow_cairn.plugin.provider_info import get_provider_info


def modules_after(code: str, folder: Path) -> set[str]:
    """Give the modules that a fresh interpreter has loaded after running `code`."""
    script = f"{code}\nimport sys\nprint('\\n'.join(sys.modules))"
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True, cwd=folder)
    return set(done.stdout.splitlines())


def test_the_plugin_is_found_by_entry_point_and_each_view_has_an_address_below_the_base_path() -> None:
    (entry,) = entry_points(group="airflow.plugins", name="cairn")
    plugin = entry.load()
    plugin.validate()
    assert plugin.name == "cairn"
    views = plugin.external_views
    assert [view["destination"] for view in views] == ["nav", "dag", "dag_run", "task", "task_instance"]
    assert len({view["url_route"] for view in views}) == len(views)
    assert all(view[name].startswith("cairn/") for view in views for name in ("href", "icon"))


def test_airflow_takes_the_provider_and_the_timetable() -> None:  # semantics S2
    from airflow.plugins_manager import get_timetables_plugins

    provider = ProvidersManager().providers["airflow-cairn"]
    assert provider.data["name"] == "Cairn"
    for link in ("links.CheckpointLink", "links.SparkLink"):
        assert f"airflow_cairn.tasks.reports.{link}" in ProvidersManager().extra_links_class_names
    assert "://" not in str(get_provider_info()), "no site says more than docs/ does"
    assert "airflow_cairn.plugin.timetable.CheckpointTimetable" in get_timetables_plugins()


@pytest.mark.parametrize(
    ("kind", "base"),
    [("operators", BaseOperator), ("sensors", BaseSensorOperator), ("triggers", BaseTrigger), ("hooks", BaseHook)],
)
def test_the_provider_names_every_module_of_the_tree(kind: str, base: type) -> None:
    """Modules that define an operator, say, from which no other of ours derives."""
    package = importlib.import_module(f"airflow_cairn.{kind}")
    names = [found.name for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")]
    classes = {
        value
        for name in names
        for value in vars(importlib.import_module(name)).values()
        if isinstance(value, type) and issubclass(value, base) and value.__module__ == name
    }
    # A decorator's operator is found by the decorator, a service's stage by `epoch_stage`; the page's way to Airflow's
    # API is no hook of a DAG's author.
    made = (DecoratedOperator, LaunchedStage, OwnAirflowApi)
    classes = {each for each in classes if not issubclass(each, made)}
    whole = {each for each in classes if not any(other is not each and issubclass(other, each) for other in classes)}
    named = [module for group in get_provider_info()[kind] for module in group["python-modules"]]
    assert named == sorted({each.__module__ for each in whole})


@pytest.mark.large
@pytest.mark.parametrize("module", ["plugin.cairn_plugin", "plugin.provider_info"])
def test_what_every_process_loads_names_nothing_of_a_dag(module: str, tmp_path: Path) -> None:
    loaded = modules_after(f"import airflow_cairn.{module}", tmp_path)
    ours = {name for name in loaded if name.startswith("airflow_cairn")}
    # Importing Airflow itself asks every provider for its info.
    known = {"provider_info", "timetable", "windows"}
    allowed = {"airflow_cairn", "airflow_cairn.plugin", *(f"airflow_cairn.plugin.{name}" for name in known)}
    assert f"airflow_cairn.{module}" in ours
    assert ours <= {*allowed, f"airflow_cairn.{module}"}
    assert not {"pyspark", "boto3", "botocore"} & loaded


@pytest.mark.large
def test_a_dag_file_loads_neither_spark_nor_boto3(tmp_path: Path) -> None:
    loaded = modules_after(
        "from airflow_cairn.operators import CheckpointedTaskGroup, SparkEpochOperator, TriggerCheckpointOperator\n"
        "from airflow_cairn.operators import RestoreLatestCheckpointOperator, restore_latest_checkpoint\n"
        "from airflow_cairn.sensors import CheckpointSensor\n"
        "from airflow_cairn.hooks import CheckpointStorageHook\n"
        "from airflow_cairn.checkpoint import CheckpointConfig\n",
        tmp_path,
    )
    assert not {"pyspark", "boto3", "botocore"} & loaded


def test_naming_the_package_loads_none_of_it(tmp_path: Path) -> None:
    loaded = modules_after("import airflow_cairn.operators", tmp_path)
    assert not {name for name in loaded if name.startswith("airflow_cairn.operators.")}
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        _ = __import__("airflow_cairn.operators").operators.Nothing


def test_everything_that_is_offered_is_there() -> None:
    from airflow_cairn import operators, plugin

    for package in (operators, plugin):
        assert {getattr(package, name).__name__ for name in package.__all__} == set(package.__all__)
        with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
            _ = package.Nothing


def test_the_page_costs_no_other_process_anything(tmp_path: Path) -> None:
    """Scheduler, dag processor, triggerer and each task process load the plugin; FastAPI is not for them."""
    bare = modules_after("import airflow.plugins_manager", tmp_path)
    loaded = modules_after("import airflow_cairn.plugin.cairn_plugin as p; p.CairnPlugin().external_views", tmp_path)
    roots = {name.partition(".")[0] for name in loaded - bare}
    assert not roots & {"fastapi", "starlette", "jinja2", "sqlalchemy", "uvicorn"}
    assert "airflow.models" not in loaded - bare
    assert not any(name.startswith("airflow_cairn.plugin.page") for name in loaded)


def test_an_app_that_cannot_be_made_answers_503(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Airflow asks for the app unguarded: an error there would keep its API server from starting."""
    from airflow_cairn.plugin import cairn_plugin
    from airflow_cairn.plugin.page import app

    def fails(*_: object) -> None:
        raise RuntimeError("no such thing")

    monkeypatch.setattr(app, "create_app", fails)
    (mounted,) = cairn_plugin.CairnPlugin().fastapi_apps
    assert "no such thing" in caplog.text

    async def ask() -> int:
        transport = httpx.ASGITransport(mounted["app"])
        async with httpx.AsyncClient(transport=transport, base_url="http://airflow") as client:
            return (await client.get("/dags/flights")).status_code

    assert asyncio.run(ask()) == 503
