"""Flights: four Spark stages an epoch, one DAG run a day, exactly-once state and one published table.

`clean` reads the day's flights and hands them to `routes` and `airports`, which keep running totals as checkpointed
state: each day they write what it changes, not the whole. `report` appends the day to a league table. Kill any driver
at any moment: the retry restores the latest completed checkpoint, runs that stage again, and the totals come out as if
nothing had happened.

Set before Airflow starts:
    CAIRN_STORAGE: where checkpoints live, `file:///…` or `s3://bucket/prefix`.
    CAIRN_FLIGHTS: the input, a Parquet file or folder with `date`, `delay`, `distance`, `origin`, `destination`.
    CAIRN_FLIGHTS_DAYS: how many days to run from 2001-01-01 on; 5 unless set.
    CAIRN_FLIGHTS_SESSION: `warm` has all stages share one Spark server, which the first stage starts; each is submitted
        by itself unless set.
    CAIRN_FLIGHTS_TABLES: the URL of a folder; `clean` then also appends the day to an Iceberg, a Delta and a PostgreSQL
        table. The connections are `flights_catalog` and `flights_database`.
    CAIRN_AWS_CONN_ID: the Airflow connection for an `s3://` storage; boto3's own chain unless set.
"""

from __future__ import annotations

import json
import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import pendulum
from airflow.sdk import DAG, CronDataIntervalTimetable

from airflow_cairn import (
    CheckpointConfig,
    CheckpointedTaskGroup,
    ConnectSession,
    DeltaTable,
    IcebergTable,
    PostgresTable,
    SparkEpochOperator,
)

APPLICATIONS = Path(__file__).parent / "applications"
FIRST_DAY = pendulum.datetime(2001, 1, 1, tz="UTC")
DAYS = int(os.environ.get("CAIRN_FLIGHTS_DAYS", "5"))

SMALL_JOB = {
    # A day is 16,000 flights: what Spark does by default for a cluster would cost more than the work.
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.log.level": "WARN",
    **json.loads(os.environ.get("CAIRN_FLIGHTS_SPARK_CONF", "{}")),
}

SESSION = ConnectSession(conf=SMALL_JOB) if os.environ.get("CAIRN_FLIGHTS_SESSION") == "warm" else None

LAKE = os.environ.get("CAIRN_FLIGHTS_TABLES")
TABLES: dict[str, DeltaTable | IcebergTable | PostgresTable] = (
    {
        "iceberg": IcebergTable("lake.flights.days", conn_id="flights_catalog"),
        "delta": DeltaTable(f"{LAKE}/delta"),
        "postgres": PostgresTable("public.flights", conn_id="flights_database", staging=f"{LAKE}/staging"),
    }
    if LAKE
    else {}
)

KEYED = {
    # Two subtasks share the keyed state. Another parallelism up to the maximum may be set before any run; the maximum
    # stays what it was when the first state was written.
    "parallelism": 2,
    "max_parallelism": 128,
}


def stage(name: str, *arguments: str, **options: Any) -> SparkEpochOperator:
    """Make one stage of the pipeline from the application of the same name."""
    return SparkEpochOperator(
        task_id=name,
        application=str(APPLICATIONS / f"{name}.py"),
        application_args=list(arguments),
        conf={} if SESSION else SMALL_JOB,  # a server is given it when it starts
        retries=3,
        retry_delay=timedelta(seconds=1),
        **options,
    )


with DAG(
    "flights",
    # Each run gets one whole day as its data interval, and that is the epoch's input slice.
    schedule=CronDataIntervalTimetable("0 0 * * *", timezone="UTC"),
    start_date=FIRST_DAY,
    end_date=FIRST_DAY.add(days=DAYS - 1),
    catchup=True,
    max_active_runs=1,
    doc_md=__doc__,
):
    with CheckpointedTaskGroup(
        "epoch",
        storage=os.environ.get("CAIRN_STORAGE", f"file://{Path.home()}/cairn"),
        aws_conn_id=os.environ.get("CAIRN_AWS_CONN_ID"),
        config=CheckpointConfig(retained=3, timeout=timedelta(hours=1)),
        session=SESSION,
        tables=TABLES,
    ):
        clean = stage("clean", os.environ.get("CAIRN_FLIGHTS", "flights.parquet"), *TABLES)
        routes = stage("routes", **KEYED)
        airports = stage("airports", **KEYED)
        report = stage("report")
        clean >> [routes, airports] >> report
