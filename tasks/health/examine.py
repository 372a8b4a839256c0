"""Runs every check of a worker, in an order in which an earlier finding explains a later one."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import entry_points, requires, version

from airflow.sdk.configuration import conf
from airflow.sdk.exceptions import AirflowNotFoundException

from ...checkpoint.errors import AirflowApiError, AirflowApiRefusedError, InvalidConfigError
from ...checkpoint.health.findings import Examination, Finding, error, warning
from ...hooks import versions
from ...hooks.airflow_api import AIRFLOW_API_CONN_ID, AirflowApiHook
from ...hooks.class_archive import lacks_archive
from ...hooks.spark_site import SparkSite
from ...storage.errors import CairnError
from . import checks
from .facts import ClusterFacts, NoAnswer, Silence, ask_cluster, fetching, gather, installed

log = logging.getLogger("airflow_cairn")

_PACKAGE = "airflow-cairn"
_NO_ARCHIVE = (
    "drivers on this machine start without an archive of classes, with which they take about half of the time: "
    "`python -m airflow_cairn.hooks.class_archive` makes one"
)


def examine_worker(
    *,
    s3: bool,
    spark_conf: Mapping[str, str] | None = None,
    airflow_api_conn_id: str | None = AIRFLOW_API_CONN_ID,
    dag_id: str | None = None,
    cluster: str | None = None,
    ask: Callable[[], ClusterFacts | NoAnswer] | None = None,
) -> Examination:
    """Run every check of this machine, and of the cluster if requested.

    Without `airflow_api_conn_id` the API is not asked; nor is it if the default connection is not defined and no DAG is
    given: most jobs do without one. `cluster` is the Spark connection for checking the cluster, which starts an
    application there, or what else findings name as its subject; None: no check of it. `ask` asks the cluster in
    another way.
    """
    done = Examination()
    facts = gather(os.environ, spark_conf)
    done.run("spark", lambda: checks.check_own_spark(facts))
    done.run("pyspark", lambda: checks.check_packages(facts))
    done.run("python", lambda: checks.check_own_python(facts))
    if lacks_archive(spark_conf or {}, SparkSite(os.environ)):
        done.hints.append(_NO_ARCHIVE)
    if s3:
        done.run("jars", lambda: checks.check_s3a_jars(facts))
    needed = (*(requires(_PACKAGE) or ()), checks.PYSPARK)
    done.run("versions", lambda: checks.check_versions(needed, installed))
    done.run(
        "features",
        lambda: checks.check_features(version("apache-airflow-core"), whole=versions.HAS_RETRY_POLICIES),
    )
    groups = ("airflow.plugins", "apache_airflow_provider")
    done.run("plugin", lambda: checks.check_plugin(*(entry_points(group=each) for each in groups)))
    done.run("settings", lambda: checks.check_settings(conf.getint))
    done.run(
        "executor",
        lambda: checks.check_executor(conf.get("core", "executor"), conf.getint("core", "parallelism")),
    )
    _examine_api(done, airflow_api_conn_id, dag_id)
    _examine_cluster(done, cluster, ask or (lambda: ask_cluster(str(cluster), spark_conf or {})))
    return done


def _examine_api(done: Examination, conn_id: str | None, dag_id: str | None) -> None:
    if conn_id is None:
        done.skipped["airflow's API"] = "no connection is named"
        return
    with AirflowApiHook(conn_id) as hook:
        if conn_id == AIRFLOW_API_CONN_ID and dag_id is None and not is_defined(hook):
            done.skipped["airflow's API"] = f"the connection {conn_id} is not defined where this process looks"
            return
        if not done.run("airflow's API", lambda: check_api(hook)):
            return
        done.run("airflow's processes", lambda: check_components(hook))
        if dag_id is not None:
            done.run(f"DAG {dag_id}", lambda: check_dag(hook, dag_id))


_WHY = "a stage that has failed cannot have the other stages of its region run again"


def is_defined(hook: AirflowApiHook) -> bool:
    """Return whether this process may know a connection; also true if it cannot be fetched: `check_api` says why."""
    try:
        _look_up(hook)
    except AirflowNotFoundException:
        return False
    except CairnError:
        return True
    return True


def check_api(hook: AirflowApiHook) -> Iterator[Finding]:
    """Log in with the connection and ask for a DAG: clearing checks the same right first."""
    conn_id = hook.airflow_api_conn_id
    define = (
        f"airflow connections add {conn_id} --conn-type generic --conn-host https://AIRFLOW --conn-login USER "
        "--conn-password PASSWORD (docs/how-to/clearing.md)"
    )
    try:
        _look_up(hook)
        hook.check_login()
    except AirflowNotFoundException:
        what = "the connection is not defined where this process looks"
        yield error("connection-missing", conn_id, what, _WHY, define)
    except InvalidConfigError as unusable:
        yield error("connection-broken", conn_id, unusable.message, _WHY, define)
    except AirflowApiRefusedError as refused:
        grant = "Correct login and password of the connection, or give its user the role User or Op"
        yield error("api-refused", conn_id, refused.message, _WHY, grant)
    except AirflowApiError as unreachable:
        start = "Correct the connection's host, or start the API server: `airflow api-server`"
        yield error("api-unreachable", conn_id, unreachable.message, _WHY, start)


def check_components(hook: AirflowApiHook) -> Iterator[Finding]:
    """Ask which of Airflow's processes run."""
    commands = {"scheduler": "scheduler", "triggerer": "triggerer", "dag_processor": "dag-processor"}
    lacks = {
        "scheduler": "no task starts",
        "triggerer": "tasks that wait for a checkpoint (deferrable) wait for ever",
        "dag_processor": "DAG files are not read, and failure callbacks do not run",
    }
    for name, state in hook.component_states().items():
        if name in commands and state != "healthy":
            what = f"Airflow says that its {name.replace('_', ' ')} is {state or 'not there'}"
            yield error("airflow-unhealthy", name, what, lacks[name], f"airflow {commands[name]}")


