"""Stands in for the `spark-submit` of a job's server where no JVM is needed: a server that computes nothing.

The record, its lease, the token and the look at the job are the product's. It notes how it was started. In deploy mode
cluster the server is a process of its own, to which the credentials are handed on, and this one stays until it ends.
The conf `spark.test.do` has it `fail` at once, or `break` where the product's driver starts Spark.
"""

from __future__ import annotations

import ast
import json
import os
import signal
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Event

from airflow_cairn.checkpoint import Coordinator
from airflow_cairn.checkpoint.rules.server import Activity
from airflow_cairn.spark.handover.conf import open_driver_store, store_options
from airflow_cairn.spark.remote import session_driver
from airflow_cairn.spark.remote.deferred_pandas import pandas_when_used
from airflow_cairn.spark.remote.jvm_sessions import ServerSession, StaleSessions
from airflow_cairn.spark.remote.register import ServerRegister
from airflow_cairn.spark.remote.server import IDENTITY, TOKEN, ServerTask
from airflow_cairn.spark.remote.session_driver import ServerLife, reachable
from airflow_cairn.storage.clock import system_runtime

with pandas_when_used():  # half of what this process takes to start, and it uses none of it
    from tests.support.connect_stand_in import ConnectStandIn, connect_server

_AFTERWARDS_S = 2.5
"""Some looks of the stage that has started it, as `spark-submit` needs to see its driver fail."""


def main() -> int:
    """Note and serve; gives the exit status."""
    program = Path(sys.argv[-1]).read_text()
    told_task: str = ast.literal_eval(program[program.rindex("main(") + 5 : program.rindex("))")])
    task = ServerTask.from_json(told_task)
    secrets: dict[str, str] = dict(os.environ)
    if "cluster" in sys.argv:
        secrets = _credentials()
        driver = os.fork()
        if driver:
            return os.waitstatus_to_exitcode(os.waitpid(driver, 0)[1])
        os.setsid()
    note = {
        "argv": sys.argv[1:],
        "pid": os.getpid(),
        "session": os.getsid(0),
        "folder": str(Path.cwd()),
        "environ": dict(os.environ),
        "task": asdict(task),
    }
    notes = Path(os.environ["CAIRN_TEST_NOTE"])
    with notes.open("a") as file:
        file.write(json.dumps(note) + "\n")
    if "spark.test.do=fail" in sys.argv:
        print("there is no such master")
        return 3
    if "spark.test.do=break" in sys.argv:
        return _broken(told_task)
    told = Event()
    signal.signal(signal.SIGTERM, lambda *_: told.set())
    coordinator = Coordinator(open_driver_store(task.storage, store_options(task.s3.get, task.storage)), task.job)
    register = ServerRegister(coordinator.files, system_runtime())
    with connect_server(token=secrets[TOKEN]) as server, reachable(task, server.port, secrets) as port:

        def look(*, ends: bool) -> Activity:
            return Activity(len(server.open), len(server.open | server.closed), 0, 0, 0)

        register.come_up(task.nonce, port, task.host or ("127.0.0.1" if task.bind_address else None))
        stale = StaleSessions(coordinator, _Sessions(server))
        life = ServerLife(task, coordinator, register, look, stale.close, system_runtime().now_ms)
        while life.goes_on() and not told.wait(0.05):
            pass
        _tell(notes, server, life.why)
    register.drop(task.nonce)
    return 0


def _broken(told_task: str) -> int:
    """Run the product's driver until it would start Spark, and fail there; the process ends a while later."""

    def breaks(*_: object) -> None:
        raise ValueError("there is no such plugin")

    vars(session_driver)["_serve"] = breaks
    try:
        return session_driver.main(told_task)
    except ValueError as error:
        print(error, flush=True)
        Event().wait(_AFTERWARDS_S)
        return 1


def _credentials() -> dict[str, str]:
    """Read what Spark's JVM would: the values, by the names of a server's secrets."""
    data = Path(os.environ["SPARK_SUBMIT_OPTS"].rpartition("-Dhadoop.token.files=")[2]).read_bytes()
    found = {}
    for name in (TOKEN, IDENTITY):
        at = data.index(name.encode()) + len(name)
        # The first byte of a count says how many bytes follow; see WritableUtils.readVInt.
        more = max(0, 144 - data[at]) if data[at] > 127 else 0
        size = int.from_bytes(data[at + 1 : at + 1 + more]) if more else data[at]
        found[name] = data[at + 1 + more : at + 1 + more + size].decode()
    return found


@dataclass
class _Sessions:
    """The sessions of the server, as Spark's manager would have them."""

    server: ConnectStandIn

    def opened(self) -> list[ServerSession]:
        return [ServerSession(session, f"server's {session}", (user, session)) for user, session in self.server.open]

    def close(self, session: ServerSession) -> None:
        self.server.open.discard(session.key)
        self.server.closed.add(session.key)


def _tell(notes: Path, server: ConnectStandIn, why: str | None) -> None:
    text = json.dumps({"why": why, "closed": sorted(session for _, session in server.closed)})
    notes.with_name(f"{notes.name}.{os.getpid()}").write_text(text)


if __name__ == "__main__":
    sys.exit(main())
