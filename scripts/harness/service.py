"""The base of every real part of the tests: processes with a folder of their own, which leave nothing behind."""

from __future__ import annotations

import shutil
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Self

import psutil

from .ports import free_port, is_listening
from .processes import ProcessDiedError, RealProcess, stop_all


class Service(ABC):
    """Runs from `with`, or from `start()`, to `stop()`; one that fails to start is stopped.

    Without `root` it has a temporary folder, which `stop()` removes.
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

    def start_listening(
        self, name: str, command: Callable[[int], Sequence[str | Path]], env: Mapping[str, str] | None = None
    ) -> int:
        """Start a server on a free port and wait until it listens; a port that another program takes is tried again.

        Returns:
            The port.

        Raises:
            ProcessDiedError: it ended at once, three times.
        """
        for tries_left in (2, 1, 0):
            port = free_port()
            process = RealProcess(name, [*command(port)], self.root / f"{name}.log", env=env)
            try:
                process.wait_until(lambda port=port: is_listening(port), 300, f"{name} on port {port}")  # type: ignore[misc]
            except ProcessDiedError:
                process.stop()
                if not tries_left:
                    raise
            else:
                self._processes[name] = process
                return port
        raise AssertionError("the last try returns or raises")

    def stop(self) -> None:
        """End every process and all below it, and remove the folder if it was made here."""
        stop_all(list(self._processes.values()), grace=self.stop_grace_s)
        self._processes.clear()
        if self._own_root:
            shutil.rmtree(self.root, ignore_errors=True)

    def family(self) -> list[psutil.Process]:
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
