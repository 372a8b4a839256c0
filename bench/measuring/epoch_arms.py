"""The four arms of `bench.epoch`, ways to run an epoch of the flights pipeline."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from airflow_cairn.checkpoint import CheckpointConfig, Coordinator, Slice, StageSpec, TriggerRequest
from airflow_cairn.checkpoint.answers import Ready, Submit
from airflow_cairn.checkpoint.documents.layout import epoch_name
from airflow_cairn.spark.handover.conf import handover_conf
from airflow_cairn.spark.handover.runtime_zip import runtime_zip
from airflow_cairn.spark.remote.server import server_of
from airflow_cairn.spark.remote.submission import VARIABLE, Submission, session_id
from airflow_cairn.storage import open_store
from airflow_cairn.storage.names import parse_storage_uri
from scripts.demo.stored_state import state_rows
from scripts.harness.spark.connect_server import ConnectServer
from scripts.setup.base import CACHE, ROOT
from scripts.setup.java import ensure_java

FIRST_DAY = datetime(2001, 1, 1)  # noqa: DTZ001 - the data is in local time, without a zone
STAGES = (
    StageSpec("clean"),
    StageSpec("routes", ("clean",), 2, 128),
    StageSpec("airports", ("clean",), 2, 128),
    StageSpec("report", ("routes", "airports")),
)
"""As in `dags/flights.py`. They run in sequence, with Cairn and without."""
APPLICATIONS = ROOT / "dags" / "applications"
PLAIN = Path(__file__).parents[1] / "epoch_spark" / "plain_application.py"
ROUTE = ("origin", "destination")
"""The key of the routes' totals."""
SMALL = {"spark.sql.shuffle.partitions": "2", "spark.ui.enabled": "false"}


def program_env() -> dict[str, str]:
    """Return the environment of a program."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {
        **kept,
        # Installed packages have their bytecode beside them; the unmeasured epochs write it.
        "PYTHONPYCACHEPREFIX": str(CACHE / "bytecode"),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYSPARK_PYTHON": sys.executable,
        "JAVA_HOME": str(ensure_java()),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


class Programs:
    """Starts the applications of one arm and waits for them."""

    def __init__(
        self, folder: Path, flights: Path, conf: Mapping[str, str], where: Sequence[str] = ("--master", "local[2]")
    ) -> None:
        self.folder = folder
        self._flights = flights
        self._conf = conf
        self._where = where
        self._env = program_env()
        folder.mkdir()

    def arguments(self, stage: str) -> list[str]:
        return [str(self._flights)] if stage == "clean" else []

    def run(self, command: list[str], env: Mapping[str, str] | None = None) -> None:
        """Run a program to its end.

        Raises:
            RuntimeError: the program failed.
        """
        done = subprocess.run(
            command, env={**self._env, **(env or {})}, cwd=self.folder, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise RuntimeError(f"{command} ended with {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")

    def submit(self, conf: Mapping[str, str], words: list[str], *options: str) -> None:
        given = {**self._conf, **conf}
        confs = [word for key, value in given.items() for word in ("--conf", f"{key}={value}")]
        submit = str(Path(sys.executable).parent / "spark-submit")
        self.run([submit, *self._where, *confs, *options, *words])


@dataclass
class Spent:
    """An epoch's seconds, by part."""

    whole_s: float
    cpu_s: float = 0.0
    """CPU time of the programs, of the server, and of the coordinator."""
    coordinator_s: float = 0.0
    """Time in the coordinator: trigger, claims, completing and cleaning, as in Airflow's tasks."""
    stages_s: float = 0.0
    """Time in the programs of the stages."""


