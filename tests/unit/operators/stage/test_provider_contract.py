"""The Spark provider's private parts on which `EpochSubmitHook` and `SparkEpochOperator` rest.

Each private name is used here on the provider's own classes, with the meaning that Cairn gives it. A provider that
means something else fails here and not in a run; `pyproject.toml` caps its version for the same reason.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.apache.spark.hooks import spark_submit
from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk.exceptions import AirflowException

from airflow_cairn.operators.stage.drivers import is_tracked
from tests.support.airflow_fixtures import Define
from tests.support.narrowing import expect

Connect = Callable[..., SparkSubmitHook]


@pytest.fixture
def provider(connections: Define) -> Connect:
    """Make the provider's hook on a master of the test's choice."""

    def make(master: str = "local[1]", mode: str = "client", **options: Any) -> SparkSubmitHook:
        connections("spark_default", json.dumps({"conn_type": "spark", "host": master, "extra": {"deploy-mode": mode}}))
        return SparkSubmitHook(conf={"spark.a": "1"}, py_files="a.zip", env_vars={"MINE": "kept"}, **options)

    return make


def words_after(command: list[str], option: str) -> list[str]:
    return [command[at + 1] for at, word in enumerate(command) if word == option]


def test_conf_and_py_files_are_read_when_the_command_is_built(provider: Connect) -> None:
    hook = provider()
    assert (hook._conf, hook._py_files) == ({"spark.a": "1"}, "a.zip")
    hook._conf, hook._py_files = {"spark.b": "2"}, "b.zip"
    command = hook._build_spark_submit_command("app.py")
    assert words_after(command, "--conf") == ["spark.b=2"]
    assert words_after(command, "--py-files") == ["b.zip"]
    assert command[-1] == "app.py"


def test_the_authors_variables_become_the_commands_environment(provider: Connect) -> None:
    hook = provider()
    assert hook._env is None
    hook._build_spark_submit_command("app.py")
    assert hook._env == {"MINE": "kept"}


@pytest.mark.parametrize("mode", ["client", "cluster"])
def test_the_connection_says_where_the_driver_runs(provider: Connect, mode: str) -> None:
    hook = provider("yarn", mode)
    assert (hook._connection["master"], hook._connection["deploy_mode"]) == ("yarn", mode)


def test_all_that_a_hook_knows_stands_in_its_attributes(provider: Connect) -> None:
    """`taking_over` copies them; with slots or properties behind them it would lose some."""
    hook = provider()
    twin = SparkSubmitHook.__new__(SparkSubmitHook)
    twin.__dict__.update(vars(hook))
    assert twin._build_spark_submit_command("app.py") == hook._build_spark_submit_command("app.py")


def test_submit_starts_one_process_with_the_environment_that_it_is_given(
    provider: Connect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    note = tmp_path / "environ.json"
    program = tmp_path / "spark-submit"
    program.write_text(
        f"#!{sys.executable}\nimport json, os, sys\n"
        f"json.dump(dict(os.environ), open({str(note)!r}, 'w'))\nsys.exit(int(os.environ['STATUS']))\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setenv("OF_THE_WORKER", "1")

    class Plain(SparkSubmitHook):
        """Hook that clears `_env`, as EpochSubmitHook does: else the provider starts from os.environ again."""

        def _build_spark_submit_command(self, application: str) -> list[str]:
            command: list[str] = super()._build_spark_submit_command(application)
            self._env = None
            return command

    hook = Plain.__new__(Plain)
    hook.__dict__.update(vars(provider()))
    assert hook._submit_sp is None
    path = {"PATH": os.environ["PATH"]}
    hook.submit("app.py", env={**path, "STATUS": "0", "SECRET": "x"})
    found = json.loads(note.read_text())
    assert found["SECRET"] == "x"
    assert not {"OF_THE_WORKER", "MINE"} & set(found)
    process: Any = hook._submit_sp
    assert isinstance(process, subprocess.Popen)
    assert process.returncode == 0
    assert process.stdout is not None
    process.stdout.close()
    with pytest.raises(AirflowException, match="Error code is: 3"):
        hook.submit("app.py", env={**path, "STATUS": "3"})
    failed: Any = hook._submit_sp
    assert failed.returncode == 3
    failed.stdout.close()


def test_the_operators_names(provider: Connect) -> None:
    operator = SparkSubmitOperator(
        task_id="t",
        application="app.py",
        conn_id="spark_default",
        repositories="r",
        archives="a",
        conf={"spark.a": "1"},
    )
    assert (operator._conn_id, operator._repositories, operator._archives) == ("spark_default", "r", "a")
    assert operator._hook is None
    provider()
    hook = expect(SparkSubmitHook, operator._get_hook())
    assert hook._conf == {"spark.a": "1"}


@pytest.mark.parametrize(
    ("master", "mode", "options", "tracked"),
    [
        ("spark://127.0.0.1:1", "cluster", {}, True),
        ("spark://127.0.0.1:1", "client", {}, False),
        ("yarn", "cluster", {"yarn_track_via_rm_api": True}, True),
        ("yarn", "cluster", {}, False),
        ("yarn", "client", {"yarn_track_via_rm_api": True}, False),
        ("k8s://https://127.0.0.1:1", "cluster", {"track_driver_via_k8s_api": True}, True),
        ("k8s://https://127.0.0.1:1", "cluster", {}, False),
        ("k8s://https://127.0.0.1:1", "client", {"track_driver_via_k8s_api": True}, False),
        ("local[1]", "client", {}, False),
    ],
)
def test_which_drivers_it_follows_by_their_id(
    provider: Connect, monkeypatch: pytest.MonkeyPatch, master: str, mode: str, options: dict[str, bool], tracked: bool
) -> None:
    monkeypatch.setattr(spark_submit, "kube_client", object(), raising=False)
    hook = provider(master, mode, **options)
    assert is_tracked(hook) is tracked
    assert (hook._driver_id, hook._yarn_application_id, hook._kubernetes_driver_pod) == (None, None, None)
    assert hook._post_submit_commands == []


def test_where_a_durable_operator_keeps_its_drivers() -> None:
    """Keys of one class for all tries; SparkEpochOperator gives each execution keys of its own."""
    assert (SparkSubmitOperator.external_id_key, SparkSubmitOperator._K8S_DRIVER_STATUS_KEY) == (
        "spark_job_id",
        "k8s_driver_status",
    )
