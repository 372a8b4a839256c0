"""The flights pipeline goes on from savepoints on a real Airflow and a real S3 server.

Under other names, at other parallelisms, from a folder on disk, and with a stage that got another name.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from datetime import date, timedelta
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from scripts.demo.flights_input import FIRST_DAY
from scripts.harness.airflow_home import AirflowHome
from scripts.harness.azure_server import AzureServer
from scripts.harness.gcs_server import GcsServer
from scripts.harness.s3_server import S3Server
from scripts.harness.spark.connect_server import ConnectServer
from tests.real.airflow.conftest import Gates
from tests.real.airflow.flights_jobs import BUCKET, STORAGE, Shell, run_its_schedule, take
from tests.real.airflow.scenario import COMPLETED, FAILOVER, kill_driver
from tests.real.airflow.store import JobStore

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.side_by_side,
    # In `make test` test_demo.py has the pipeline on S3, tests/real/spark/test_key_groups.py other parallelisms,
    # tests/real/s3/test_savepoints_moved.py other places, tests/unit/operators/trigger/test_starting.py other stages.
    pytest.mark.soak,
]

FIRST = "epoch.clean"
BUCKETS = 36
"""Number of buckets of the histogram of delays; see dags/applications/routes.py."""


class Plain:
    """One pass over some days of the input in plain Python: what any number of epochs and jobs has to come to.

    Args:
        flights: the input.
        days: from the first to the last one, from 1 on.
    """

    def __init__(self, flights: Path, days: tuple[int, int]) -> None:
        begin, end = FIRST_DAY + timedelta(days=days[0] - 1), FIRST_DAY + timedelta(days=days[1])
        self.delays: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
        for row in pq.read_table(flights).to_pylist():
            if begin <= row["date"] < end and None not in (row["delay"], row["origin"], row["destination"]):
                self.delays[row["origin"], row["destination"]].append(row["delay"])

    def totals(self) -> list[dict[str, Any]]:
        """Give what `routes` has to hold."""
        rows = []
        for (origin, destination), delays in self.delays.items():
            buckets = Counter(min(max((delay + 60) // 10, 0), BUCKETS - 1) for delay in delays)
            rows.append(
                {
                    "origin": origin,
                    "destination": destination,
                    "flights": len(delays),
                    "delay_sum": sum(delays),
                    "delay_histogram": [buckets[number] for number in range(BUCKETS)],
                }
            )
        return rows

    def traffic(self) -> list[dict[str, Any]]:
        """Give what `airports` has to hold."""
        departures: Counter[str] = Counter()
        arrivals: Counter[str] = Counter()
        for (origin, destination), delays in self.delays.items():
            departures[origin] += len(delays)
            arrivals[destination] += len(delays)
        return [
            {"airport": airport, "departures": departures[airport], "arrivals": arrivals[airport]}
            for airport in departures | arrivals
        ]

    def league(self, day: date) -> list[dict[str, Any]]:
        """Give what `report` has to append on a day; the mean delay with two digits, as there."""
        sums: Counter[str] = Counter()
        for (origin, _), delays in self.delays.items():
            sums[origin] += sum(delays)
        return [
            {
                **row,
                "flights": row["departures"] + row["arrivals"],
                "mean_departure_delay": _two_digits(sums[row["airport"]] / row["departures"]),
                "day": day,
            }
            for row in self.traffic()
        ]


def _two_digits(value: float) -> float:
    """Round as Spark does."""
    return float(Decimal(repr(value)).quantize(Decimal("0.01"), ROUND_HALF_UP))


def rows(found: list[dict[str, Any]]) -> list[str]:
    """Give rows in an order that does not matter."""
    return sorted(json.dumps(row, sort_keys=True, default=str) for row in found)


def start_day(airflow: AirflowHome, job: str, run: str, day: int, at: str = "00:00:00", **conf: Any) -> None:
    """Start a run of one day by hand, with words for Cairn."""
    window = {
        "data_interval_start": f"2001-01-{day:02}T00:00:00Z",
        "data_interval_end": f"2001-01-{day + 1:02}T00:00:00Z",
    }
    body = {"dag_run_id": run, "logical_date": f"2001-01-{day:02}T{at}Z", "conf": {"cairn": conf}, **window}
    airflow.api.request("POST", f"/dags/{job}/dagRuns", json=body)


def run_day_3(airflow: AirflowHome, job: str, run: str, at: str, **conf: Any) -> str:
    """Run the third day; gives how it ended."""
    start_day(airflow, job, run, 3, at, **conf)
    return airflow.api.wait_for_run(job, run)


def job_of(name: str, server: S3Server) -> JobStore:
    return JobStore(STORAGE, name, server.options)


def download(server: S3Server, prefix: str, into: Path) -> Path:
    """Copy a folder of the bucket to the disk; gives where it lies then."""
    client = server.client()
    for found in client.list_objects_v2(Bucket=BUCKET, Prefix=f"{prefix}/")["Contents"]:
        path = into / found["Key"]
        path.parent.mkdir(parents=True, exist_ok=True)
        client.download_file(BUCKET, found["Key"], str(path))
    return into / prefix


def subtasks(shell: Shell, job: str, checkpoint: int) -> dict[str, int]:
    """Give how many subtasks have acknowledged for the stages with keyed state."""
    found = shell.told("show", job, str(checkpoint))["stages"]
    return {stage["stage"]: stage["acked_subtasks"] for stage in found if stage["stage"] in ("routes", "airports")}


@pytest.mark.side_by_side(90)
def test_other_jobs_go_on_at_other_parallelisms(
    airflow: AirflowHome,
    flights: Path,
    kept: str,
    s3_server: S3Server,
    shared: Path,
    shell: Shell,
    warm_spark: ConnectServer,
) -> None:
    """semantics R3, R4, T5, C5, R1: 2 -> 7 -> 3 subtasks, by the group and by the command, by S3 and by a disk.

    And by spark-submit, in a session that Cairn runs, and on a Spark Connect server.
    """
    airflow.api.request("POST", "/variables", json={"key": "flights_savepoint", "value": kept})
    run_its_schedule(airflow, "flights_7")
    assert job_of("flights_7", s3_server).outcomes() == [(2, 1, "COMPLETED")], "its first id is that of the import"
    assert subtasks(shell, "flights_2", 1) == {"routes": 2, "airports": 2}
    assert subtasks(shell, "flights_7", 2) == {"routes": 7, "airports": 7}
    shown = shell.cairn("show", "flights_7", "1")
    assert f"restored from  the savepoint {kept}, of checkpoint 1 of flights_2" in shown, shown

    second = take(shell, "flights_7")
    folder = download(s3_server, second.removeprefix(f"s3://{BUCKET}/"), shared / "downloaded")
    assert "whole" in shell.cairn("verify", f"file://{folder}")
    shell.cairn("dispose", second, "--yes")
    told = shell.told("resume", "flights_3", "--from", f"file://{folder}")
    assert (told["checkpoint"], told["savepoint_job"], told["savepoint_checkpoint"]) == (1, "flights_7", 2)
    folder.rename(shared / "away")
    run_its_schedule(airflow, "flights_3")

    last = job_of("flights_3", s3_server)
    assert last.outcomes() == [(2, 1, "COMPLETED")]
    assert subtasks(shell, "flights_3", 2) == {"routes": 3, "airports": 3}
    plain = Plain(flights, (1, 4))
    assert rows(last.state("routes", "totals")) == rows(plain.totals())
    assert rows(last.state("airports", "traffic")) == rows(plain.traffic())
    days = {
        Plain(flights, (1, upto)): FIRST_DAY.date() + timedelta(days=first - 1)
        for first, upto in ((1, 2), (3, 3), (4, 4))
    }
    assert rows(last.table("league")) == rows([row for until, day in days.items() for row in until.league(day)])
    assert last.value("report", "days") == 3, "so many epochs"
    assert last.unreferenced() == []


def test_a_stage_has_another_name(
    airflow: AirflowHome, gates: Gates, flights: Path, kept: str, storage: str, warm_spark: ConnectServer
) -> None:
    """semantics R3: an error that names both, before any Spark; then, by the run's conf, its state is left behind."""
    job = "flights_renamed"
    assert run_day_3(airflow, job, "e1", "00:00:00", restore_from=kept) == "failed"
    log = airflow.api.log(job, "e1", FIRST)
    assert "the checkpoint holds state that no stage claims" in log, log
    assert "unclaimed=`routes` state=`routes: state.totals` new=`legs`" in log, log
    assert {task.task_id: task.state for task in airflow.api.task_instances(job, "e1")}[FIRST] == "failed"
    assert gates.submitted(job, "e1") == []

    allowing = run_day_3(airflow, job, "e2", "00:00:01", restore_from=kept, allow_non_restored_state=True)
    assert allowing == "success", airflow.api.explain(job, "e2")
    store = JobStore(storage, job)
    assert rows(store.state("legs", "totals")) == rows(Plain(flights, (3, 3)).totals())
    assert rows(store.state("airports", "traffic")) == rows(Plain(flights, (1, 3)).traffic())
    assert store.unreferenced() == []


