"""A cluster that is asked what became of a driver."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from airflow_cairn.checkpoint.documents.attempt import Handover


@dataclass
class Cluster:
    """A cluster that is asked what became of a driver."""

    says: str | None = None
    """Why the driver is gone; None: it lives."""
    meanwhile: Callable[[], object] | None = None
    """Call made while the cluster is asked for the first time."""
    outlives: bool = True
    """Whether drivers outlive their tasks by now."""
    asked: list[str] = field(default_factory=list)
    """The tokens of the executions that it was asked about."""

    def outlive(self) -> bool:
        return self.outlives

    def driver_loss_reason(self, handover: Handover) -> str | None:
        self.asked.append(handover.token)
        happens, self.meanwhile = self.meanwhile, None
        if happens is not None:
            happens()
        return self.says
