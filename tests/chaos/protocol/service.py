"""A service that runs a job's drivers: they outlive their tasks, and each is known by its execution's token."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import psutil

from airflow_cairn.checkpoint.documents.attempt import Handover
from scripts.harness.wait import wait_until


@dataclass(frozen=True)
class Service:
    """The domain's `Drivers`, over a folder of process ids.

    Args:
        folder: has a file for each driver.
    """

    folder: Path

    def accept(self, token: str) -> None:
        """Be the driver of an execution from now on."""
        me, new = psutil.Process(), self.folder / f"{token}.new"
        new.write_text(f"{me.pid} {me.create_time()}")
        new.rename(self.folder / token)

    def find(self, token: str) -> psutil.Process | None:
        """Give the process of a driver that lives; its id alone may be another's by now."""
        try:
            pid, began = (self.folder / token).read_text().split()
            found = psutil.Process(int(pid))
            lives = found.create_time() == float(began) and found.status() != psutil.STATUS_ZOMBIE
        except (FileNotFoundError, psutil.NoSuchProcess):
            return None
        return found if lives else None

    def end(self, token: str) -> None:
        """Kill a driver that lives."""
        found = self.find(token)
        if found is not None:
            found.kill()

    def wait(self, token: str) -> None:
        """Wait for a driver's end."""
        wait_until(lambda: self.find(token) is None, 600, "the end of a driver")

    def wait_for_start(self, token: str) -> None:
        """Wait until a submission has its answer."""
        wait_until((self.folder / token).exists, 600, "the service to accept a driver")

    def outlive(self) -> bool:
        """See `Drivers`."""
        return True

    def driver_loss_reason(self, handover: Handover) -> str | None:
        """See `Drivers`."""
        return None if self.find(handover.token) else "the service has no driver of it that lives"
