"""Starts the plain Spark pass, and says when its result is there."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

from ..harness.airflow_home import AirflowHome
from ..harness.priority import LOWEST, give_way, set_session_niceness
from ..harness.processes import RealProcess
from ..harness.spark.start import fast_conf
from ..harness.wait import wait_until
from .flights_input import FIRST_DAY

TIMEOUT_S = 600.0


class PlainPass:
    """One Spark application without Cairn, beside everything else: what the pipeline's state must equal.

    It takes what Airflow and the pipeline leave of the machine: its result is needed at the end only.
    """

    def __init__(self, flights: Path, epochs: int, folder: Path, say: Callable[[str], None]) -> None:
        self.totals, self.traffic = folder / "plain" / "totals", folder / "plain" / "traffic"
        self._say = say
        self._told = False
        end = FIRST_DAY + timedelta(days=epochs)
        words = [word for name, value in fast_conf().items() for word in ("--conf", f"{name}={value}")]
        home = AirflowHome(folder / "plain-home")  # for the environment that its tasks would get, nothing is started
        command: list[str | Path] = [
            Path(sys.executable).parent / "spark-submit",
            *("--master", "local[2]", "--conf", "spark.ui.enabled=false", "--conf", "spark.sql.shuffle.partitions=2"),
            *words,
            Path(__file__).with_name("plain_pass.py"),
            *(str(flights), FIRST_DAY.date().isoformat(), end.date().isoformat(), str(folder / "plain")),
        ]
        self._process = RealProcess("plain-pass", command, folder / "plain-pass.log", env=home.env, cwd=folder)
        give_way(self._process.pid, of_session=LOWEST)

    def stop(self) -> None:
        self._process.stop()

    def look(self) -> bool:
        """Tell whether it is done, and say so once.

        Raises:
            CalledProcessError: it failed.
        """
        status = self._process.returncode
        if status:
            raise subprocess.CalledProcessError(status, "plain_pass.py", self._process.log_tail())
        if status == 0 and not self._told:
            self._told = True
            self._say("one plain Spark pass over the same input is done; its result is what ours must equal")
        return self._told

    def wait(self) -> None:
        """Wait until it is done; nothing else is left to do, so it gives way no more."""
        if not self.look():
            set_session_niceness(self._process.pid, 0)
        wait_until(self.look, TIMEOUT_S, "the plain Spark pass", details=self._process.log_tail)
