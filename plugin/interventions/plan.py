"""A plan: what would be done now, in words, and what differs if something else would be done."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum

from ...checkpoint.decisions.rewinds import Rewound
from ...checkpoint.documents.entries import InterventionKind
from ...checkpoint.documents.strict_json import Json
from ...checkpoint.savepoints.savepoint_request import OpenFolder
from ...hooks.airflow_api import AirflowApiHook
from ...hooks.clear_body import TaskRef


class RunKind(StrEnum):
    """What a person may have Airflow do with a job's runs; the head does not change by it."""

    CHECKPOINT = "checkpoint"
    """Make a run now, and so a checkpoint (semantics T2, T3)."""
    CLEAR = "clear"
    """Let a region run again that has failed (semantics F1)."""


class InterventionRefusedError(Exception):
    """What a person wants done is not done; the text says why."""


def changed() -> InterventionRefusedError:
    """Give the error for a job that has changed between the look and the confirmation."""
    return InterventionRefusedError("The job has changed since you looked, so nothing was done. Look again.")


def sentence(message: str) -> str:
    """Give the message of an error as a sentence."""
    return f"{message[:1].upper()}{message[1:]}."


Kind = InterventionKind | RunKind
"""What a person may want."""


def begins(kind: Kind) -> bool:
    """Tell whether an intervention only begins an operation that goes on for some time."""
    return kind in (InterventionKind.SAVEPOINT, InterventionKind.STOP, RunKind.CHECKPOINT)


@dataclass(frozen=True, slots=True)
class Plan:
    """What an intervention would do."""

    kind: Kind
    checkpoint: int | None
    """The checkpoint or savepoint that it is about; None: it is about the job."""
    title: str
    """What is wanted, as an order."""
    effects: tuple[str, ...]
    """What it would do, one sentence each."""
    rewound: Rewound | None = None
    """Of a rewind: the same as a value."""
    folder: str = ""
    """Of a savepoint that is disposed of: its folder."""
    run_id: str = ""
    """Of a clear: the DAG run."""
    tasks: tuple[TaskRef, ...] = ()
    """Of a clear: the tasks of the region."""
    failed: tuple[TaskRef, ...] = ()
    """Of a clear: those that run again, of the region and behind it."""
    stage: str = ""
    """Of a clear: the stage whose region it is."""
    drains: bool = False
    """Of a stop: whether a last run is made first."""

    @property
    def begins(self) -> bool:
        """Whether what is done only begins an operation that goes on for some time."""
        return begins(self.kind)

    @property
    def digest(self) -> str:
        """What differs whenever something else would be done: the effects name only the first of many."""
        said = json.dumps(asdict(self))
        return hashlib.sha256(said.encode()).hexdigest()[:32]

    def as_json(self) -> dict[str, Json]:
        """Give it as plain JSON values."""
        effects: list[Json] = list(self.effects)
        about: dict[str, Json] = {"stage": self.stage} if self.stage else {}
        about |= {"drain": True} if self.drains else {}
        return {"kind": self.kind, "checkpoint": self.checkpoint, **about, "effects": effects, "agreed": self.digest}


Region = Mapping[str, Collection[TaskRef]]
"""The tasks of each stage that runs again with a stage, that one too; empty where the DAG has no such stage."""


@dataclass(frozen=True, slots=True)
class Means:
    """What an intervention uses beside the job."""

    target: str | None
    """Where the DAG has the job's savepoints made."""
    open_folder: OpenFolder
    """Opens it, and what lies above."""
    api: AirflowApiHook
    """Airflow's API, asked as the person."""
    dag_id: str
    """The DAG that makes the job's checkpoints."""
    region_of: Callable[[str], Region]
    """Gives the tasks that run again with a stage."""
