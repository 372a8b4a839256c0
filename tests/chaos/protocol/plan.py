"""Plan of a seed: the kind of a job, its runs, and the faults that strike each of them.

A fault waits for what it is to meet: a try's nth request, a driver that has begun, a stage that has acknowledged. No
clock decides, so a seed names the same faults on any machine, however the processes overtake each other.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from typing import Any

from tests.chaos.protocol.outage import AWAY, REFUSES

TRIGGER, SENSOR = "trigger", "sensor"
DAY_MS = 86_400_000

SHAPES: dict[str, tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...]] = {
    "line": (("src", (), ()), ("left", ("src",), ()), ("end", ("left",), ())),
    "piped": (("src", (), ()), ("left", ("src",), ("src",)), ("end", ("left",), ())),
    "diamond": (("src", (), ()), ("left", ("src",), ("src",)), ("right", ("src",), ()), ("end", ("left", "right"), ())),
    "two": (("src", (), ()), ("left", ("src",), ())),
}
"""Stages: a name, what it reads, and what of that by a pipelined exchange."""

LAUNCHERS = {1: "service", 3: "deferrable service", 4: "program"}
"""Launchers of drivers, by the seed's last digit in base five: no dice, so a seed's faults stay as they were.

Those of a service outlive their tasks, and a retry or the triggerer waits for one that lives. A program has no block:
its task acknowledges.
"""

REQUESTS = {TRIGGER: 12, SENSOR: 20, "stage": 8, "driver": 20, "callback": 8, "cleaner": 12, "compactor": 12}
"""About the number of requests that each sends; a strike behind its last one does not come."""


@dataclass(frozen=True)
class Fault:
    """One thing that happens to a run."""

    kind: str
    task: str
    """The task it happens to, or whose success it waits for."""
    told: dict[str, Any] = field(default_factory=dict)
    """Further facts for the process: a strike, a clock that is off."""
    until: str = ""
    """When a process that was stopped goes on: `soon`, `next` (its task has run again) or `end` (its run has ended)."""


@dataclass(frozen=True)
class RunPlan:
    """One run and its faults."""

    epoch: str
    faults: tuple[Fault, ...]


@dataclass(frozen=True)
class JobPlan:
    """One job."""

    seed: int
    job: str
    shape: str
    config: dict[str, Any]
    overlap: int
    """Number of runs that may be under way at once."""
    on_disk: bool
    """Whether its storage is a folder of a small disk; else it is a bucket."""
    source: bool
    """Whether a source says what a run reads; else it is the run's window."""
    runs: tuple[RunPlan, ...]
    launcher: str = ""
    """A value of `LAUNCHERS`; empty: a driver with a block, whose task waits for it."""

    @property
    def stages(self) -> tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...]:
        """The job's stages."""
        return SHAPES[self.shape]


def job_plan(seed: int, runs: int) -> JobPlan:
    """Draw a job.

    Args:
        seed: what decides everything.
        runs: how many runs it has.
    """
    dice = random.Random(f"chaos {seed}")
    shape = dice.choice(list(SHAPES))
    overlap = dice.choice((1, 1, 2))
    config = {
        "timeout_ms": 600_000,
        "min_pause_ms": dice.choice((0, 0, 300)),
        "retained": dice.choice((1, 2, 3)),
        "max_concurrent_checkpoints": dice.choice((1, overlap)),
        "tolerable_failed_checkpoints": dice.choice((0, 5)),
        "failover": dice.choice(("region", "region", "full")),
    }
    stages = [uid for uid, _, _ in SHAPES[shape]]
    on_disk, source = dice.random() < 0.2, dice.random() < 0.3
    not_here = {"store away", "store refuses"} if on_disk else {"disk full"}
    # Runs that a rewind undid run again in order, and of two that are cleared at once any may come first.
    not_here |= {"rewind"} if source else set()
    kinds = {name: weight for name, weight in KINDS if name not in not_here}
    planned = tuple(
        RunPlan(f"e{number:04d}", tuple(_fault(dice, kinds, stages) for _ in range(dice.choice((0, 1, 1, 2, 3)))))
        for number in range(1, runs + 1)
    )
    return JobPlan(seed, f"job-{seed}", shape, config, overlap, on_disk, source, planned, LAUNCHERS.get(seed % 5, ""))


def calm_plan(seed: int, runs: int) -> JobPlan:
    """Draw a job that nothing strikes."""
    plan = job_plan(seed, runs)
    return replace(plan, runs=tuple(RunPlan(run.epoch, ()) for run in plan.runs))


