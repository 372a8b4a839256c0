"""Terminal of the demonstration: lines with the time, and on a terminal the table below them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.live import Live

from .board import Board


class Terminal:
    """Prints to standard output; draws tables only where that is a terminal."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(highlight=False, soft_wrap=True)
        self._begin_s = time.monotonic()

    @property
    def is_interactive(self) -> bool:
        """Whether a person looks at it, who may press keys."""
        return self._console.is_terminal

    def seconds(self) -> float:
        return time.monotonic() - self._begin_s

    def say(self, line: str) -> None:
        self.print(f"[{self.seconds():6.1f} s] {line}")

    def print(self, text: str = "") -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)
        self._console.file.flush()

    @contextmanager
    def showing(self, board: Board) -> Iterator[None]:
        """Keep a table below what is printed within the block, and leave its last state there."""
        if not self._console.is_terminal:
            yield
            return
        with Live(board, console=self._console, refresh_per_second=4):
            yield
