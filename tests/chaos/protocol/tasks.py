"""The tasks of a run, as Airflow keeps them: states, tries, and which process is which try."""

from __future__ import annotations

import itertools
import time
from dataclasses import dataclass, field

from tests.chaos.protocol.outage import Outage
from tests.chaos.protocol.plan import Fault

RETRIES = 6

_claimants = itertools.count(1)


@dataclass
class Task:
    """One task of one run."""

    name: str
    upstream: tuple[str, ...]
    state: str = "none"
    """`none`, `running`, `failing` (its callback runs), `retry`, `success` or `failed`."""
    claimant: str = field(default_factory=lambda: f"try-{next(_claimants)}")
    """The id of its task instance: another one for each try."""
    tries: int = 0
    """Since it was last cleared."""
    number: int = 0
    """Number of its try, counted on over clears."""
    first: int = 1
    """Number of the first try after its newest clear, as far as Airflow shows that."""
    by_hand: bool = False
    """Whether a person has cleared it before this try."""
    came_back: bool = False
    """Whether this try has put itself off."""
    process: int | None = None
    """Number of the process that runs the task now."""
    due: int = 0
    """The quiet moment from which on it may be tried again."""
    idle: int = 0
    """Number of returns in a row for nothing, while nothing else of its run was on."""

    def renew(self) -> None:
        """Be another task instance."""
        self.claimant, self.by_hand, self.came_back, self.idle = f"try-{next(_claimants)}", False, False, 0

    def clear(self, *, by_hand: bool) -> None:
        """Be as if never run."""
        self.renew()
        if self.state != "running":  # of a task that runs Airflow renews no budget
            self.first = self.number + 1
        self.state, self.tries, self.by_hand, self.process, self.due = "none", 0, by_hand, None, 0

    @property
    def ended(self) -> bool:
        """Whether it does not run again by itself."""
        return self.state in ("success", "failed")


@dataclass
class Run:
    """One run."""

    epoch: str
    tasks: dict[str, Task]
    faults: list[Fault]
    """Faults that have still to come."""
    number: int
    started: float = field(default_factory=time.monotonic)
    struck: float | None = None
    """When the last fault came."""
    ended: bool = False
    cleared: int = 0
    """Number of times that a person had to clear the run."""

    @property
    def patient(self) -> bool:
        """Whether its tasks wait long for a worker, so that other runs pass it by: every fourth one."""
        return self.number % 4 == 1

    def take(self, kind: str, task: str) -> Fault | None:
        """Give a fault of that kind that waits for the task, once."""
        found = next((each for each in self.faults if each.kind == kind and each.task == task), None)
        if found is not None:
            self.faults.remove(found)
        return found


@dataclass
class Process:
    """A process that was started."""

    number: int
    role: str
    run: Run | None
    task: Task | None
    claimant: str
    faults: tuple[Fault, ...] = ()
    """Faults of this process."""
    outage: Outage | None = None
    """Strikes at its requests."""
    pid: int = 0
    driver: int = 0
    """Process of the driver of a stage's task, 0 as long as there is none."""
    answer: str = ""
    over: bool = False
    standing: set[int] = field(default_factory=set)
    """Stopped processes: its own and its driver, as far as they stand still."""
    ghost: bool = False
    """Whether nobody listens to it: a second one beside that of the task, or one that Airflow takes for dead."""

    @property
    def until(self) -> str:
        """When it goes on, if it is stopped."""
        return next((each.until for each in self.faults if each.until), "soon")

    def has(self, kind: str) -> bool:
        """Tell whether a fault of that kind is its own."""
        return any(each.kind == kind for each in self.faults)