def _fault(dice: random.Random, kinds: dict[str, int], stages: list[str]) -> Fault:
    kind = dice.choices(list(kinds), list(kinds.values()))[0]
    stage = dice.choice(stages)
    until = dice.choice(("soon", "next", "end"))
    how, _, who = kind.partition(" ")
    if how in ("kill", "stop") and (who in REQUESTS or who == "task"):
        told: dict[str, Any] = {
            "driver_strike" if who == "driver" else "strike": _strike(dice, how, "stage" if who == "task" else who)
        }
        return Fault(
            kind, who if who in (TRIGGER, SENSOR) else stage, told, {"driver": "soon", "callback": ""}.get(who, until)
        )
    if kind == "kill task, driver stops":
        return Fault(kind, stage, {"driver_strike": _strike(dice, "stop", "driver")}, until)
    if kind in ("clock ahead", "clock behind"):
        skew_ms = DAY_MS if kind == "clock ahead" else -DAY_MS
        return Fault(kind, dice.choice((TRIGGER, SENSOR, *stages)), {"skew_ms": skew_ms})
    if kind in ("store away", "store refuses"):
        how = dice.choice(AWAY if kind == "store away" else REFUSES)
        told = {"how": how, "request": dice.randrange(1, 10), "times": dice.choice((1, 2, 12))}
        return Fault(kind, dice.choice((TRIGGER, SENSOR, *stages)), told)
    if kind == "disk full":
        return Fault(kind, dice.choice((TRIGGER, SENSOR, *stages)))
    if kind == "handover deleted":
        return Fault(kind, stage, {"driver_strike": _strike(dice, "kill", "driver")})
    return Fault(kind, stage)


def _strike(dice: random.Random, how: str, role: str) -> dict[str, Any]:
    return {"how": how, "request": dice.randrange(1, REQUESTS[role] + 1), "after": dice.random() < 0.5}


KINDS: tuple[tuple[str, int], ...] = (
    ("kill trigger", 3),
    ("stop trigger", 2),
    ("kill sensor", 4),
    ("stop sensor", 3),
    ("kill task", 5),
    ("stop task", 3),
    ("kill driver", 6),
    ("stop driver", 2),
    ("kill task, driver stops", 5),
    ("kill task, driver goes on", 4),
    ("kill callback", 2),
    ("kill cleaner", 2),
    ("decline", 3),
    ("clock ahead", 3),
    ("clock behind", 1),
    ("store away", 4),
    ("store refuses", 3),
    ("disk full", 8),
    ("two tries", 3),
    ("two sensors", 3),
    ("clear stage", 4),
    ("clear run", 2),
    ("cleaner", 2),
    ("compaction", 6),
    ("kill compactor", 3),
    ("stop compactor", 2),
    ("pause", 2),
    ("savepoint", 3),
    ("prune", 3),
    ("handover deleted", 3),
    ("stop with savepoint", 2),
    ("rewind", 2),
)
"""Every kind of fault, and how often it is drawn."""


def _one_by_one(seed: int, *faults: Fault) -> JobPlan:
    runs = tuple(RunPlan(f"e{number:04d}", (fault,)) for number, fault in enumerate(faults, 1))
    return replace(job_plan(seed, 0), runs=runs)


ALONE = (
    _one_by_one(
        123,
        Fault("store refuses", "src", {"how": "403", "request": 1, "times": 1}),
        Fault("clock ahead", SENSOR, {"skew_ms": DAY_MS}),
        Fault("handover deleted", "src", {"driver_strike": {"how": "kill", "request": 1, "after": False}}),
        Fault("compaction", "left"),
        Fault("prune", "src"),
    ),
    _one_by_one(110, Fault("disk full", TRIGGER)),
    _one_by_one(
        161,
        Fault(
            "kill task, driver stops", "src", {"driver_strike": {"how": "stop", "request": 1, "after": False}}, "end"
        ),
    ),
)
"""Jobs whose runs do not overlap. Each run has one fault, which waits for what surely comes: any machine feels it."""

OF_THE_STORE = _one_by_one(
    123,
    Fault("kill driver", "src", {"driver_strike": {"how": "kill", "request": 3, "after": True}}),
    Fault("store away", "src", {"how": "answer lost", "request": 1, "times": 2}),
    Fault("store refuses", "left", {"how": "403", "request": 1, "times": 1}),
)
"""Job whose faults strike single requests."""
