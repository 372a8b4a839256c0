"""Measures what a server that Cairn runs keeps of its epochs: memory, Python workers, files, sessions.

Run it as `.venv/bin/python -m bench.session [--json] [--epochs N] [--every N] [--idle SECONDS]`. A job of one stage
runs its epochs in sequence on the server that its first stage has started, as a stage's task does: `SharedServer` finds
the server, the client is a process. Its application (`bench/session_spark/application.py`) uses a Python UDF, a
temporary view, a cached table and a keyed state.

Every `--every` epochs, after a garbage collection in the server, it adds a line to `samples`:

- `epoch`, and `epoch_s`: the median seconds of the epochs since the previous line.
- `server_mb`, `threads`, `open_files`: of the server's JVM; `driver_mb`: of the Python beside it.
- `python_workers`: the sessions' daemons and their workers alive at that moment.
- `client_mb`: the largest peak memory of a client process since the previous line.
- `worker_mb`: of this process, which stands for Airflow's task processes.
- `views`, `tables`: temporary views and cached tables that a new session sees.
- `files`: below the server's folder and its temporary folder.

Then `server_growth_mb` and `worker_growth_mb`, between the first line and the last, and the leftovers once the server
has ended by itself: `processes_left`, `files_left`. The server ends only when it has no open session.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from pathlib import Path

import psutil
from airflow.sdk import BaseHook

from airflow_cairn.checkpoint import CheckpointConfig, Slice, StageSpec, TriggerRequest
from airflow_cairn.checkpoint.answers import Ready, Submit
from airflow_cairn.checkpoint.documents.layout import epoch_name
from airflow_cairn.checkpoint.documents.server_record import KEY, ServersDocument
from airflow_cairn.operators import ConnectSession
from airflow_cairn.spark.handover.conf import handover_conf
from airflow_cairn.spark.remote.server import ConnectServer
from airflow_cairn.spark.remote.submission import VARIABLE, Submission, session_id
from airflow_cairn.storage.names import parse_storage_uri
from airflow_cairn.tasks.job_settings import JobSettings
from airflow_cairn.tasks.shared_server import SharedServer
from scripts.harness.spark.start import ensure_archive, fast_conf
from scripts.harness.wait import wait_until
from scripts.setup.java import ensure_java

from .measuring.results import machine, tell

APPLICATION = Path(__file__).parent / "session_spark" / "application.py"
JOB, STAGE = "sessions", "count"
MB = 2**20
ASKS = """
import json
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
spark.sql("SELECT java_method('java.lang.System', 'gc')").collect()
views = spark.sql("SHOW VIEWS").count() + spark.sql("SHOW VIEWS IN global_temp").count()
print(json.dumps({"views": views, "tables": spark.sql("SHOW TABLES").count()}))
spark.stop()
"""


@dataclass
class Job:
    """The job and its measurements.

    The server ends after the time `idle` without a session.
    """

    folder: Path
    idle: timedelta
    epochs: int = field(default=0, init=False)
    spent_s: list[float] = field(default_factory=list, init=False)
    """Seconds of the epochs since the last sample."""
    client_kb: int = field(default=0, init=False)
    """The largest peak memory of a client since then."""

    def __post_init__(self) -> None:
        (self.folder / "storage").mkdir()
        self.settings = JobSettings(parse_storage_uri((self.folder / "storage").as_uri()), JOB)

    def server(self) -> tuple[str, ConnectServer]:
        """Find the server as a stage's task does, and its nonce; the first call starts it."""
        small = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2", **fast_conf()}
        session = ConnectSession(conf=small, idle=self.idle, max_sessions=10_000)
        return SharedServer(session, "spark_here", self.settings, self.settings.coordinator(), "").take()

    def run_epoch(self) -> None:
        begun, epoch = time.monotonic(), epoch_name(f"e{self.epochs}")
        coordinator = self.settings.coordinator()
        coordinator.trigger(TriggerRequest(epoch, Slice(), (StageSpec(STAGE, (), 2),), CheckpointConfig(retained=2)))
        submit = coordinator.begin(epoch, STAGE, f"{self.epochs}")
        assert isinstance(submit, Submit), submit
        hook = self.settings.hook()
        handed = handover_conf(submit.handover, submit.handover_key, storage=self.settings.storage)
        _, server = self.server()
        submission = Submission(str(APPLICATION), session_id(submit.handover.token), handed, asdict(server))
        self.run_client(
            [sys.executable, "-m", "airflow_cairn.spark.remote.client"],
            {VARIABLE: submission.to_json(), **hook.driver_environment()},
        )
        progress = coordinator.progress(epoch)
        assert isinstance(progress, Ready), progress
        coordinator.complete(progress.checkpoint)
        coordinator.clean()
        self.epochs += 1
        self.spent_s.append(time.monotonic() - begun)

    def run_client(self, command: list[str], env: dict[str, str]) -> str:
        with tempfile.TemporaryFile("w+") as output:
            process = subprocess.Popen(command, env={**os.environ, **env}, stdout=output, stderr=subprocess.STDOUT)
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            output.seek(0)
            said = output.read()
        if process.returncode:
            raise RuntimeError(f"a client ended with {process.returncode}\n{said[-4000:]}")
        self.client_kb = max(self.client_kb, used.ru_maxrss)
        return said

    def sample(self) -> dict[str, object]:
        nonce, server = self.server()
        url = server.url(session_id(secrets.token_hex(8)))
        client_mb = round(self.client_kb / 1024)
        asked = self.run_client([sys.executable, "-c", ASKS], {"SPARK_REMOTE": url})
        jvm = server_process(nonce)
        python = [each for each in jvm.children(recursive=True) if not is_worker(each)]
        found: dict[str, object] = {
            "epoch": self.epochs,
            "epoch_s": round(statistics.median(self.spent_s), 2),
            "server_mb": round(jvm.memory_info().rss / MB),
            "threads": jvm.num_threads(),
            "open_files": jvm.num_fds(),
            "driver_mb": round(sum(each.memory_info().rss for each in python) / MB),
            "python_workers": len(jvm.children(recursive=True)) - len(python),
            "client_mb": client_mb,
            "worker_mb": round(psutil.Process().memory_info().rss / MB),
            **json.loads(asked.splitlines()[-1]),
            "files": len(self.files()),
        }
        self.spent_s.clear()
        self.client_kb = 0
        return found

    def files(self) -> list[Path]:
        return [path for path in (self.folder / "tmp").rglob("*") if path.is_file()]

    def server_is_gone(self) -> bool:
        return not self.settings.coordinator().files.read(ServersDocument, KEY)[0].servers


