"""Report of a chaos run: amount, faults, violations, and the time that healing took."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Violation:
    """Something that may not be."""

    seed: int
    rule: str
    """Broken promise: `exactly once`, `left over`, `missing`, `stuck`, `hands`, `defect`."""
    what: str
    trace: tuple[str, ...] = ()
    """Events before it, oldest first."""

    def __str__(self) -> str:
        return "\n".join([f"CHAOS SEED={self.seed}: {self.rule}: {self.what}", *(f"    {line}" for line in self.trace)])


@dataclass
class Figures:
    """Counts over rounds."""

    rounds: int = 0
    runs: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    """Faults that struck, by kind; a fault whose condition never came is not counted."""
    violations: list[Violation] = field(default_factory=list)
    hands: Counter[str] = field(default_factory=Counter)
    """Acts of a person that the rules ask for, by reason."""
    healed_s: list[float] = field(default_factory=list)
    """From a run's last fault to its success, seconds."""
    calm_s: list[float] = field(default_factory=list)
    """Seconds of each run that nothing struck."""

    def add(self, other: Figures) -> None:
        """Take in what another one counted."""
        self.rounds += other.rounds
        self.runs += other.runs
        self.faults += other.faults
        self.violations += other.violations
        self.hands += other.hands
        self.healed_s += other.healed_s
        self.calm_s += other.calm_s

    def __str__(self) -> str:
        by_rule = Counter(each.rule for each in self.violations)
        wrong = f"violations {len(self.violations)} · stuck {by_rule['stuck']} · hands needed {by_rule['hands']}"
        done = f"rounds {self.rounds} · runs {self.runs} · faults {self.faults.total()}"
        lines = [
            f"{done} · {wrong} (and {self.hands.total()} by the rules)",
            f"time to heal: {_spread(self.healed_s)}; a run that nothing struck: {_spread(self.calm_s)}",
            *(f"  {count:5} {kind}" for kind, count in sorted(self.faults.items())),
            *(f"  by the rules: {count} × {why}" for why, count in sorted(self.hands.items())),
        ]
        return "\n".join(lines)


def _spread(seconds: list[float]) -> str:
    if not seconds:
        return "none"
    ordered = sorted(seconds)
    middle, late = ordered[len(ordered) // 2], ordered[len(ordered) * 95 // 100]
    return f"median {middle:.1f} s, p95 {late:.1f} s, longest {ordered[-1]:.1f} s ({len(ordered)} runs)"
