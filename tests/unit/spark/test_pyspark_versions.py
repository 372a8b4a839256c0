"""Two packages that write the same files."""

import logging
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from airflow_cairn.checkpoint.errors import InvalidConfigError
from airflow_cairn.cli.main import DAMAGED, main
from airflow_cairn.operators import SparkEpochOperator, StageSpec, TriggerCheckpointOperator
from airflow_cairn.plugin import cairn_plugin
from airflow_cairn.spark import pyspark_versions
from airflow_cairn.spark.pyspark_versions import check_starts_here, conflict
from tests.support.airflow_fixtures import Said
from tests.support.airflow_stage import Job, Ti, context
from tests.support.narrowing import known

BOTH = "PySpark 4.3.0 and pyspark-client 4.2.0 are installed over each other"


@pytest.fixture
def both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installation of the newest of each package, as `pip install` leaves it."""
    for name, version in (("pyspark", "4.3.0"), ("pyspark-client", "4.2.0")):
        info = tmp_path / "site" / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))


def said(installed: Mapping[str, str]) -> str | None:
    def version_of(package: str) -> str:
        if package not in installed:
            raise PackageNotFoundError(package)
        return installed[package]

    return conflict(version_of)


@pytest.mark.parametrize(
    "installed",
    [{}, {"pyspark": "4.2.0"}, {"pyspark-client": "4.2.0"}, {"pyspark": "4.2.0", "pyspark-client": "4.2.0"}],
)
def test_one_version_is_whole(installed: Mapping[str, str]) -> None:
    assert said(installed) is None


def test_two_versions_are_not() -> None:
    text = known(said({"pyspark": "4.3.0", "pyspark-client": "4.2.0"}))
    assert BOTH in text
    assert text.endswith("--no-deps pyspark==4.2.0 pyspark-client==4.2.0"), "no client is as new as the newest Spark"
    assert "\n" not in text


@pytest.mark.parametrize(("found", "logged"), [("two versions", ["two versions"]), (None, [])])
def test_the_plugin_says_so_when_it_is_loaded(
    found: str | None, logged: list[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(pyspark_versions, "conflict", lambda: found)
    with caplog.at_level(logging.WARNING):
        cairn_plugin.CairnPlugin.on_load()
    assert caplog.messages == logged


def test_the_doctor_says_so_without_being_asked_for_a_worker(
    both: None, job: Job, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["doctor", "--storage", job.storage]) == DAMAGED
    out = capsys.readouterr().out
    assert out.startswith("ERROR pyspark-twice: pyspark-client\n")
    assert BOTH in out
    assert "pip install --force-reinstall --no-deps pyspark==4.2.0 pyspark-client==4.2.0" in out


def test_the_first_task_of_a_run_says_so(both: None, job: Job, said: Said) -> None:
    trigger = TriggerCheckpointOperator(
        task_id="trigger", storage=job.storage, job=job.name, stages=[StageSpec("routes")], reads_window=False
    )
    trigger.execute(context(Ti(run_id="r1")))
    assert BOTH in said.text


def test_each_stage_says_so(both: None, job: Job, said: Said) -> None:
    job.trigger("r1")
    job.acknowledge(job.begin("r1"))
    stage = SparkEpochOperator(task_id="routes", application="routes.py", storage=job.storage, job=job.name)
    assert stage.execute(context(Ti(run_id="r1"))) is None
    assert BOTH in said.text


def test_a_client_alone_starts_no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    def version_of(package: str) -> str:
        if package != "pyspark-client":
            raise PackageNotFoundError(package)
        return "4.2.0"

    monkeypatch.delenv("SPARK_REMOTE", raising=False)
    with pytest.raises(InvalidConfigError, match=r"only its client pyspark-client. Type: pip install"):
        check_starts_here("cairn compact", version_of)
    monkeypatch.setenv("SPARK_REMOTE", "sc://localhost")
    check_starts_here("cairn compact", version_of)
