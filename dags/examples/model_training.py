"""A model that learns from each day's rides, and goes on from the model of the day before.

The model is a folder of files, whatever library makes them. It is restored and kept as raw files, so a day counts once
however often its training is tried. Here it is a straight line, from a ride's distance to its duration.
"""

from datetime import UTC, datetime

from airflow.sdk import DAG, CronDataIntervalTimetable, task

from airflow_cairn import CheckpointedTaskGroup


@task.spark_epoch
def rides(epoch, lake):
    """Read what arrived: `id`, `km`, `minutes` and `arrived`."""
    new = epoch.spark.read.parquet(f"{lake}/rides")
    new = new.where(f"arrived >= '{epoch.slice.start}' AND arrived < '{epoch.slice.end}'")
    epoch.write(new.where("km IS NOT NULL AND minutes IS NOT NULL"))


@task.spark_epoch
def train(epoch):
    """Restore the model, train it by one pass over the rides in a fixed order, keep it."""
    import json
    from pathlib import Path
    from tempfile import TemporaryDirectory

    with TemporaryDirectory() as folder:
        before, after = Path(folder, "before"), Path(folder, "after")
        model = {"rides": 0, "per_km": 0.0, "at_least": 0.0}
        if epoch.restore_files("model", before):
            model = json.loads((before / "line.json").read_text())

        for ride in epoch.read("rides").orderBy("id").toLocalIterator():
            error = ride.minutes - (model["at_least"] + model["per_km"] * ride.km)
            model["per_km"] += 0.01 * error * ride.km
            model["at_least"] += 0.01 * error
            model["rides"] += 1

        after.mkdir()
        (after / "line.json").write_text(json.dumps(model))
        epoch.snapshot_files("model", after)
    epoch.put("line", model)  # small enough to be looked at


with DAG(
    "model_training",
    schedule=CronDataIntervalTimetable("0 0 * * *", timezone="UTC"),
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    max_active_runs=1,
    default_args={"retries": 3},
    doc_md=__doc__,
) as dag:
    with CheckpointedTaskGroup("epoch", storage="s3://lake/cairn"):
        rides("s3a://lake") >> train()
