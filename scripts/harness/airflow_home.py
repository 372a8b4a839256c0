"""A real Airflow in a folder of its own: its database, its ports, its processes, and nothing left afterwards."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import time
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

import httpx

from ..setup.java import ensure_java
from ..setup.venv import VENV
from .airflow_api import AirflowApi
from .airflow_config import LOCAL_SETTINGS, AirflowPorts, Settings, quick_settings, settings_for, write_config
from .airflow_database import ensure_database
from .processes import RealProcess
from .service import Service
from .wait import wait_until

if TYPE_CHECKING:
    from .postgres_server import PostgresServer

Component = Literal["api-server", "scheduler", "dag-processor", "triggerer"]
COMPONENTS: tuple[Component, ...] = ("api-server", "scheduler", "dag-processor", "triggerer")
USERNAME = "admin"
DATABASE = "airflow"

_KEPT_OUT = ("AIRFLOW_", "AWS_", "SPARK_", "PYSPARK_", "VIRTUAL_ENV")


class AirflowCommandError(AssertionError):
    """An `airflow` command failed."""


class AirflowHome(Service):
    """An AIRFLOW_HOME and the Airflow that runs in it.

    Args:
        home: the folder; None for a temporary one that `stop()` removes.
        mode: `standalone` runs the one command that the documentation names; `components` runs the same four processes
            each on its own, so that a test may end and restart one.
        env: variables for all processes, tasks included: `AIRFLOW_CONN_SPARK`, …
        settings: options of airflow.cfg over those of the harness.
        heartbeat_timeout: seconds without a heartbeat after which the scheduler takes a task for dead.
        parallelism: tasks that may run at once.
        users: others than the admin, each with its role in Airflow's simple auth manager.
        database: a running server that gets a database for this Airflow; None for SQLite in the folder.
        programs: the folder with `airflow`, `python` and `spark-submit`; those of this project unless given.
        only: those of the processes that are to run, in mode `components`.
        prefix: below which the API server answers, as behind a proxy: empty or with a leading slash.
        quick: whether it looks more often than by Airflow's defaults; without, `heartbeat_timeout` and `parallelism`
            are Airflow's too.
        local_settings: its airflow_local_settings.py.
    """

    stop_grace_s: ClassVar[float] = 4.0
    """Enough for a task's `on_kill`; the scheduler itself would wait for its tasks for much longer."""

    def __init__(
        self,
        home: Path | None = None,
        *,
        mode: Literal["standalone", "components"] = "components",
        env: Mapping[str, str] | None = None,
        settings: Settings | None = None,
        heartbeat_timeout: float = 300,
        parallelism: int = 4,
        users: Mapping[str, str] | None = None,
        database: PostgresServer | None = None,
        programs: Path = VENV / "bin",
        only: Sequence[Component] = COMPONENTS,
        prefix: str = "",
        quick: bool = True,
        local_settings: str = LOCAL_SETTINGS,
    ) -> None:
        super().__init__("airflow", home)
        self._only = tuple(only)
        self._prefix = prefix
        self._programs = programs
        self._database = database
        self.mode = mode
        self.ports = AirflowPorts()
        self.password = secrets.token_urlsafe(12)
        self.passwords = {USERNAME: self.password} | {name: secrets.token_urlsafe(12) for name in users or {}}
        """Passwords of every user."""
        self.started_in_s = 0.0
        """Duration of the last start."""
        self._extra_env = dict(env or {})
        wanted = settings_for(self.home, self.url, self.ports)
        if quick:
            wanted = {**wanted, **quick_settings(heartbeat_timeout=heartbeat_timeout, parallelism=parallelism)}
        roles = {USERNAME: "admin", **(users or {})}
        who = {("core", "simple_auth_manager_users"): ",".join(f"{name}:{role}" for name, role in roles.items())}
        if database is not None:
            where = database.create_database(DATABASE)
            wanted = {
                **wanted,
                ("database", "sql_alchemy_conn"): f"postgresql+psycopg://{where}",
                ("database", "sql_alchemy_conn_async"): f"postgresql+psycopg_async://{where}",
            }
        self._write_home({**wanted, **who, **(settings or {})}, local_settings)
        self.api = AirflowApi(self.url, USERNAME, self.password)

    @property
    def home(self) -> Path:
        return self.root

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.ports.api}{self._prefix}"

    @property
    def dags_folder(self) -> Path:
        """Folder of DAG files; a new one is seen within a few seconds."""
        return self.home / "dags"

    @property
    def logs_folder(self) -> Path:
        """Folder of the processes' logs; those of tasks are in `home/logs`."""
        return self.home / "process-logs"

    @cached_property
    def _java_home(self) -> Path:
        return ensure_java()

    @property
    def env(self) -> dict[str, str]:
        """The whole environment that the processes get, and that an `airflow` command for this home needs."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(_KEPT_OUT)}
        return {
            **kept,
            "PATH": os.pathsep.join([str(self._programs), kept.get("PATH", os.defpath)]),
            "AIRFLOW_HOME": str(self.home),
            "JAVA_HOME": str(self._java_home),
            # Spark looks its own host name up, which in a container may not resolve.
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_HOSTNAME": "localhost",
            "PYSPARK_PYTHON": str(self._programs / "python"),
            "PYTHONUNBUFFERED": "1",
            "SCARF_ANALYTICS": "false",
            **self._extra_env,
        }

    def add_env(self, name: str, value: str) -> None:
        """Give the processes that are started from now on one more variable, one that names this address, say."""
        self._extra_env[name] = value

    def start(self, timeout: float = 600) -> None:
        """Start Airflow and wait until every component says that it is healthy."""
        begin = time.monotonic()
        if self._database is None and self._programs == VENV / "bin":
            ensure_database(self.home / "airflow.db", lambda: self.command("db", "migrate"))
        else:
            self.command("db", "migrate")
        for name in ("standalone",) if self.mode == "standalone" else self._only:
            self._run(name)
        serves = self._processes["standalone" if self.mode == "standalone" else "api-server"]
        serves.wait_until(lambda: "api-server" not in self._unhealthy(), timeout, "an API server that answers")
        self.api.wake_tasks_api(timeout)
        for name, process in self._processes.items():
            process.wait_until(lambda: self._unhealthy() == [], timeout, f"a healthy Airflow ({name})")
        self.started_in_s = time.monotonic() - begin

    def stop(self) -> None:
        """End every process, tasks and Spark drivers included, and remove the folder if it was made here."""
        self.api.close()
        super().stop()

    def kill_component(self, component: Component) -> None:
        """End a component and its children at once by SIGKILL, as a machine that dies would.

        Killing the scheduler ends the running tasks with it: the LocalExecutor's workers are its children.

        Raises:
            LookupError: it does not run as a process of its own (mode `components`).
        """
        if component not in self._processes:
            raise LookupError(f"the component {component} does not run")
        self._processes.pop(component).stop(grace=0)

    def start_component(self, component: Component, timeout: float = 300) -> None:
        self._run(component).wait_until(lambda: self._unhealthy() == [], timeout, f"a healthy {component}")

    def process(self, component: Component) -> RealProcess:
        return self._processes[component]

    def command(self, *words: str) -> str:
        """Run an `airflow` command in this home and give its output.

        Raises:
            AirflowCommandError: it failed; the text holds its output.
        """
        done = subprocess.run(
            [self._programs / "airflow", *words],
            env=self.env,
            cwd=self.home,
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        if done.returncode:
            raise AirflowCommandError(
                f"airflow {' '.join(words)}: status {done.returncode}\n{done.stdout}{done.stderr}"
            )
        return done.stdout

    def _write_home(self, settings: Settings, local_settings: str) -> None:
        for folder in (self.home, self.dags_folder, self.home / "plugins", self.home / "config", self.logs_folder):
            folder.mkdir(parents=True, exist_ok=True)
        (self.home / "config" / "airflow_local_settings.py").write_text(local_settings)
        write_config(self.home / "airflow.cfg", settings)
        passwords = self.home / "passwords.json"
        passwords.touch(mode=0o600)
        passwords.write_text(json.dumps(self.passwords) + "\n")

    def _run(self, name: str) -> RealProcess:
        command: list[str | Path] = [self._programs / "airflow", name]
        # cwd: what is started below must not find the repository's folders (`spark`, `storage`) on its import path.
        process = RealProcess(name, command, self.logs_folder / f"{name}.log", env=self.env, cwd=self.home)
        self._processes[name] = process
        return process

    def _unhealthy(self) -> list[str]:
        try:
            health = self.api.health()
        except httpx.TransportError:
            return ["api-server"]
        wanted = ["metadatabase", *(each.replace("-", "_") for each in self._only if each != "api-server")]
        return [name for name in wanted if health.get(name) != "healthy"]

    def wait_until_healthy(self, timeout: float = 300) -> None:
        wait_until(lambda: self._unhealthy() == [], timeout, "a healthy Airflow", interval=0.5)
