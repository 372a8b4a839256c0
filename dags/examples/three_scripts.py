"""Three ordinary scripts, which know nothing of Cairn: a day of CSV, a join, running totals and a table by country.

In a DAG without Cairn each of them had folders with `{{ ds }}` in their names as arguments. Nothing else was changed.
"""

from datetime import UTC, datetime

from airflow.sdk import DAG, CronDataIntervalTimetable

from airflow_cairn import CheckpointedTaskGroup, SparkEpochOperator
from airflow_cairn.operators import NewState, Output, Publish, Read, SliceStart, State

with DAG(
    "three_scripts",
    schedule=CronDataIntervalTimetable("0 0 * * *", timezone="UTC"),
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    max_active_runs=1,
    default_args={"retries": 3},
    doc_md=__doc__,
) as dag:
    with CheckpointedTaskGroup("epoch", storage="s3://lake/cairn"):
        ingest = SparkEpochOperator(
            task_id="ingest",
            application="../applications/ingest_sales.py",
            application_args=[SliceStart("%Y-%m-%d"), "s3a://lake", Output("sales")],
        )
        join = SparkEpochOperator(
            task_id="join",
            application="../applications/join_stores.py",
            application_args=[Read("ingest"), "s3a://lake", Output("sales")],
        )
        total = SparkEpochOperator(
            task_id="total",
            application="../applications/total_sales.py",
            application_args=[
                Read("join"),
                State("totals", schema="country STRING, store STRING, amount DECIMAL(18, 2), sales BIGINT"),
                NewState("totals"),
                Publish("sales"),
            ],
        )
        ingest >> join >> total
