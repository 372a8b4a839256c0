"""One thing that is wrong with a stored checkpoint (semantics R1)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Damage:
    """One thing wrong with a completed checkpoint."""

    checkpoint: int
    key: str
    """Relative to the job's prefix."""
    problem: str

    def __str__(self) -> str:
        """Say it in one line."""
        return f"checkpoint {self.checkpoint}: {self.key}: {self.problem}"
