"""The table at the bottom of a terminal: the stages of the epoch that runs, each with a bar, and what was killed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from .strike import SERVER

CELLS = 30
"""Greatest width of a bar."""
SHORTEST_SCALE_S = 12.0
"""The whole width stands for this many seconds, or for the time since the trigger if that is longer."""


class State(Enum):
    """State of a stage: the word that a reader sees, and its colour."""

    WAITS = ("waits", "dim")
    RUNS = ("runs", "yellow")
    ACKNOWLEDGED = ("acknowledged", "green")
    CARRIED_OVER = ("carried over", "cyan")
    KILLED = ("killed", "bold red")


@dataclass
class Bar:
    """One stage of the attempt that is shown."""

    state: State = State.WAITS
    begun_s: float = 0.0
    """On the clock of the board."""
    ended_s: float | None = None


@dataclass
class Board:
    """The content of the table. The watcher of the job fills it in, and a terminal draws it."""

    stages: Sequence[str]
    clock: Callable[[], float]
    title: str = "no checkpoint is pending"
    story: list[str] = field(default_factory=list)
    """Lines that say what was killed, and what came back."""
    _bars: dict[str, Bar] = field(default_factory=dict)
    _triggered_s: float = 0.0
    _completed_s: float | None = None
    _killed_s: float | None = None

    def triggered(self, title: str) -> None:
        self.title, self._triggered_s, self._completed_s = title, self.clock(), None
        self._bars = {stage: Bar() for stage in self.stages}

    def waiting(self) -> list[str]:
        return [stage for stage, bar in self._bars.items() if bar.state is State.WAITS]

    def begun(self, stage: str) -> None:
        self._bars[stage].state, self._bars[stage].begun_s = State.RUNS, self.clock()

    def acknowledged(self, stage: str, *, is_carried_over: bool) -> None:
        """Show that a stage has acknowledged, in this attempt or in the one before."""
        bar, now = self._bars[stage], self.clock()
        if is_carried_over or bar.state is State.WAITS:  # it was done between two looks
            bar.begun_s = now
        bar.state, bar.ended_s = State.CARRIED_OVER if is_carried_over else State.ACKNOWLEDGED, now

    def killed(self, what: str) -> None:
        """Show that a stage was killed, or all that run with the `SERVER` that they share."""
        self._killed_s = self.clock()
        self.story.append(f"SIGKILL to {'the Spark server' if what == SERVER else what} in {self.title}")
        for stage, bar in self._bars.items():
            if bar.state is State.RUNS and what in (stage, SERVER):
                bar.state, bar.ended_s = State.KILLED, self._killed_s

    def completed(self) -> None:
        self.title, self._completed_s = f"{self.title}, completed", self.clock()
        for stage, bar in self._bars.items():
            if bar.state in (State.WAITS, State.RUNS):  # the last acknowledgement completes: no look comes in between
                self.acknowledged(stage, is_carried_over=False)
        if self._killed_s is not None:
            ran = ", ".join(stage for stage, bar in self._bars.items() if bar.state is State.ACKNOWLEDGED)
            kept = ", ".join(stage for stage, bar in self._bars.items() if bar.state is State.CARRIED_OVER)
            took_s = self.clock() - self._killed_s
            self.story.append(
                f"the epoch completed {took_s:.1f} s later: the next attempt ran {ran}, and kept {kept or 'nothing'}"
            )
            self._killed_s = None

    def rows(self) -> list[tuple[str, str, str, State]]:
        """Give each stage's name, its bar as text, what is said beside it, and its state."""
        now = self.clock() if self._completed_s is None else self._completed_s
        scale = max(SHORTEST_SCALE_S, now - self._triggered_s) / CELLS
        rows: list[tuple[str, str, str, State]] = []
        for stage, bar in self._bars.items():
            if bar.state is State.WAITS:
                rows.append((stage, "·" * CELLS, bar.state.value[0], bar.state))
                continue
            end_s = now if bar.ended_s is None else bar.ended_s
            before = min(CELLS - 1, int((bar.begun_s - self._triggered_s) / scale))
            length = min(CELLS - before, max(1, round((end_s - bar.begun_s) / scale)))
            cells = "·" * before + "█" * length + "·" * (CELLS - before - length)
            took = "" if bar.state is State.CARRIED_OVER else f" {end_s - bar.begun_s:4.1f} s"
            rows.append((stage, cells, f"{bar.state.value[0]}{took}", bar.state))
        return rows

    def __rich__(self) -> RenderableType:
        """Draw it, as a terminal asks for several times a second."""
        table = Table(title=self.title, title_justify="left", show_header=False, box=None, padding=(0, 1))
        for stage, cells, said, state in self.rows():
            table.add_row(stage, Text(cells, style=state.value[1]), Text(said, style=state.value[1]))
        return Group(Text(""), table, *(Text(line, style="bold") for line in self.story))
