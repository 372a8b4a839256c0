"""A real Spark standalone cluster from the pyspark wheel: one master, two small workers, all on loopback."""

from __future__ import annotations

import json
import os
import urllib.request
from collections.abc import Mapping
from http.client import HTTPException
from pathlib import Path
from typing import Any

from ...setup.java import ensure_java
from ...setup.venv import VENV
from ..ports import LOOPBACK, free_port
from ..processes import RealProcess
from ..service import Service
from .start import OPTION, fast_conf

_MASTER = "org.apache.spark.deploy.master.Master"
_WORKER = "org.apache.spark.deploy.worker.Worker"
_START_TIMEOUT_S = 600.0


class SparkCluster(Service):
    """The cluster. Executors get 1 GiB and one core each.

    The executors and cluster-mode drivers have `env` too.
    """

    def __init__(self, workers: int = 2, root: Path | None = None, *, env: Mapping[str, str] | None = None) -> None:
        super().__init__("spark", root)
        self.workers = workers
        self.port = 0
        self.web_port = 0
        self._extra_env = dict(env or {})

    @property
    def master_url(self) -> str:
        return f"spark://{LOOPBACK}:{self.port}"

    @property
    def web_url(self) -> str:
        """The master's page; `/json/` below it tells the cluster's state."""
        return f"http://{LOOPBACK}:{self.web_port}"

    def start(self) -> None:
        self.port, self.web_port = free_port(), free_port()
        address = ["--host", LOOPBACK, "--port", str(self.port), "--webui-port", str(self.web_port)]
        self._run("master", [_MASTER, *address]).wait_until(
            lambda: self.state() is not None, _START_TIMEOUT_S, f"the Spark master at {self.web_url}"
        )
        workers = [
            self._run(f"worker-{number}", [_WORKER, *self._worker_options(number), self.master_url])
            for number in range(self.workers)
        ]
        for worker in workers:
            worker.wait_until(lambda: self.alive_workers() == self.workers, _START_TIMEOUT_S, f"{worker.name} to join")

    def state(self) -> dict[str, Any] | None:
        """Give what the master tells about itself (workers, applications, drivers), None while it does not answer."""
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with direct.open(f"{self.web_url}/json/", timeout=5) as answer:
                state: dict[str, Any] = json.load(answer)
                return state
        except (OSError, HTTPException, ValueError):
            # The master's web server answers before the page is there: with nothing, or with no JSON.
            return None

    def alive_workers(self) -> int:
        state = self.state()
        return sum(worker["state"] == "ALIVE" for worker in state["workers"]) if state else 0

    def _worker_options(self, number: int) -> list[str]:
        folder = self.root / f"worker-{number}"
        folder.mkdir(parents=True, exist_ok=True)
        ports = ["--port", str(free_port()), "--webui-port", str(free_port())]
        return ["--host", LOOPBACK, *ports, "--cores", "1", "--memory", "1g", "--work-dir", str(folder)]

    def _run(self, name: str, command: list[str]) -> RealProcess:
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("SPARK_", "PYSPARK_"))}
        env = {
            **kept,
            "JAVA_HOME": str(ensure_java()),
            "SPARK_LOCAL_IP": LOOPBACK,
            "SPARK_DAEMON_MEMORY": "384m",
            "SPARK_DAEMON_JAVA_OPTS": fast_conf()[OPTION],
            "SPARK_MASTER_OPTS": "-Dspark.master.rest.enabled=false",
            "PYSPARK_PYTHON": str(VENV / "bin" / "python"),
            **self._extra_env,
        }
        log = self.root / f"{name}.log"
        process = RealProcess(name, [VENV / "bin" / "spark-class", *command], log, env=env, cwd=self.root)
        self._processes[name] = process
        return process
