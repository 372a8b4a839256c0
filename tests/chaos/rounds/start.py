"""Starts the Airflow on PostgreSQL and S3 on which rounds of chaos are played, and ends it."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from scripts.harness.airflow_home import AirflowHome
from scripts.harness.postgres_server import PostgresServer
from scripts.harness.s3_server import S3Server
from scripts.harness.spark.start import fast_conf
from scripts.s3a_jars import s3a_jars
from scripts.setup.beside import ensure_launchers
from scripts.setup.venv import VENV
from tests.chaos.rounds.world import ROOT, World
from tests.support.livy_batches import Batches
from tests.support.s3_proxy import S3Proxy

HERE = Path(__file__).parent
REPOSITORY = HERE.parents[2]
SUBMIT = """#!/bin/sh
case "$*" in *spark_stage.py* | *cairn-server-*) exec {real} "$@" ;; esac
PYTHONPATH={repository} exec {python} {script} "$@"
"""
SPARK = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2"}
HEARTBEAT_S = 10


def batch(body: dict[str, Any], role: Mapping[str, str], gates: Path) -> tuple[list[str], dict[str, str]]:
    """Give the command and the environment of a batch of the service, which has a role of its own."""
    conf = [word for key, value in body["conf"].items() for word in ("--conf", f"{key}={value}")]
    here = {"PYTHONPATH": str(REPOSITORY), "CHAOS_GATES": str(gates)}
    return [sys.executable, str(HERE / "submit.py"), *conf], {**os.environ, **role, **here}


@contextmanager
def world(folder: Path) -> Iterator[World]:
    """Start everything, and end it.

    Args:
        folder: an empty one.
    """
    gates, commands = folder / "gates", folder / "bin"
    application = folder / "application"
    for made in (gates, commands, application):
        made.mkdir(parents=True)
    for source in (HERE / "spark_stage.py", HERE.parent / "inputs.py"):
        shutil.copy(source, application)
    conf = {**fast_conf(), **SPARK, "spark.jars": ",".join(map(str, s3a_jars()))}
    spark: dict[str, Any] = {"application": str(application / "spark_stage.py"), "conf": conf}
    script = commands / "spark-submit"
    real = VENV / "bin" / "spark-submit"
    script.write_text(SUBMIT.format(real=real, repository=REPOSITORY, python=sys.executable, script=HERE / "submit.py"))
    script.chmod(0o755)
    with (
        S3Server() as server,
        S3Proxy(server.endpoint_url) as proxy,
        PostgresServer() as postgres,
        Batches(folder, lambda body: batch(body, {**server.env, "AWS_ENDPOINT_URL_S3": proxy.url}, gates)) as livy,
    ):
        bucket = server.create_bucket("chaos")
        aws: dict[str, Any] = {"conn_type": "aws", "login": server.access_key, "password": server.secret_key}
        aws["extra"] = json.dumps({"endpoint_url": proxy.url, "region_name": server.region})
        env = {
            "PYTHONPATH": os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(ensure_launchers())])),
            "AIRFLOW_CONN_LIVY_DEFAULT": livy.connection()[1],
            "PATH": os.pathsep.join([str(commands), str(VENV / "bin"), os.environ["PATH"]]),
            "CHAOS_STORAGE": f"s3://{bucket}/{ROOT}",
            "CHAOS_GATES": str(gates),
            "CHAOS_SPARK": json.dumps(spark),
            "AIRFLOW_CONN_CHAOS": json.dumps(aws),
            "AIRFLOW_CONN_CAIRN_SESSION": json.dumps(
                {"conn_type": "generic", "password": "of-the-servers-of-the-chaos-0123456789"}
            ),
            "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": "local[1]"}),
        }
        home = AirflowHome(
            folder / "airflow",
            env=env,
            settings={("dag_processor", "min_file_process_interval"): "5"},
            heartbeat_timeout=HEARTBEAT_S,
            parallelism=4,
            users={"cairn": "user"},
            database=postgres,
        )
        who = {"login": "cairn", "password": home.passwords["cairn"]}
        home.add_env("AIRFLOW_CONN_CAIRN_AIRFLOW_API", json.dumps({"conn_type": "http", "host": home.url, **who}))
        shutil.copy(HERE / "dags" / "chaos_dags.py", home.dags_folder)
        with home:
            home.api.wait_for_dag_files({"chaos_dags.py"})
            for dag in home.api.dag_ids():
                home.api.unpause(dag)
            place = World(home, server, bucket, proxy, gates, spark["conf"], livy)
            try:
                yield place
            finally:
                place.end_servers()
