"""A source and a listener for tests: what they saw can be compared with what must have happened."""

from __future__ import annotations

from dataclasses import dataclass, field

from airflow_cairn.checkpoint.codec import Json
from airflow_cairn.checkpoint.committables import CheckpointNotice
from airflow_cairn.checkpoint.source import RunFacts
from airflow_cairn.checkpoint.source_values import Offsets


def ledger(until: int) -> Offsets:
    """A source of the numbers 0, 1, 2, …, of which those below `until` have come in by now."""

    def ask(position: Json, _run: RunFacts) -> tuple[Json, Json]:
        return list(range(int(str(position or 0)), until)), until

    return Offsets(ask, name="ledger")


@dataclass
class Ear:
    """A listener that remembers every call, in the order in which it came."""

    name: str
    heard: list[CheckpointNotice] = field(default_factory=list)

    def notify_checkpoint_complete(self, notice: CheckpointNotice) -> None:
        self.heard.append(notice)

    def notify_checkpoint_aborted(self, notice: CheckpointNotice) -> None:
        self.heard.append(notice)
