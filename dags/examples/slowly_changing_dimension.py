"""Addresses of customers over time: a slowly changing dimension of type 2.

The version that is valid now is state, one row for each customer. An epoch reads and writes only the customers that
have changed. A version that has ended goes into a table that grows; the two together are the dimension.
"""

from datetime import UTC, datetime

from airflow.sdk import DAG, CronDataIntervalTimetable, task

from airflow_cairn import CheckpointedTaskGroup


@task.spark_epoch
def customers(epoch, lake):
    """Read the changes that arrived: `customer`, `city`, `at` (from when on) and `arrived`."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    changes = (
        epoch.spark.read.parquet(f"{lake}/customers")
        .where(f"arrived >= '{epoch.slice.start}' AND arrived < '{epoch.slice.end}'")
        .select("customer", "city", F.col("at").alias("since"))
        .cache()
    )
    epoch.check("a change names its customer and its time", "customer IS NOT NULL AND since IS NOT NULL", changes)
    versions = changes
    valid = epoch.state("valid", keys=changes)  # of the customers that have changed
    if valid is not None:
        before = valid.select("customer", F.col("city").alias("was"), F.col("since").alias("began"))
        epoch.check(
            "a change is newer than the version that it ends",
            "since > began OR city <=> was",
            changes.join(before, "customer"),
        )
        versions = valid.unionByName(changes)

    in_order = Window.partitionBy("customer").orderBy("since", "city")
    first = F.row_number().over(in_order) == 1
    versions = (
        versions.withColumn("new", first | ~F.col("city").eqNullSafe(F.lag("city").over(in_order)))
        .where("new")
        .drop("new")
        .withColumn("until", F.lead("since").over(in_order))
        .cache()
    )
    epoch.append("ended", versions.where("until IS NOT NULL"))
    epoch.update("valid", versions.where("until IS NULL").drop("until"), key="customer")


with DAG(
    "slowly_changing_dimension",
    schedule=CronDataIntervalTimetable("0 0 * * *", timezone="UTC"),
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    max_active_runs=1,
    default_args={"retries": 3},
    doc_md=__doc__,
) as dag:
    with CheckpointedTaskGroup("epoch", storage="s3://lake/cairn"):
        customers("s3a://lake")
