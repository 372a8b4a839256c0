"""Judges the Airflow of this machine: its versions, its plugin, and settings that break recovery."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import EntryPoint

from packaging.requirements import Requirement

from ...checkpoint.health.findings import Finding, error, warning

PLUGIN = "airflow_cairn.plugin.cairn_plugin:CairnPlugin"
"""The target of the plugin's entry point."""
PROVIDER = "airflow_cairn.plugin.provider_info:get_provider_info"
PYSPARK = "pyspark>=4.0,<5"
"""The PySpark versions that a worker may have. Not a requirement of the package: extras bring PySpark."""
HEARTBEATS = 3
"""Heartbeats that a task should be able to miss before Airflow takes it for dead."""
LATE_S = 1_800
"""Detection time of a dead worker above which the delay exceeds the length of most epochs."""
KILL_S = 10
"""Time that a killed stage's task needs to end its driver on the cluster."""


def check_versions(requires: Iterable[str], installed: Callable[[str], str | None]) -> Iterator[Finding]:
    """Compare the installed versions with this Cairn's requirements.

    Args:
        requires: the requirements of the installed Cairn, and `PYSPARK`.
        installed: returns the version of a distribution, None if it is not installed.
    """
    for requirement in map(Requirement, requires):
        if requirement.marker is not None:
            continue  # of an extra
        found = installed(requirement.name)
        # pyspark-client stands in for pyspark where all stages run over Spark Connect.
        if found is None and requirement.name == "pyspark" and installed("pyspark-client"):
            continue
        if found is None or not requirement.specifier.contains(found, prereleases=True):
            yield error(
                "versions-unfit",
                requirement.name,
                f"{requirement.name} {found} is installed" if found else f"{requirement.name} is not installed",
                f"this Cairn is made for {requirement.specifier}",
                "pip install 'airflow-cairn[spark]'"
                if requirement.name == "pyspark"
                else f"pip install '{requirement.name}{requirement.specifier}'",
            )


def check_features(airflow: str, *, whole: bool) -> Iterator[Finding]:
    """Find features that are switched off because this Airflow is too old for them.

    Args:
        airflow: its version.
        whole: whether it supports every feature of Cairn.
    """
    if not whole:
        yield warning(
            "airflow-limited",
            "apache-airflow",
            f"Airflow {airflow} has no retry policies, and keeps no state of tasks",
            "restart strategies are refused, an error that no retry cures is tried again all the same, and no driver "
            "outlives its task",
            "pip install 'apache-airflow>=3.3'",
        )


def check_plugin(plugins: Iterable[EntryPoint], providers: Iterable[EntryPoint]) -> Iterator[Finding]:
    """Check that Airflow finds and loads Cairn's plugin, and knows its provider."""
    found = next((each for each in plugins if each.value == PLUGIN), None)
    reinstall = "pip install --force-reinstall --no-deps airflow-cairn, then restart every process of Airflow"
    if found is None:
        yield error(
            "plugin-missing",
            "airflow.plugins",
            "no installed package gives Airflow the plugin of Cairn",
            "DAGs with a CheckpointTimetable cannot be read, and the tabs are missing",
            reinstall,
        )
    else:
        try:
            found.load()
        except (ImportError, AttributeError) as failed:
            yield error(
                "plugin-broken",
                "airflow.plugins",
                f"the plugin of Cairn cannot be loaded: {type(failed).__name__}: {failed}",
                "DAGs with a CheckpointTimetable cannot be read, and the tabs are missing",
                reinstall,
            )
    if not any(each.value == PROVIDER for each in providers):
        yield warning(
            "provider-missing",
            "apache_airflow_provider",
            "Airflow does not know Cairn as a provider",
            "`@task.spark_epoch` and the option `[cairn] deployment` are not there",
            reinstall,
        )


def check_settings(number: Callable[[str, str], int]) -> Iterator[Finding]:
    """Judge the settings that decide how soon a dead task is noticed, and how a killed task ends.

    Args:
        number: returns a whole number from Airflow's configuration by section and option.
    """
    timeout_s = number("scheduler", "task_instance_heartbeat_timeout")
    interval_s = number("workers", "min_heartbeat_interval")
    name = "[scheduler] task_instance_heartbeat_timeout"
    if timeout_s < HEARTBEATS * interval_s:
        yield error(
            "heartbeat-short",
            name,
            f"a task counts as dead after {timeout_s} s, and sends a heartbeat every {interval_s} s",
            "tasks that are well are taken for dead: their stages run again while the first driver still runs",
            f"export AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT={max(300, HEARTBEATS * interval_s)}",
        )
    elif timeout_s > LATE_S:
        yield warning(
            "heartbeat-long",
            name,
            f"a dead worker is noticed after {timeout_s} s",
            "until then nothing fails over, and the checkpoint may meanwhile run into its timeout",
            "export AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT=300",
        )
    kill_s = number("core", "killed_task_cleanup_time")
    if kill_s < KILL_S:
        yield warning(
            "kill-time-short",
            "[core] killed_task_cleanup_time",
            f"a task that is cleared or times out is killed after {kill_s} s",
            "it has no time to end its driver, which goes on and uses the cluster",
            "export AIRFLOW__CORE__KILLED_TASK_CLEANUP_TIME=60",
        )


def check_executor(executor: str, parallelism: int) -> Iterator[Finding]:
    """Judge the executor and how many tasks it runs at a time."""
    if parallelism == 1:
        yield error(
            "parallelism-one",
            "[core] parallelism",
            f"{executor} runs one task at a time",
            "a task that waits for another keeps it from running, so an epoch whose stages wait for each other stands "
            "still",
            "export AIRFLOW__CORE__PARALLELISM=32",
        )
