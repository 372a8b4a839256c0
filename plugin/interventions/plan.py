"""A plan: the effects of an intervention now, in words, and a digest that changes if they do."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict
from enum import StrEnum

from ...checkpoint.documents.entries import InterventionKind
from ...checkpoint.documents.strict_json import Json
from ...checkpoint.rules.rewinds import Rewound
from ...checkpoint.savepoints.savepoint_request import OpenFolder
from ...hooks.airflow_api import AirflowApiHook
from ...hooks.task_refs import TaskRef
from ...storage.records import dataclass


class RunKind(StrEnum):
    """Interventions that Airflow makes in a job's runs; they do not change the head."""

    CHECKPOINT = "checkpoint"
    """Make a run now, and so a checkpoint (semantics T2, T3)."""
    CLEAR = "clear"
    """Clear a failed region, so that it runs again (semantics F1)."""


class InterventionRefusedError(Exception):
    """An intervention was refused; the message says why."""


def changed() -> InterventionRefusedError:
    """Return the error for a job that has changed between the plan and the confirmation."""
    return InterventionRefusedError("The job has changed since you looked, so nothing was done. Look again.")


def sentence(message: str) -> str:
    """Return an error's message as a sentence."""
    return f"{message[:1].upper()}{message[1:]}."


Kind = InterventionKind | RunKind


def begins(kind: Kind) -> bool:
    """Return whether an intervention only starts an operation that takes some time."""
    return kind in (InterventionKind.SAVEPOINT, InterventionKind.STOP, RunKind.CHECKPOINT)


@dataclass(frozen=True, slots=True)
class Plan:
    """The effects of an intervention."""

    kind: Kind
    checkpoint: int | None
    """The checkpoint or savepoint concerned; None: the whole job."""
    title: str
    """The intervention, as an imperative."""
    effects: tuple[str, ...]
    """Effects, one sentence each."""
    rewound: Rewound | None = None
    """For a rewind: its effects as a value."""
    folder: str = ""
    """For a disposal: the savepoint's folder."""
    run_id: str = ""
    """For a clear: the DAG run."""
    tasks: tuple[TaskRef, ...] = ()
    """For a clear: the tasks of the region."""
    failed: tuple[TaskRef, ...] = ()
    """For a clear: the tasks that run again, in the region and behind it."""
    stage: str = ""
    """For a clear: the stage whose region it is."""
    drains: bool = False
    """For a stop: whether a last run is made first."""

    @property
    def begins(self) -> bool:
        return begins(self.kind)

    @property
    def digest(self) -> str:
        """A text that changes whenever the effects do; the effects in words name only the first of many."""
        said = json.dumps(asdict(self))
        return hashlib.sha256(said.encode()).hexdigest()[:32]

    def as_json(self) -> dict[str, Json]:
        effects: list[Json] = list(self.effects)
        about: dict[str, Json] = {"stage": self.stage} if self.stage else {}
        about |= {"drain": True} if self.drains else {}
        return {"kind": self.kind, "checkpoint": self.checkpoint, **about, "effects": effects, "agreed": self.digest}


Region = Mapping[str, Collection[TaskRef]]
"""The tasks of each stage that runs again with a stage, including itself; empty if the DAG has no such stage."""


@dataclass(frozen=True, slots=True)
class Means:
    """Other resources that an intervention uses besides the job."""

    target: str | None
    """The DAG's target for the job's savepoints."""
    open_folder: OpenFolder
    """Opens the target, and the folders above it."""
    api: AirflowApiHook
    """Airflow's API, called as the user."""
    dag_id: str
    """The DAG that makes the job's checkpoints."""
    region_of: Callable[[str], Region]
    """Returns the tasks that run again with a stage."""
