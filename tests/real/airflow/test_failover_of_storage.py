"""Stages that run again where the storage, a clock, another program or maintenance gets in the way of a run.

Rows of docs/failover.md of which each takes minutes: `make soak` runs them.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest

from airflow_cairn.checkpoint.documents.server_record import KEY, ServersDocument, ServerState
from airflow_cairn.checkpoint.savepoints.disposal import HistoryRule, prune
from airflow_cairn.storage import open_store
from airflow_cairn.storage.clock import system_runtime
from scripts.harness.airflow_home import AirflowHome
from scripts.harness.s3_server import S3Server
from scripts.harness.wait import wait_until
from scripts.setup.venv import VENV
from tests.chaos.protocol.outage import Disk, outage
from tests.real.airflow.conftest import Gates, spark_conf
from tests.real.airflow.scenario import COMPLETED, FAILOVER, ROWS, Scenario, kill_driver, on_s3
from tests.real.airflow.store import JobStore
from tests.support.s3_proxy import S3Proxy
from tests.support.shut_down import shut_down
from tests.support.world.savepoints import asked

pytestmark = [pytest.mark.e2e, pytest.mark.side_by_side, pytest.mark.soak]

REFUSAL_S = 60
DAY_MS = timedelta(days=1) // timedelta(milliseconds=1)
DISK_DAG = '''"""A DAG for Airflow whose storage is a small disk that is there only while its test runs."""

from failover import READER, TWO, pipeline

pipeline("failover_33", TWO, stage=READER | {{"retries": 20, "retry_delay": 5}}, storage="{storage}")
'''


def test_the_store_refuses_for_a_minute_29(scenario: Scenario, s3_server: S3Server) -> None:
    """semantics F2, W3: each request gets 403 after b has failed; no restart is used up, and a later try goes on."""
    with S3Proxy(s3_server.endpoint_url) as proxy:
        scenario = on_s3(scenario, s3_server, proxy, "refusing_s3", "refusing")
        (driver,) = scenario.stopped_at("e1", "b")
        refusal = outage("403", 1, 10**6)
        proxy.rules = [refusal]
        over = time.monotonic() + REFUSAL_S
        kill_driver(driver)
        wait_until(
            lambda: time.monotonic() > over and scenario.task("e1", "b").try_number > 1, 600, "the refusal's end"
        )
        proxy.rules = []
        assert refusal.met > 0
        scenario.ended("e1")
    scenario.check_second_attempt()


def test_a_clock_was_a_day_ahead_30(scenario: Scenario) -> None:
    """semantics T1, D2: the processes that completed e1 were a day ahead; `min_pause` keeps e2 waiting no longer."""
    scenario.start("e1")
    scenario.ended("e1")
    head = Path(scenario.store.files.spark_url("head.json").removeprefix("file:"))
    head.write_text(json.dumps(_ahead(json.loads(head.read_text()))))
    scenario.start("e2")
    scenario.check("e2", tries={"a": 1, "b": 1}, outcomes=[(1, 1, COMPLETED), (2, 1, COMPLETED)], epochs=(1, 2))


def _ahead(value: Any) -> Any:
    """Give what a clock that is a day ahead would have written."""
    if isinstance(value, dict):
        moments = {key: each + DAY_MS for key, each in value.items() if key.endswith("_ms") and _is_moment(each)}
        return {key: moments.get(key, _ahead(each)) for key, each in value.items()}
    return [_ahead(each) for each in value] if isinstance(value, list) else value


def _is_moment(value: object) -> bool:
    return isinstance(value, int) and value > system_runtime().now_ms() - DAY_MS


def test_states_are_compacted_and_savepoints_pruned_beside_a_run_31(scenario: Scenario, shared: Path) -> None:
    """semantics K7, P3, F2: while b of e3 holds what it wrote; then its driver dies, and b alone runs again."""
    grows = scenario.gates.folder / "grow" / scenario.name
    grows.parent.mkdir()
    grows.touch()
    coordinator, target = scenario.store.coordinator, f"file://{shared / 'kept_31'}"
    for run in ("e1", "e2"):
        scenario.start(run)
        scenario.ended(run)
        coordinator.savepoint(asked(f"nightly/{run}", target), open_store)
    (driver,) = scenario.stopped_at("e3", "b.written")
    storage = f"file://{shared / 'storage'}"
    conf = [word for name, value in spark_conf().items() for word in ("--conf", f"{name}={value}")]
    command = [str(VENV / "bin" / "cairn"), "compact", scenario.name, "--storage", storage]
    env = {**os.environ, "PYSPARK_SUBMIT_ARGS": shlex.join([*conf, "--master", "local[1]", "pyspark-shell"])}
    said = subprocess.run(command, env=env, capture_output=True, text=True, timeout=600, check=False)
    assert said.returncode == 0, said.stderr
    pruned = prune(open_store(storage), scenario.name, HistoryRule(keep=1), target, open_store, system_runtime())
    assert len(pruned.disposed) == 1
    kill_driver(driver)
    scenario.ended("e3")
    assert scenario.tries("e3", "ab") == {"a": 1, "b": 2}
    assert scenario.store.outcomes() == [(1, 1, COMPLETED), (3, 1, COMPLETED), (5, 1, FAILOVER), (6, 2, COMPLETED)]
    rows = sorted((row["id"], row["ways"]) for row in scenario.store.state("b", "seen"))
    assert rows == [(1000 * epoch + row, 1) for epoch in (1, 2, 3) for row in range(ROWS)]
    # Until no retained checkpoint names what was merged.
    [record] = scenario.store.unreferenced()
    assert "/compactions/b/" in record


def test_another_program_takes_the_servers_port_32(airflow: AirflowHome, gates: Gates, storage: str) -> None:
    """semantics V1, V2: the server is killed and its port answers as another program does; another server serves."""
    api, job, name = airflow.api, JobStore(storage, "robbed_session"), "robbed_session"
    functions = ("function-0", "function-1")
    for stage in functions:
        gates.hold(name, "e1", 1, stage)
    api.trigger(name, "e1")
    try:
        for stage in functions:
            gates.wait_until_reached(name, "e1", 1, stage)
        [server] = job.files.read(ServersDocument, KEY)[0].servers
        [pid] = re.findall(
            rf"Starting a Spark server for job {name}: process (\d+)", api.log(name, "e1", "epoch.file", 1)
        )
        for process in (psutil.Process(int(pid)), *psutil.Process(int(pid)).children(recursive=True)):
            process.send_signal(signal.SIGKILL)
        with _at_its_port(server.port):
            api.wait_for_run(name, "e1", timeout=1200)
        servers = job.files.read(ServersDocument, KEY)[0].servers
        assert [each.port != server.port for each in servers if each.state is ServerState.UP] == [True]
    finally:
        shut_down(job.coordinator)
    assert api.run_state(name, "e1") == "success", api.explain(name, "e1")
    tries = [api.task(name, "e1", "epoch.function", map_index=part).try_number for part in (0, 1)]
    assert (api.task(name, "e1", "epoch.file").try_number, *tries) == (1, 2, 2)
    for part in (0, 1):
        assert sorted(row["id"] for row in job.state(f"function-{part}", "seen")) == [*range(1000 + part, 1040, 2)]
    assert job.unreferenced() == []


@contextmanager
def _at_its_port(port: int) -> Iterator[None]:
    """Listen where a server did, and take what comes without a word."""
    found: list[socket.socket] = []

    def bound() -> bool:
        try:
            found.append(socket.create_server(("127.0.0.1", port)))
        except OSError:  # the dead one's socket goes with its last process
            return False
        return True

    wait_until(bound, 60, f"port {port} to be free", interval=0.1)
    with found[0]:
        yield


def test_the_disk_of_the_storage_is_full_33(airflow: AirflowHome, gates: Gates, shared: Path) -> None:
    """semantics W3, F2: no byte can be written after b has failed; its tries say so, until there is room."""
    api = airflow.api
    with _small_disk(shared / "small_disk") as disk:
        storage = f"file://{disk.folder / 'lake'}"
        scenario = Scenario(airflow, gates, JobStore(storage, "failover_33"))
        (airflow.dags_folder / "failover_of_disk.py").write_text(DISK_DAG.format(storage=storage))
        wait_until(lambda: scenario.name in api.dag_ids(), 600, "the DAG to be parsed")
        api.unpause(scenario.name)
        (driver,) = scenario.stopped_at("e1", "b")
        disk.fill()
        kill_driver(driver)

        def says_so() -> bool:
            number = scenario.task("e1", "b").try_number
            return any("No space left on device" in scenario.log("e1", "b", each) for each in range(2, number + 1))

        wait_until(says_so, 600, "a try to say that the disk is full", interval=5)
        disk.free()
        scenario.ended("e1")
        scenario.check_second_attempt()
        (airflow.dags_folder / "failover_of_disk.py").unlink()


@contextmanager
def _small_disk(folder: Path) -> Iterator[Disk]:
    folder.mkdir()
    with subprocess.Popen(Disk.mounted_for(folder, ["cat"]), stdin=subprocess.PIPE) as holder:
        try:
            yield Disk.of(holder.pid, folder)
        finally:
            holder.kill()
