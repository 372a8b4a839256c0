"""Views of each page by the hour: an hour is published once, when it is over; views that come later are kept apart.

A run reads the views that arrived in its data interval, whenever they happened. The watermark, an hour behind the
newest view, says which hours are over. Each of them has a timer. Hours that are still open are state.
"""

from datetime import UTC, datetime

from airflow.sdk import DAG, CronDataIntervalTimetable, task

from airflow_cairn import CheckpointedTaskGroup


@task.spark_epoch
def views(epoch, lake):
    """Read what arrived: `page`, `at` (when it was viewed) and `arrived`."""
    from datetime import timedelta

    new = (
        epoch.spark.read.parquet(f"{lake}/views")
        .where(f"arrived >= '{epoch.slice.start}' AND arrived < '{epoch.slice.end}' AND page IS NOT NULL")
        .cache()
    )
    epoch.watermark(new, "at", delay=timedelta(hours=1))
    epoch.write(new)


@task.spark_epoch
def hours(epoch):
    """Count, publish the hours that are over, keep the others."""
    from pyspark.sql import functions as F

    views = epoch.read("views").withColumn("end", F.expr("date_trunc('HOUR', at) + INTERVAL 1 HOUR"))
    epoch.append("late_views", epoch.late(views, "end", inclusive=True).select("page", "at"))

    counts = epoch.on_time(views, "end", inclusive=True).groupBy("page", "end").agg(F.count("*").alias("views"))
    timers = epoch.timers("hours", "page", time="end")
    timers.set(counts)
    before = epoch.state("open")
    if before is not None:
        counts = counts.unionByName(before).groupBy("page", "end").agg(F.sum("views").alias("views"))
    counts = counts.cache()

    over = timers.due()
    epoch.append("hourly_views", counts.join(over, ["page", "end"]))
    epoch.snapshot("open", counts.join(over, ["page", "end"], "left_anti"), key=["page", "end"])


with DAG(
    "windowed_events",
    schedule=CronDataIntervalTimetable("0 0 * * *", timezone="UTC"),
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    max_active_runs=1,
    default_args={"retries": 3},
    doc_md=__doc__,
) as dag:
    with CheckpointedTaskGroup("epoch", storage="s3://lake/cairn"):
        views("s3a://lake") >> hours()
