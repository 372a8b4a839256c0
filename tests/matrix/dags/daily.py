"""Two stages by day, which form one region; storage and applications come from the environment."""

import json
import os
from datetime import UTC, datetime, timedelta

from airflow.sdk import DAG, CronDataIntervalTimetable

from airflow_cairn.operators import CheckpointedTaskGroup, Pipelined, SparkEpochOperator

usual = {
    "conf": json.loads(os.environ["MATRIX_SPARK_CONF"]),
    "retries": 2,
    "retry_delay": timedelta(0),
}
applications = os.environ["MATRIX_APPLICATIONS"]

with (
    DAG(
        "daily",
        schedule=CronDataIntervalTimetable("0 0 * * *", timezone="UTC"),
        start_date=datetime(2026, 1, 1, tzinfo=UTC),
        end_date=datetime(2026, 1, 2, tzinfo=UTC),
        catchup=True,
        max_active_runs=1,
    ),
    CheckpointedTaskGroup("epoch", storage=os.environ["MATRIX_STORAGE"]),
):
    routes = SparkEpochOperator(task_id="routes", application=f"{applications}/daily_routes.py", **usual)
    report = SparkEpochOperator(
        task_id="report",
        application=f"{applications}/daily_report.py",
        application_args=[os.environ["MATRIX_MARKER"]],
        **usual,
    )
    routes >> Pipelined() >> report
