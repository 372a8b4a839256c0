"""One real Airflow for all scenarios, with Spark drivers that the tests can stop at any point."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from airflow_cairn.spark.handover.conf import azure_conf, gcs_conf, s3a_conf
from airflow_cairn.storage import S3Options
from scripts.azure_jars import azure_jars
from scripts.demo.flights_input import write_flights
from scripts.gcs_jars import gcs_jars
from scripts.harness.airflow_home import AirflowHome
from scripts.harness.azure_server import HOST, AzureServer
from scripts.harness.gcs_server import GcsServer
from scripts.harness.postgres_server import PostgresServer
from scripts.harness.s3_server import S3Server
from scripts.harness.spark.connect_server import ConnectServer
from scripts.harness.spark.start import small_conf
from scripts.harness.wait import wait_until
from scripts.s3a_jars import s3a_jars
from scripts.setup.base import ROOT
from scripts.setup.beside import ensure_launchers
from scripts.setup.venv import VENV
from tests import lanes
from tests.real.airflow import side_by_side
from tests.real.airflow.flights_jobs import Shell, first_savepoint
from tests.real.airflow.lake import Lake, made_lake
from tests.real.airflow.scenario import CONNECT, SUBMIT, Scenario
from tests.real.airflow.store import JobStore
from tests.support import metrics_sink

HERE = Path(__file__).parent
READER = HERE / "dags" / "applications" / "reader.py"
"""The application of stages that make no Spark job."""
NO_JVM = {"spark.test.driver": "stand-in"}
"""The conf of stages whose driver is a process without a JVM, because only Airflow's behaviour is asked."""
WARM = "warm"
"""The connection of a Spark Connect server that runs all the time, for stages whose driver is not the question."""
SESSION_SECRET = "canary-of-the-sessions-0123456789abcdef"  # a test searches for its value
IMPATIENT = """
if sys.argv[1:2] == ["scheduler"]:
    from functools import partial

    from airflow_cairn.hooks import storage

    storage.Waiting = partial(storage.Waiting, longest_s=20.0)
"""
"""Local settings by which tasks wait for a store that refuses for less than five minutes."""
SEES_PROVIDERS = """
if sys.argv[1:2] == ["triggerer"]:
    import airflow

    sys.path.append("{folder}")
    airflow.__path__.append("{folder}/airflow")
"""
"""Local settings by which the triggerer imports the providers of services; a DAG file does that for its tasks."""
HEARTBEAT_TIMEOUT_S = 20
"""A supervisor tells of itself every second; one that a busy machine keeps waiting is not to be taken for dead."""
ENDS_AIRFLOW = "ends_airflow"
CLEARS, LOOKS = "cairn", "looks"
ON_A_SCHEDULE = "on_a_schedule"
"""Runs every five seconds."""
BY_ITS_TEST = "by_its_test"
"""The tag of DAGs that stay paused until their test lets them run, because they have a schedule."""
USERS = {CLEARS: "user", LOOKS: "viewer"}
"""Roles of the users; `CLEARS` has no more rights than the documentation asks for."""


NOTING = """#!/bin/sh
for word in "$@"; do
    case $word in
        spark.cairn.job=*) job=${{word#*=}} ;;
        spark.cairn.epoch=*) epoch=${{word#*=}} ;;
        spark.cairn.stage=*) stage=${{word#*=}} ;;
        spark.cairn.handover=*) handover=${{word#*=}} ;;
        spark.test.driver=stand-in) stand_in=yes ;;
    esac
done
[ -z "$handover" ] || echo "$job $epoch $stage $handover" >> "$CAIRN_TEST_GATES/submitted"
if [ "$stand_in" = yes ]; then
    exec "{python}" "{stand_in}" "$@"
fi
exec "{real}" "$@"
"""
"""A `spark-submit` that writes down for which execution it was started (`Gates.submitted`), and starts the real one
unless the conf asks for a driver without a JVM."""


