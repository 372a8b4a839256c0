"""The airflow.cfg of a short-lived Airflow on loopback: every port its own, every interval short."""

from __future__ import annotations

import base64
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from .ports import LOOPBACK, free_port

Settings = Mapping[tuple[str, str], str]
"""(section, option) -> value."""

LOCAL_SETTINGS = """import sys

from sqlalchemy import event
from sqlalchemy.engine import Engine

if sys.argv[1:2] in (["scheduler"], ["dag-processor"]):
    import boto3
    from airflow_cairn.operators import CheckpointedTaskGroup, SparkEpochOperator
    from airflow_cairn.sensors import CheckpointSensor
if sys.argv[1:2] == ["scheduler"]:
    from tempfile import TemporaryDirectory

    from airflow_cairn.spark.handover.runtime_zip import runtime_zip

    with TemporaryDirectory() as folder:
        runtime_zip(folder)
if sys.argv[1:2] == ["api-server"]:
    from airflow_cairn.plugin.page import job_reader

    job_reader.PATIENCE_S = 240.0

__all__ = []


@event.listens_for(Engine, "connect")
def leave_writing_to_the_system(connection, record):
    if "sqlite" not in type(connection).__module__:
        return
    cursor = connection.cursor()
    cursor.execute("PRAGMA synchronous=OFF")
    cursor.close()
"""
"""The airflow_local_settings.py.

What a DAG file imports is imported once, before the LocalExecutor and the dag processor fork: each task and each parse
has it then, which saves a task about half a second of a processor. So is the runtime's code compiled, which saves each
stage another tenth.

The pages wait for longer than a user would: on a busy machine a person's act, which asks Airflow's own API, took more
than the eight seconds after which they give up (measured at a load of 20).

SQLite does not wait for the disk at each commit.
A process that is killed loses nothing by it, only a machine that loses its power would. On two busy cores one clear
through the API took 71 ms so, and 250 to 360 ms without.
"""


@dataclass(frozen=True)
class AirflowPorts:
    """Every port that `airflow standalone` opens with the LocalExecutor, plus the scheduler's health check."""

    api: int = field(default_factory=free_port)
    worker_logs: int = field(default_factory=free_port)
    triggerer_logs: int = field(default_factory=free_port)
    scheduler_health: int = field(default_factory=free_port)


def settings_for(home: Path, url: str, ports: AirflowPorts) -> Settings:
    """Give the settings without which a home has no place and no ports of its own; the rest are Airflow's defaults."""
    return {
        ("core", "dags_folder"): str(home / "dags"),
        ("core", "plugins_folder"): str(home / "plugins"),
        ("core", "load_examples"): "False",
        ("core", "executor"): "LocalExecutor",
        ("core", "execution_api_server_url"): f"{url}/execution/",
        ("core", "simple_auth_manager_passwords_file"): str(home / "passwords.json"),
        # A container's name may not resolve, and the log server is asked for by it.
        ("core", "hostname_callable"): "airflow.utils.net.get_host_ip_address",
        ("core", "fernet_key"): base64.urlsafe_b64encode(os.urandom(32)).decode(),
        ("api", "host"): LOOPBACK,
        ("api", "port"): str(ports.api),
        ("api", "base_url"): url,
        ("api", "secret_key"): secrets.token_hex(16),
        # A common secret: each component would make up its own.
        ("api_auth", "jwt_secret"): secrets.token_hex(32),
        ("database", "sql_alchemy_conn"): f"sqlite:///{home}/airflow.db",
        ("logging", "worker_log_server_port"): str(ports.worker_logs),
        ("logging", "trigger_log_server_port"): str(ports.triggerer_logs),
        ("scheduler", "scheduler_health_check_server_host"): LOOPBACK,
        ("scheduler", "scheduler_health_check_server_port"): str(ports.scheduler_health),
    }


def quick_settings(*, heartbeat_timeout: float, parallelism: int) -> Settings:
    """Give the settings by which an Airflow looks more often than by its defaults, and waits longer for a busy machine.

    `heartbeat_timeout`: seconds without a task's heartbeat after which the scheduler takes it for dead.
    """
    return {
        ("core", "parallelism"): str(parallelism),
        ("core", "min_serialized_dag_update_interval"): "1",
        ("scheduler", "scheduler_heartbeat_sec"): "2",
        ("scheduler", "job_heartbeat_sec"): "2",
        # A loop of the scheduler with nothing to do takes 30 ms of a processor, measured beside another Airflow.
        ("scheduler", "scheduler_idle_sleep_time"): "1",
        ("scheduler", "trigger_timeout_check_interval"): "5",
        ("scheduler", "orphaned_tasks_check_interval"): "15",
        ("scheduler", "task_instance_heartbeat_timeout"): f"{heartbeat_timeout:g}",
        ("scheduler", "task_instance_heartbeat_timeout_detection_interval"): "2",
        ("triggerer", "job_heartbeat_sec"): "2",
        # A restarted triggerer takes over when the dead one's heartbeat is older than this.
        ("triggerer", "triggerer_health_check_threshold"): "15",
        ("dag_processor", "refresh_interval"): "5",
        ("dag_processor", "bundle_refresh_check_interval"): "1",
        # A file that has changed is parsed at once; to parse all anew takes more of the machine than their tasks.
        ("dag_processor", "min_file_process_interval"): "3600",
        # Two busy cores can keep the API server from answering in the 5 seconds of the default.
        ("workers", "execution_api_timeout"): "30",
        # Seconds until a supervisor notices that its task has ended; with 5, the default, the scheduler can hear
        # of a deferral after the trigger fired, and fail the task (apache/airflow issue 67287).
        ("workers", "min_heartbeat_interval"): "1",
    }


def write_config(path: Path, settings: Settings) -> None:
    """Write an airflow.cfg that only its owner can read."""
    sections: dict[str, list[str]] = {}
    for (section, option), value in settings.items():
        sections.setdefault(section, []).append(f"{option} = {value.replace('%', '%%')}")
    text = "\n".join("\n".join([f"[{name}]", *lines, ""]) for name, lines in sections.items())
    path.touch(mode=0o600)
    path.write_text(text)