@pytest.mark.side_by_side(90)
def test_a_driver_is_killed_on_each_cloud(
    airflow: AirflowHome,
    gates: Gates,
    flights: Path,
    gcs_server: GcsServer,
    azure_server: AzureServer,
    warm_spark: ConnectServer,
) -> None:
    """semantics A2, A5, F1, F2: on Google Cloud Storage and Azure, by their connections, the driver of `routes`."""
    types = {"gcs": "google_cloud_platform", "azure": "wasb"}
    jobs: dict[str, JobStore] = {}
    for cloud, server in (("gcs", gcs_server), ("azure", azure_server)):
        jobs[f"flights_{cloud}"] = JobStore(f"{server.root_of('resume')}/cairn", f"flights_{cloud}", server.options)
        where = {"conn_type": types[cloud], "extra": json.dumps({"endpoint_url": server.endpoint_url})}
        airflow.api.request("POST", "/connections", json={"connection_id": f"resume_{cloud}", **where})
    for job in jobs:
        gates.hold(job, "e1", 1, "routes.written")
        start_day(airflow, job, "e1", 1)
    for job in jobs:
        kill_driver(gates.wait_until_reached(job, "e1", 1, "routes.written"))
    for job, store in jobs.items():
        assert airflow.api.wait_for_run(job, "e1") == "success", airflow.api.explain(job, "e1")
        assert store.outcomes() == [(1, 1, FAILOVER), (2, 2, COMPLETED)]
        tries = {uid: airflow.api.task(job, "e1", f"epoch.{uid}").try_number for uid in ("clean", "routes", "airports")}
        assert tries == {"clean": 1, "routes": 2, "airports": 1}
        plain = Plain(flights, (1, 1))
        assert rows(store.state("routes", "totals")) == rows(plain.totals())
        assert rows(store.state("airports", "traffic")) == rows(plain.traffic())
        assert rows(store.table("league")) == rows(plain.league(FIRST_DAY.date()))
        assert store.unreferenced() == []