def check_dag(hook: AirflowApiHook, dag_id: str) -> Iterator[Finding]:
    """Check that a run of a DAG would start."""
    paused = hook.is_paused(dag_id)
    if paused is None:
        yield error(
            "dag-missing",
            dag_id,
            "Airflow has no such DAG",
            "its file was not read, or has an error: no epoch begins",
            "airflow dags list-import-errors",
        )
    elif paused:
        yield warning("dag-paused", dag_id, "the DAG is paused", "no epoch begins", f"airflow dags unpause {dag_id}")


def _look_up(hook: AirflowApiHook) -> None:
    with fetching(hook.airflow_api_conn_id):
        _ = hook.access


def _examine_cluster(done: Examination, conn_id: str | None, ask: Callable[[], ClusterFacts | NoAnswer]) -> None:
    if conn_id is None:
        done.skipped["the cluster"] = (
            "it was not asked: that starts a small application there (--cluster, cluster=True)"
        )
        return
    facts = ask()
    if isinstance(facts, NoAnswer):
        if facts.silence in (Silence.ELSEWHERE, Silence.UNFIT):
            done.skipped["the cluster"] = facts.why
        else:
            done.findings.append(checks.no_answer(conn_id, facts))
        return
    log.info("The cluster of %s: %s", conn_id, facts.line())
    done.run("cluster", lambda: checks.check_cluster_spark(conn_id, facts))
    done.run("cluster's Python", lambda: checks.check_cluster_python(conn_id, facts))
    if "java" in facts.failed:
        done.skipped["cluster's Java"] = checks.cause_of(facts.failed["java"])
    else:
        done.run("cluster's Java", lambda: checks.check_cluster_java(conn_id, facts))
    if facts.has_code:
        done.run("cluster's storage", lambda: checks.check_cluster_storage(conn_id, facts))