def spark_conf() -> dict[str, str]:
    """Give the conf of every driver; the archive in it may have been written since this file was imported."""
    return {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2", **small_conf()}


class Gates:
    """Stops the test application at named points, and knows how often it was submitted.

    Args:
        folder: shared with the application.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def metrics(self) -> Path:
        """Cairn's metrics that Airflow's processes have sent, a packet a line."""
        return self.folder / "metrics"

    def hold(self, job: str, run: str, attempt: int, point: str) -> None:
        """Make the application wait at a point of an attempt."""
        gate = self._gate("hold", job, run, attempt, point)
        gate.parent.mkdir(parents=True, exist_ok=True)
        gate.touch()

    def release(self, job: str, run: str, attempt: int, point: str) -> None:
        """Let it go on."""
        self._gate("hold", job, run, attempt, point).unlink()

    def wait_until_reached(self, job: str, run: str, attempt: int, point: str, timeout: float = 600) -> psutil.Process:
        """Wait until the application stands at a point that is held: at another one it might be gone by now.

        Returns:
            The JVM of its driver; on a Spark Connect server its client.
        """
        assert self._gate("hold", job, run, attempt, point).exists(), f"hold {point} of {job} {run} first"
        reached = self._gate("reached", job, run, attempt, point)
        wait_until(reached.exists, timeout, f"{job} {run}, attempt {attempt}, to reach {point}")
        return psutil.Process(int(reached.read_text()))

    def stands(self, job: str, run: str, attempt: int, point: str) -> bool:
        """Tell whether the application has come to a point."""
        return self._gate("reached", job, run, attempt, point).exists()

    def submitted(self, job: str, epoch: str) -> list[tuple[str, str]]:
        """Give stage and execution of every `spark-submit` and every client of a server for an epoch, in order."""
        noted = (line.split() for line in (self.folder / "submitted").read_text().splitlines())
        return [(stage, handover) for *where, stage, handover in noted if where == [job, epoch]]

    def _gate(self, kind: str, job: str, run: str, attempt: int, point: str) -> Path:
        return self.folder / kind / job / run / str(attempt) / point


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the storage and the gates."""
    folder = tmp_path_factory.mktemp("scenarios")
    for name in ("storage", "gates"):
        (folder / name).mkdir()
    return folder


@pytest.fixture(scope="session")
def storage(shared: Path) -> str:
    """The storage root of all scenarios."""
    return f"file://{shared / 'storage'}"


@pytest.fixture(scope="session")
def gates(shared: Path) -> Gates:
    """Gates at which the test application is stopped."""
    return Gates(shared / "gates")


def _commands(folder: Path) -> Path:
    """Put a `spark-submit` that notes what it is asked before the real one."""
    folder.mkdir()
    script = folder / "spark-submit"
    programs = {"python": VENV / "bin" / "python", "stand_in": ROOT / "tests" / "support" / "driver_stand_in.py"}
    script.write_text(NOTING.format(real=VENV / "bin" / "spark-submit", **programs))
    script.chmod(0o755)
    return folder


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run what starts an Airflow of its own before what shares one, so that never two are up at once.

    Of what shares one, the tests that run side by side come first, the longest of them before all, and the one that
    ends it comes last.
    """
    here = [item for item in items if lanes.of(item.nodeid) == lanes.AIRFLOW]
    for item in here:
        # Up to ten drivers, one after the other, beside another lane; how long that takes is up to the machine.
        item.add_marker(pytest.mark.timeout(1800))
    ordered = iter(sorted(here, key=_turn))
    items[:] = [next(ordered) if lanes.of(item.nodeid) == lanes.AIRFLOW else item for item in items]


def _turn(item: pytest.Item) -> tuple[bool, bool, int, bool]:
    assert isinstance(item, pytest.Function)
    shares_airflow = "airflow" in item.fixturenames and not hasattr(item.module, "airflow")
    ends_it = item.get_closest_marker(ENDS_AIRFLOW) is not None
    return shares_airflow, not side_by_side.is_marked(item), -side_by_side.about_s(item), ends_it


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a marked test beside others."""
    if not side_by_side.is_marked(pyfuncitem):
        return None

    def fixture_of(item: pytest.Function, name: str) -> Any:
        ready = pyfuncitem._request.getfixturevalue
        if name == "scenario":
            if transport_of(item) == CONNECT:
                ready("warm_spark")
            return scenario_of(item, ready("airflow"), ready("gates"), ready("storage"))
        return ready(name)

    side_by_side.run(pyfuncitem, fixture_of)
    return True


@pytest.fixture(scope="session")
def statsd(gates: Gates) -> Iterator[dict[str, str]]:
    """Settings by which Airflow sends Cairn's metrics to `Gates.metrics`."""
    with metrics_sink.sink(gates.metrics) as env:
        yield env


@pytest.fixture(scope="session")
def airflow(shared: Path, storage: str, postgres: PostgresServer, statsd: dict[str, str]) -> Iterator[AirflowHome]:
    """A real Airflow with the scenarios' DAGs, unpaused except for those on a schedule.

    On PostgreSQL: several tests use it at a time, and SQLite refuses a second writer after some seconds.
    """
    env = {
        "PATH": os.pathsep.join([str(_commands(shared / "bin")), str(VENV / "bin"), os.environ["PATH"]]),
        # With a name, a DAG run that was deleted is told from one of another deployment (semantics W8).
        "AIRFLOW__CAIRN__DEPLOYMENT": "scenarios",
        "AIRFLOW__CORE__TEST_CONNECTION": "Enabled",
        **statsd,
        "CAIRN_TEST_STORAGE": storage,
        "CAIRN_TEST_GATES": str(shared / "gates"),
        "CAIRN_TEST_SPARK_CONF": json.dumps(spark_conf()),
        "CAIRN_TEST_S3_JARS": ",".join(map(str, s3a_jars())),
        "CAIRN_TEST_GCS_JARS": ",".join(map(str, gcs_jars())),
        "CAIRN_TEST_AZURE_JARS": ",".join(map(str, azure_jars())),
        "CAIRN_TEST_READER": json.dumps({"application": str(READER), "conf": NO_JVM}),
        "CAIRN_TEST_LAUNCHERS": str(ensure_launchers()),
        "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": "local[2]"}),
        "AIRFLOW_CONN_CAIRN_SESSION": json.dumps({"conn_type": "generic", "password": SESSION_SECRET}),
    }
    home = AirflowHome(
        shared / "airflow",
        env=env,
        heartbeat_timeout=HEARTBEAT_TIMEOUT_S,
        parallelism=side_by_side.SLOTS,
        users=USERS,
        database=postgres,
    )
    for conn_id, who in {
        "cairn_airflow_api": {"login": CLEARS, "password": home.passwords[CLEARS]},
        "viewers_api": {"login": LOOKS, "password": home.passwords[LOOKS]},
        "refused_api": {"password": "no-token-of-this-airflow"},
    }.items():
        facts = {"conn_type": "http", "host": home.url, **who}
        home.add_env(f"AIRFLOW_CONN_{conn_id.upper()}", json.dumps(facts))
    with (home.home / "config" / "airflow_local_settings.py").open("a") as settings:
        settings.write(IMPATIENT + SEES_PROVIDERS.format(folder=ensure_launchers()))
    shutil.copytree(HERE / "dags", home.dags_folder, dirs_exist_ok=True)
    with home:
        home.api.wait_for_dag_files({path.name for path in (HERE / "dags").glob("*.py")})
        errors = home.api.import_errors()
        assert errors == [], os.linesep.join(errors)
        for dag_id in set(home.api.dag_ids()) - set(home.api.dag_ids(BY_ITS_TEST)):
            home.api.unpause(dag_id)
        yield home


