"""A source, a listener and a master hook for tests: what they saw can be compared with what must have happened."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from airflow_cairn.checkpoint import MasterHook
from airflow_cairn.checkpoint.documents.strict_json import Json
from airflow_cairn.checkpoint.extensions.committables import CheckpointNotice
from airflow_cairn.checkpoint.extensions.contracts import RewindNotice
from airflow_cairn.checkpoint.source import RunFacts
from airflow_cairn.checkpoint.sources.values import Offsets


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


class Ids(MasterHook):
    """A range of ids for each epoch, out of a counter that stands for the database's sequence."""

    def __init__(self, name: str = "ids", *, calls: list[tuple[Any, ...]] | None = None) -> None:
        self._name = name
        self.next = 1
        self.calls: list[tuple[Any, ...]] = [] if calls is None else calls
        self.answer: Callable[[], Any] | None = None
        self.fails_in: str | None = None

    @property
    def name(self) -> str:
        return self._name

    def _do(self, *what: Any) -> None:
        self.calls.append(what)
        if self.fails_in == what[0]:
            raise ConnectionError("the database is down")

    def trigger(self, checkpoint: int, timestamp_ms: int) -> Any:
        self._do("trigger", checkpoint, timestamp_ms)
        if self.answer is not None:
            return self.answer()
        first, self.next = self.next, self.next + 10
        return {"first": first, "next": self.next}

    def restore(self, checkpoint: int, state: Any) -> None:
        self._do("restore", checkpoint, state)
        self.next = state.get("next", 1) if isinstance(state, dict) else 1

    def rewound(self, notice: RewindNotice) -> None:
        self._do("rewound", notice.to, notice.through)

    def reset(self) -> None:
        self._do("reset")
        self.next = 1

    def close(self) -> None:
        self._do("close")
