"""The jobs of `dags/resume.py` on a real S3 server, and the command line beside them."""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any

from scripts.harness.airflow_home import AirflowHome
from scripts.harness.s3_server import S3Server
from scripts.harness.wait import wait_until
from scripts.setup.venv import VENV

BUCKET, STORAGE = "resume", "s3://resume/cairn"


class Shell:
    """Shell in which somebody types `cairn`, with the server's keys in the environment.

    Args:
        server: with the storage.
    """

    def __init__(self, server: S3Server) -> None:
        self._env = {**os.environ, **server.env, "CAIRN_STORAGE": STORAGE, "COLUMNS": "160"}

    def cairn(self, *words: str) -> str:
        """Run the command and give what it printed."""
        done = subprocess.run(
            [VENV / "bin" / "cairn", *words], env=self._env, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def told(self, *words: str) -> Any:
        """Run the command and give its JSON."""
        return json.loads(self.cairn(*words, "--json"))


def take(shell: Shell, job: str) -> str:
    """Take a savepoint of a job; gives its folder."""
    return str(shell.told("savepoint", job, f"s3://{BUCKET}/kept")["savepoint"])


def run_its_schedule(airflow: AirflowHome, job: str) -> None:
    """Let a DAG's schedule run, which has one run."""
    airflow.api.unpause(job)
    wait_until(lambda: airflow.api.runs(job), 600, f"a run of {job}")
    (run,) = airflow.api.runs(job)
    assert airflow.api.wait_for_run(job, run["dag_run_id"]) == "success", airflow.api.explain(job, run["dag_run_id"])


def first_savepoint(airflow: AirflowHome, server: S3Server, shell: Shell) -> str:
    """Run days 1 and 2 at parallelism 2, and take a savepoint; gives its folder on the S3 server."""
    server.create_bucket(BUCKET)
    extra = json.dumps({"endpoint_url": server.endpoint_url, "region_name": server.region})
    keys = {"login": server.access_key, "password": server.secret_key}
    connection = {"connection_id": "resume_s3", "conn_type": "aws", "extra": extra, **keys}
    airflow.api.request("POST", "/connections", json=connection)
    run_its_schedule(airflow, "flights_2")
    return take(shell, "flights_2")
