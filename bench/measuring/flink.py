"""Flink as a way of `bench.peers`: one job that always runs, in separate processes, on local files."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import psutil
import pyarrow.parquet as pq

from scripts.harness.processes import RealProcess
from scripts.harness.wait import wait_until
from scripts.setup.java import ensure_java
from scripts.setup.venv import VENV
from tests.matrix.environments import programs_of

from .peers import Peer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PACKAGE = "apache-flink==2.3.0"
_APPLICATION = Path(__file__).parents[1] / "peers_flink" / "totals.py"
_CHANGED = re.compile(rb"\+[IU]\[(\d+), (\d+)\]")
_TIMEOUT_S = 600.0
_LOOKS_EVERY_S = 0.02


class Flink(Peer):
    """A streaming job that adds up; an epoch ends when a checkpoint that began after its last total is complete.

    The next epoch's file comes then. The result is the totals that a consumer of the changes has at the end.
    """

    name = "flink"
    always_runs: ClassVar[bool] = True

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        super().__init__(spark, folder)
        self._in, self._checkpoints = self.folder / "in", self.folder / "checkpoints"
        self._in.mkdir()
        self._checkpoints.mkdir()
        self._programs = programs_of("peers-flink", VENV / "bin" / "python", [PACKAGE])
        self._logs: list[Path] = []
        self._job: RealProcess | None = None

    def run(self, number: int) -> None:
        """Give the job the input of an epoch, and wait; a killed job restarts from its newest checkpoint."""
        if self._was_put(number):
            self._start()
            self._wait(lambda: self._is_still(self._complete()), "the job that goes on to stand still")
            return
        self._put(number)
        begun = max(self._ids(), default=0)
        self._wait(lambda: self._complete() > begun, "a checkpoint after the last total")

    def run_killed(self, number: int) -> None:
        """Kill the job's processes when the last total is out, before a checkpoint has it."""
        self._put(number)
        self.close()

    def close(self) -> None:
        if self._job is not None:
            self._job.stop(grace=0)
            self._job = None

    def total(self) -> int:
        """Add up the totals of a consumer who keeps each key's newest total."""
        newest = {}
        for log in self._logs:
            for key, amount in _CHANGED.findall(log.read_bytes()):
                newest[key] = int(amount)
        return sum(newest.values())

    def files(self) -> dict[Path, tuple[int, int]]:
        return {path: facts for path, facts in super().files().items() if path.is_relative_to(self._checkpoints)}

    def cpu_elsewhere(self) -> float:
        family = [] if self._job is None else self._job.family()
        return sum(sum(each.cpu_times()[:2]) for each in family if psutil.pid_exists(each.pid))

    def _was_put(self, number: int) -> bool:
        return (self._in / f"{number}.csv").exists()

    def _put(self, number: int) -> None:
        """Put a file into the job's input folder, and wait until each row has changed a total."""
        if self._job is None:
            self._start()
        table = pq.read_table(self._all / "input" / f"epoch={number}", columns=["key", "amount"], partitioning=None)
        rows = zip(table["key"].to_pylist(), table["amount"].to_pylist(), strict=True)
        before = self._printed()
        written = self._in / f".{number}"
        written.write_text("".join(f"{key},{amount}\n" for key, amount in rows))
        written.rename(self._in / f"{number}.csv")
        self._wait(lambda: self._changes(before) >= table.num_rows, "the changed totals")

    def _start(self) -> None:
        newest = self._complete()
        restored = [path for path in self._checkpoints.glob(f"*/chk-{newest}") if (path / "_metadata").exists()]
        log = self.folder / f"{len(self._logs)}.log"
        command: list[str | Path] = [self._programs / "python", _APPLICATION, self._in, self._checkpoints, *restored]
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK", "SPARK_"))}
        self._job = RealProcess("flink", command, log, env={**kept, "JAVA_HOME": str(ensure_java())}, cwd=self.folder)
        self._logs.append(log)
        self._job.wait_until(lambda: b"STARTED" in log.read_bytes(), _TIMEOUT_S, "Flink")

    def _printed(self) -> int:
        return self._logs[-1].stat().st_size

    def _changes(self, since: int) -> int:
        """Count the totals that the job has printed beyond a number of bytes."""
        with self._logs[-1].open("rb") as log:
            log.seek(since)
            printed = log.read()
        return printed.count(b"+I[") + printed.count(b"+U[")

    def _ids(self, name: str = "") -> list[int]:
        """Return the numbers of the checkpoints that have a file of this name, or of all that have begun."""
        folders = self._checkpoints.glob("*/chk-*")
        return [int(each.name.removeprefix("chk-")) for each in folders if (each / name).exists()]

    def _complete(self) -> int:
        """Return the number of the newest complete checkpoint."""
        return max(self._ids("_metadata"), default=0)

    def _is_still(self, newest: int) -> bool:
        """Wait for three more checkpoints, and tell whether no total has changed since."""
        before = self._printed()
        self._wait(lambda: self._complete() >= newest + 3, "three checkpoints")
        return self._printed() == before

    def _wait(self, until: Callable[[], bool], what: str) -> None:
        wait_until(until, _TIMEOUT_S, what, interval=_LOOKS_EVERY_S)
