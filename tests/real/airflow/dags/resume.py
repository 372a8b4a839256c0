"""The flights pipeline under several names and at several parallelisms; each but the first starts from a savepoint.

The first runs by spark-submit, the next in a session that Cairn runs, the last on a Spark Connect server. And the same
pipeline on other clouds' storage, where one stage runs by spark-submit and may be stopped.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pendulum
from airflow.sdk import DAG, CronDataIntervalTimetable

import airflow_cairn
from airflow_cairn.checkpoint import CheckpointConfig
from airflow_cairn.operators import CheckpointedTaskGroup, ConnectSession, SparkEpochOperator

APPLICATIONS = Path(airflow_cairn.__file__).parent / "dags" / "applications"
FLIGHTS = f"{os.environ['CAIRN_TEST_GATES']}/flights.parquet"
FIRST_DAY = pendulum.datetime(2001, 1, 1, tz="UTC")
EVERY_DAY, EVERY_TWO_DAYS = "0 0 * * *", "0 0 */2 * *"
CONF = json.loads(os.environ["CAIRN_TEST_SPARK_CONF"])
ON_S3 = CONF | {"spark.jars": os.environ["CAIRN_TEST_S3_JARS"]}
ON_SERVER = {"conn_id": "warm"}


def stage(uid: str, *arguments: str, application: str | None = None, **options: Any) -> SparkEpochOperator:
    """Make a stage of one of the pipeline's applications, which is called like it unless it is named."""
    return SparkEpochOperator(
        task_id=uid,
        application=str(APPLICATIONS / f"{application or uid}.py"),
        application_args=list(arguments),
        retries=2,
        retry_delay=timedelta(seconds=1),
        **options,
    )


def group(storage: str, conn_id: str = "resume_s3", **options: Any) -> CheckpointedTaskGroup:
    """Make the group of a job; the server is that of the connection, which the test makes."""
    config = CheckpointConfig(retained=2)
    return CheckpointedTaskGroup("epoch", storage=storage, aws_conn_id=conn_id, config=config, **options)


def flights(dag_id: str, cron: str, day: int, parallelism: int, stages: Mapping[str, Any], **options: Any) -> None:
    """Make the pipeline as `dags/flights.py` has it, for one run.

    Args:
        dag_id: of the DAG, and the job's name.
        cron: when it runs.
        day: on which the run's input begins, from 1 on; it begins behind what the savepoint holds.
        parallelism: of the stages with keyed state.
        stages: what every stage is given.
        **options: of the group.
    """
    when = FIRST_DAY.add(days=day - 1)
    with (
        DAG(
            dag_id,
            schedule=CronDataIntervalTimetable(cron, timezone="UTC"),
            start_date=when,
            end_date=when,
            catchup=True,
            max_active_runs=1,
            tags=["by_its_test"],
        ),
        group("s3://resume/cairn", **options),
    ):
        keyed = {"parallelism": parallelism, "max_parallelism": 128, **stages}
        routes, airports = stage("routes", **keyed), stage("airports", **keyed)
        stage("clean", FLIGHTS, **stages) >> [routes, airports] >> stage("report", **stages)


flights("flights_2", EVERY_TWO_DAYS, 1, 2, {"conf": ON_S3})
session = ConnectSession(conf=ON_S3, idle=timedelta(minutes=1))
flights("flights_7", EVERY_DAY, 3, 7, {}, session=session, restore_from="{{ var.value.flights_savepoint }}")
flights("flights_3", EVERY_DAY, 4, 3, ON_SERVER)

with (
    DAG("flights_renamed", schedule=None, max_active_runs=1),
    group(os.environ["CAIRN_TEST_STORAGE"], reads_window=True),
):
    legs = stage("legs", application="routes", parallelism=2, **ON_SERVER)
    airports = stage("airports", parallelism=2, **ON_SERVER)
    # The application reads `routes`, by that name; here it is only asked for its acknowledgement.
    report = SparkEpochOperator(task_id="report", **json.loads(os.environ["CAIRN_TEST_READER"]))
    stage("clean", FLIGHTS, conf=CONF) >> [legs, airports] >> report

for cloud, where in {"gcs": "gs://resume", "azure": "abfss://resume@devstoreaccount1.dfs.core.windows.net"}.items():
    with (
        DAG(f"flights_{cloud}", schedule=None, max_active_runs=1),
        group(f"{where}/cairn", f"resume_{cloud}", reads_window=True),
    ):
        jars = {"spark.jars": os.environ[f"CAIRN_TEST_{cloud.upper()}_JARS"]}
        routes = SparkEpochOperator(
            task_id="routes",
            application=str(Path(__file__).parent / "applications" / "held.py"),
            application_args=[os.environ["CAIRN_TEST_GATES"], str(APPLICATIONS / "routes.py")],
            conf=CONF | jars,
            parallelism=2,
            retries=2,
            retry_delay=timedelta(seconds=1),
        )
        airports = stage("airports", parallelism=2, **ON_SERVER)
        stage("clean", FLIGHTS, **ON_SERVER) >> [routes, airports] >> stage("report", **ON_SERVER)
