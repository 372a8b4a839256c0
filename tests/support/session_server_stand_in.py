"""Stands in for the `spark-submit` of a job's server where no JVM is needed: a server that computes nothing.

The record, its lease, the token and the look at the job are the product's. It notes how it was started.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from threading import Event

from airflow_cairn.checkpoint import Coordinator
from airflow_cairn.checkpoint.runtime import system_runtime
from airflow_cairn.checkpoint.servers.lifetime import Activity
from airflow_cairn.spark.handover.conf import open_driver_store, s3_options
from airflow_cairn.spark.remote.register import ServerRegister
from airflow_cairn.spark.remote.server_task import TOKEN_VARIABLE, VARIABLE, ServerTask
from airflow_cairn.spark.remote.session_driver import ServerLife, reachable
from tests.support.connect_stand_in import ConnectStandIn, connect_server


def main() -> int:
    """Note and serve; gives the exit status."""
    task = ServerTask.from_json(os.environ[VARIABLE])
    note = {
        "argv": sys.argv[1:],
        "pid": os.getpid(),
        "session": os.getsid(0),
        "folder": str(Path.cwd()),
        "environ": dict(os.environ),
    }
    notes = Path(os.environ["CAIRN_TEST_NOTE"])
    with notes.open("a") as file:
        file.write(json.dumps(note) + "\n")
    if "spark.test.do=fail" in sys.argv:
        print("there is no such master")
        return 3
    told = Event()
    signal.signal(signal.SIGTERM, lambda *_: told.set())
    coordinator = Coordinator(open_driver_store(task.storage, s3_options(task.endpoint, task.region)), task.job)
    register = ServerRegister(coordinator.files, system_runtime())
    with connect_server(token=os.environ[TOKEN_VARIABLE]) as server, reachable(task, server.port) as port:

        def look() -> Activity:
            return Activity(len(server.open), len(server.open | server.closed), 0, 0, 0)

        register.come_up(task.nonce, port, task.host)
        life = ServerLife(task, coordinator, register, look, system_runtime().now_ms)
        while life.goes_on() and not told.wait(0.05):
            pass
        _tell(notes, server, life.why)
    register.drop(task.nonce)
    return 0


def _tell(notes: Path, server: ConnectStandIn, why: str | None) -> None:
    text = json.dumps({"why": why, "closed": sorted(session for _, session in server.closed)})
    notes.with_name(f"{notes.name}.{os.getpid()}").write_text(text)


if __name__ == "__main__":
    sys.exit(main())
