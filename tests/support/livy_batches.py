"""A Livy whose batches are processes of this machine."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.service_stand_ins import DONE, FAILED, LivyStandIn


class Batches(LivyStandIn):
    """Starts each batch that it accepts, and says what its process says.

    Args:
        folder: where batches run, and their logs go.
        command: gives the words and the environment of a batch, by its request.
    """

    def __init__(self, folder: Path, command: Callable[[dict[str, Any]], tuple[list[str], dict[str, str]]]) -> None:
        super().__init__()
        self.folder = folder
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._command = command

    def __exit__(self, *about: object) -> None:
        """End all batches, and the service."""
        for driver in list(self.drivers):
            self.kill(driver)
        super().__exit__(*about)

    def accept(self, body: dict[str, Any]) -> str:
        """See `ServiceStandIn`."""
        driver = super().accept(body)
        words, env = self._command(body)
        with (self.folder / f"batch-{driver}.log").open("wb") as log:
            self.processes[driver] = subprocess.Popen(
                words, stdout=log, stderr=log, cwd=self.folder, env=env, start_new_session=True
            )
        return driver

    def look(self, driver: str) -> str:
        """See `ServiceStandIn`."""
        status = self.processes[driver].poll()
        if status is not None and driver in self.drivers:
            self.drivers[driver].state = FAILED if status else DONE
        return self.drivers[driver].state

    def kill(self, driver: str) -> None:
        """See `ServiceStandIn`."""
        super().kill(driver)
        if self.processes[driver].poll() is None:
            os.killpg(self.processes[driver].pid, signal.SIGKILL)
        self.processes[driver].wait()
