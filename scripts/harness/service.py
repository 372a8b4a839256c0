"""What every real part of the tests is: processes with a folder of their own, and nothing left afterwards."""

from __future__ import annotations

import shutil
import tempfile
from abc import ABC, abstractmethod
from pathlib import Path
from typing import ClassVar, Self

import psutil

from .processes import RealProcess, stop_all


class Service(ABC):
    """Runs from `with`, or from `start()`, to `stop()`; one that fails to start is stopped.

    Args:
        name: for the name of a temporary folder.
        root: the folder; None for a temporary one that `stop()` removes.
    """

    stop_grace_s: ClassVar[float] = 3.0
    """Seconds between SIGTERM and SIGKILL."""

    def __init__(self, name: str, root: Path | None) -> None:
        self._own_root = root is None
        self.root = Path(tempfile.mkdtemp(prefix=f"cairn-{name}-")) if root is None else root.absolute()
        self._processes: dict[str, RealProcess] = {}

    @abstractmethod
    def start(self) -> None:
        """Start every process and wait until the service answers."""

    def stop(self) -> None:
        """End every process and all below it, and remove the folder if it was made here."""
        stop_all(list(self._processes.values()), grace=self.stop_grace_s)
        self._processes.clear()
        if self._own_root:
            shutil.rmtree(self.root, ignore_errors=True)

    def family(self) -> list[psutil.Process]:
        """Give all processes of the service that run now, whatever they started included."""
        return [member for process in self._processes.values() for member in process.family()]

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