@dataclass
class Arm:
    """One way to run epochs."""

    programs: Programs
    server: ConnectServer | None = None
    """The server; None for spark-submit."""
    epochs: int = field(default=0, init=False)

    def run(self) -> Spent:
        """Run the next epoch, a day of flights."""
        day = FIRST_DAY + timedelta(days=self.epochs)
        begun, cpu_s = time.monotonic(), self._cpu_s()
        spent = self.run_epoch(self.epochs, day.isoformat(), (day + timedelta(days=1)).isoformat())
        spent.whole_s, spent.cpu_s = time.monotonic() - begun, self._cpu_s() - cpu_s
        self.epochs += 1
        return spent

    def _cpu_s(self) -> float:
        """Return the CPU time so far, of ended programs, of the server, and of this process: of the coordinator."""
        ended = resource.getrusage(resource.RUSAGE_CHILDREN)
        running = [process.cpu_times() for process in self.server.process.family()] if self.server else []
        of_server = sum(each.user + each.system for each in running)
        return ended.ru_utime + ended.ru_stime + of_server + time.process_time()

    def run_epoch(self, number: int, start: str, end: str) -> Spent:
        """Run one epoch; return the known parts of its time."""
        raise NotImplementedError

    def route_totals(self) -> dict[tuple[Any, ...], dict[str, Any]]:
        """Return the rows of the routes' totals after the last epoch, by key."""
        raise NotImplementedError


class PlainArm(Arm):
    """Arm that runs the same applications without Cairn."""

    def run_epoch(self, number: int, start: str, end: str) -> Spent:
        folder = self.programs.folder / "plain"
        (folder / str(number)).mkdir(parents=True)
        for stage in STAGES:
            told = {"folder": str(folder), "number": number, "stage": stage.uid, "start": start, "end": end}
            words = [str(PLAIN), json.dumps(told), str(APPLICATIONS / f"{stage.uid}.py")]
            words += self.programs.arguments(stage.uid)
            if self.server is None:
                self.programs.submit({}, words)
            else:
                self.programs.run([sys.executable, *words], {"SPARK_REMOTE": f"sc://localhost:{self.server.port}"})
        return Spent(0.0)

    def route_totals(self) -> dict[tuple[Any, ...], dict[str, Any]]:
        rows = pq.read_table(self.programs.folder / "plain" / str(self.epochs - 1) / "totals").to_pylist()
        return {tuple(row[column] for column in ROUTE): row for row in rows}


class CairnArm(Arm):
    """With Cairn: the acts of a `CheckpointedTaskGroup`'s tasks, without Airflow."""

    def _coordinator(self) -> Coordinator:
        return Coordinator(open_store(self._storage), "flights")

    @property
    def _storage(self) -> str:
        return (self.programs.folder / "lake").as_uri()

    def run_epoch(self, number: int, start: str, end: str) -> Spent:
        """Trigger, run each stage, complete, clean."""
        spent = Spent(0.0)
        epoch = epoch_name(f"e{number}")
        config = CheckpointConfig(retained=3)
        request = TriggerRequest(epoch, Slice(f"{start}+00:00", f"{end}+00:00"), STAGES, config)

        def timed(what: str, call: object) -> object:
            begun = time.monotonic()
            found = call()  # type: ignore[operator]
            setattr(spent, what, getattr(spent, what) + time.monotonic() - begun)
            return found

        timed("coordinator_s", lambda: self._coordinator().trigger(request))
        for stage in STAGES:
            submit = timed(
                "coordinator_s", partial(self._coordinator().begin, epoch, stage.uid, f"{number}-{stage.uid}")
            )
            assert isinstance(submit, Submit), submit
            timed("stages_s", partial(self._run_stage, submit))
            timed("coordinator_s", partial(self._coordinator().progress, epoch))
        progress = self._coordinator().progress(epoch)
        assert isinstance(progress, Ready), progress

        def complete() -> None:
            coordinator = self._coordinator()
            coordinator.complete(progress.checkpoint)
            coordinator.clean()

        timed("coordinator_s", complete)
        return spent

    def route_totals(self) -> dict[tuple[Any, ...], dict[str, Any]]:
        return dict(state_rows(self._coordinator(), "routes", "totals"))

    def _run_stage(self, submit: Submit) -> None:
        handover, stage = submit.handover, submit.handover.stage
        handed = handover_conf(handover, submit.handover_key, storage=parse_storage_uri(self._storage))
        application, arguments = str(APPLICATIONS / f"{stage}.py"), self.programs.arguments(stage)
        if self.server is None:
            shipped = runtime_zip(self.programs.folder)
            self.programs.submit(handed, [application, *arguments], "--py-files", str(shipped))
            return
        server = asdict(server_of("localhost", self.server.port))
        submission = Submission(application, session_id(handover.token), handed, server, tuple(arguments))
        client = [sys.executable, "-m", "airflow_cairn.spark.remote.client"]
        self.programs.run(client, {VARIABLE: submission.to_json()})
