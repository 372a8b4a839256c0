"""Sessions of each visitor, which are clicks with less than 30 minutes between them, and how many clicks each has.

A session is published once, when it is over. One that is open is state, and has a timer: it is over when
the watermark has come 30 minutes past its last click. A later click moves its timer.
"""

from datetime import UTC, datetime

from airflow.sdk import DAG, CronDataIntervalTimetable, task

from airflow_cairn import CheckpointedTaskGroup


@task.spark_epoch
def clicks(epoch, lake):
    """Read what arrived: `visitor`, `at` (when it was clicked) and `arrived`."""
    from datetime import timedelta

    new = (
        epoch.spark.read.parquet(f"{lake}/clicks")
        .where(f"arrived >= '{epoch.slice.start}' AND arrived < '{epoch.slice.end}' AND visitor IS NOT NULL")
        .cache()
    )
    epoch.watermark(new, "at", delay=timedelta(minutes=10))
    epoch.write(new)


@task.spark_epoch
def sessions(epoch):
    """Add the clicks to the open sessions, publish those that are over, keep the others."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    clicks = epoch.read("clicks")
    epoch.append("late_clicks", epoch.late(clicks, "at").select("visitor", "at"))

    # A click is a session of its own at first. The open ones come to them.
    parts = epoch.on_time(clicks, "at").select(
        "visitor", F.col("at").alias("start"), F.expr("at + INTERVAL 30 MINUTES").alias("end"), F.lit(1).alias("clicks")
    )
    timers = epoch.timers("sessions", "visitor", time="end")
    before = epoch.state("open")
    if before is not None:
        timers.delete(before.select("visitor"))
        parts = parts.unionByName(before)

    # A part that starts after the end of all parts before it begins another session.
    in_order = Window.partitionBy("visitor").orderBy("start", "end")
    ended = F.max("end").over(in_order.rowsBetween(Window.unboundedPreceding, -1))
    begins = F.coalesce((F.col("start") >= ended).cast("int"), F.lit(1))
    joined = (
        parts.withColumn("begins", begins)
        .withColumn("number", F.sum("begins").over(in_order.rowsBetween(Window.unboundedPreceding, 0)))
        .groupBy("visitor", "number")
        .agg(F.min("start").alias("start"), F.max("end").alias("end"), F.sum("clicks").cast("int").alias("clicks"))
        .drop("number")
        .cache()
    )

    timers.set(joined)
    over = timers.due()
    epoch.append("sessions", joined.join(over, ["visitor", "end"]))
    epoch.snapshot("open", joined.join(over, ["visitor", "end"], "left_anti"), key=["visitor", "start"])


with DAG(
    "session_counting",
    schedule=CronDataIntervalTimetable("0 0 * * *", timezone="UTC"),
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    max_active_runs=1,
    default_args={"retries": 3},
    doc_md=__doc__,
) as dag:
    with CheckpointedTaskGroup("epoch", storage="s3://lake/cairn"):
        clicks("s3a://lake") >> sessions()