def is_worker(process: psutil.Process) -> bool:
    """Tell whether a process is a Python worker, or one that has just ended."""
    try:
        return "pyspark.daemon" in " ".join(process.cmdline())
    except psutil.NoSuchProcess:  # or a zombie, which counts too
        return True


def server_process(nonce: str) -> psutil.Process:
    """Find the JVM of a server."""
    for process in psutil.process_iter():
        with suppress(psutil.Error, IndexError):
            words = process.cmdline()
            if "java" in words[0] and any(f"cairn-server-{nonce}" in word for word in words):
                return process
    raise LookupError(f"the server {nonce} does not run")


@contextmanager
def environment(folder: Path) -> Iterator[None]:
    """Give this process the connections, Spark, Java and temporary folder of an Airflow task."""
    temporary = folder / "tmp"
    temporary.mkdir()
    told = {
        "TMPDIR": str(temporary),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYSPARK_PYTHON": sys.executable,
        "JAVA_HOME": str(ensure_java()),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "AIRFLOW_CONN_SPARK_HERE": json.dumps({"conn_type": "spark", "host": "local[2]"}),
        "AIRFLOW_CONN_CAIRN_SESSION": json.dumps({"conn_type": "generic", "password": secrets.token_urlsafe(32)}),
    }
    before = {name: os.environ.get(name) for name in told}
    os.environ.update(told)
    tempfile.tempdir = None
    try:
        BaseHook.get_connection("spark_here")
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None) if value is None else os.environ.update({name: value})
        tempfile.tempdir = None


def measure(folder: Path, epochs: int, every: int, idle: timedelta) -> dict[str, object]:
    """Run the epochs."""
    ensure_archive()
    with environment(folder):
        job = Job(folder, idle)
        samples = []
        for _ in range(epochs // every):
            for _ in range(every):
                job.run_epoch()
            samples.append(job.sample())
        nonce, _ = job.server()
        below = server_process(nonce)
        family = [below, *below.children(recursive=True)]
        wait_until(job.server_is_gone, 1800, "the idle server to end")
        _, alive = psutil.wait_procs(family, 300)

        def growth(name: str) -> object:
            return samples[-1][name] - samples[0][name]  # type: ignore[operator]

        return {
            "samples": samples,
            "server_growth_mb": growth("server_mb"),
            "worker_growth_mb": growth("worker_mb"),
            "processes_left": len(alive),
            "files_left": len(job.files()),
            **machine(),
        }


def main() -> None:
    """Measure and print."""
    lines = (__doc__ or "").split("\n", 1)
    parser = argparse.ArgumentParser(prog="bench.session", description=lines[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--epochs", type=int, default=50, help="how many (default: 50)")
    parser.add_argument("--every", type=int, default=10, help="epochs between two samples (default: 10)")
    parser.add_argument("--idle", type=int, default=30, help="seconds after which the idle server ends (default: 30)")
    options = parser.parse_args()
    # Airflow's log would report the server as in a task.
    with tempfile.TemporaryDirectory(prefix="cairn-bench-") as name, redirect_stdout(sys.stderr):
        result = measure(Path(name), options.epochs, options.every, timedelta(seconds=options.idle))
    tell(result, as_json=options.json)


if __name__ == "__main__":
    main()