@pytest.fixture(scope="session")
def lake(airflow: AirflowHome, s3_server: S3Server) -> Lake:
    """The S3 server with a bucket for savepoints, and the connection to it in Airflow."""
    return made_lake(airflow, s3_server)


@pytest.fixture(scope="session")
def warm_spark(
    airflow: AirflowHome, s3_server: S3Server, gcs_server: GcsServer, azure_server: AzureServer
) -> Iterator[ConnectServer]:
    """The server behind the connection `warm`; it may write to each of the three servers of buckets."""
    where = s3a_conf(S3Options(s3_server.endpoint_url, s3_server.region))
    where |= {**gcs_conf(gcs_server.options), **azure_conf(azure_server.options, HOST)}
    jars = {jar.name: str(jar) for jar in (*s3a_jars(), *gcs_jars(), *azure_jars())}  # they have some in common
    with ConnectServer({"spark.jars": ",".join(jars.values()), **where}, env=s3_server.env) as server:
        told = {"connection_id": WARM, "conn_type": "spark_connect", "host": "localhost", "port": server.port}
        airflow.api.request("POST", "/connections", json=told)
        yield server


@pytest.fixture(scope="session")
def flights(gates: Gates) -> Path:
    """The input of the jobs of `dags/resume.py`: four days."""
    path = gates.folder / "flights.parquet"
    write_flights(path, 4)
    return path


@pytest.fixture(scope="session")
def shell(s3_server: S3Server) -> Shell:
    """The command line of the owner of these jobs."""
    return Shell(s3_server)


@pytest.fixture(scope="session")
def kept(airflow: AirflowHome, flights: Path, s3_server: S3Server, shell: Shell) -> str:
    """A savepoint of one of them on the S3 server."""
    return first_savepoint(airflow, s3_server, shell)


@pytest.fixture
def scenario(request: pytest.FixtureRequest, airflow: AirflowHome, gates: Gates, storage: str) -> Scenario:
    """The scenario of `dags/failover.py` whose number the test's name ends in."""
    if transport_of(request.node) == CONNECT:
        request.getfixturevalue("warm_spark")
    return scenario_of(request.node, airflow, gates, storage)


def scenario_of(test: pytest.Item, airflow: AirflowHome, gates: Gates, storage: str) -> Scenario:
    """Give the scenario of a test."""
    assert isinstance(test, pytest.Function)
    row = re.search(r"_(\d+(_in_spark)?)$", test.originalname)
    assert row is not None, f"{test.originalname} ends in no number of a row"
    dag_id = f"failover_{row[1]}" + ("_connect" if transport_of(test) == CONNECT else "")
    return Scenario(airflow, gates, JobStore(storage, dag_id))


def transport_of(test: pytest.Item) -> str:
    """Tell on which transport a test's scenario runs."""
    assert isinstance(test, pytest.Function)
    return str(test.callspec.params.get("scenario", SUBMIT)) if hasattr(test, "callspec") else SUBMIT
