"""Orders that are delivered more than once, each of them once in a table.

The ids of the last seven days are state, so it stays small. An order that is older than that is kept apart: it may have
been there before.
"""

from datetime import UTC, datetime

from airflow.sdk import DAG, CronDataIntervalTimetable, task

from airflow_cairn import CheckpointedTaskGroup


@task.spark_epoch
def orders(epoch, lake):
    """Read what arrived: `id`, `at` (when it was ordered), `amount` and `arrived`."""
    from datetime import timedelta

    from airflow_cairn import StateTtl

    new = (
        epoch.spark.read.parquet(f"{lake}/orders")
        .where(f"arrived >= '{epoch.slice.start}' AND arrived < '{epoch.slice.end}' AND id IS NOT NULL")
        .selectExpr("id", "at", "amount", "at + INTERVAL 7 DAYS AS forgotten")
        .cache()
    )
    epoch.watermark(new, "at")
    epoch.append("old_orders", epoch.late(new, "forgotten", inclusive=True).drop("forgotten"))

    once = epoch.on_time(new, "forgotten", inclusive=True).dropDuplicates(["id"]).drop("forgotten")
    seen = epoch.state("seen", keys=once)  # of these ids
    if seen is not None:
        once = once.join(seen, "id", "left_anti")
    once = once.cache()
    epoch.append("orders", once)

    epoch.update("seen", once.select("id", "at"), key="id", ttl=StateTtl(timedelta(days=7), "at"))


with DAG(
    "deduplication",
    schedule=CronDataIntervalTimetable("0 0 * * *", timezone="UTC"),
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    max_active_runs=1,
    default_args={"retries": 3},
    doc_md=__doc__,
) as dag:
    with CheckpointedTaskGroup("epoch", storage="s3://lake/cairn"):
        orders("s3a://lake")
