"""The Airflow layer without an Airflow: contexts as the task SDK gives them, and a stage that acknowledges."""

from __future__ import annotations

import itertools
import uuid
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from airflow_cairn.checkpoint import CheckpointConfig, Coordinator, TriggerRequest
from airflow_cairn.checkpoint.answers import Submit, Triggered
from airflow_cairn.checkpoint.documents.acknowledgement import DeclineDocument
from airflow_cairn.checkpoint.documents.attempt import Handover, Owner, Slice, StageSpec
from airflow_cairn.checkpoint.documents.layout import epoch_name
from airflow_cairn.checkpoint.reasons import Reason
from airflow_cairn.storage import open_store
from tests.support.acking import ack_of

_ids = itertools.count(1)


@dataclass
class Ti:
    """A task instance, as far as Cairn looks at one; one object a try."""

    dag_id: str = "flights"
    run_id: str = "scheduled__2001-01-01T00:00:00+00:00"
    task_id: str = "epoch.routes"
    map_index: int | None = -1
    try_number: int = 1
    max_tries: int = 1
    id: uuid.UUID = field(default_factory=lambda: uuid.UUID(int=next(_ids)))
    states: dict[str, str | BaseException] = field(default_factory=dict)

    xcoms: dict[str, Any] = field(default_factory=dict)
    task_states: dict[tuple[str, int], str] = field(default_factory=dict)
    """Of the run's other task instances, by task and map index; `running` where none is given."""
    stats_tags: dict[str, str] = field(default_factory=dict)
    """Tags of the provider's own counters."""
    paused: bool = False
    """Whether the DAG is, as the API server says."""
    asked_states: list[list[str]] = field(default_factory=list)
    """The tasks whose states were asked for, call by call."""

    def xcom_push(self, key: str, value: Any) -> None:
        """Keep what the task says besides its result."""
        self.xcoms[key] = value

    def get_task_states(self, dag_id: str, task_ids: list[str], run_ids: list[str]) -> dict[str, Any]:
        """Say what the API server would: instance 1 of `b` is named `b_1`."""
        assert (dag_id, run_ids) == (self.dag_id, [self.run_id])
        self.asked_states.append(task_ids)
        named = {
            task if index < 0 else f"{task}_{index}": state
            for (task, index), state in self.task_states.items()
            if task in task_ids
        }
        return {self.run_id: {**{task: "running" for task in task_ids if (task, 0) not in self.task_states}, **named}}

    def get_dag(self, dag_id: str) -> SimpleNamespace:
        """Say what the API server would."""
        assert dag_id == self.dag_id
        return SimpleNamespace(is_paused=self.paused)

    def get_dagrun_state(self, dag_id: str, run_id: str) -> str:
        """Say what the API server would."""
        found = self.states[run_id]
        if isinstance(found, BaseException):
            raise found
        return found


@dataclass
class DagRun:
    """The facts of a DAG run that come with the context."""

    data_interval_start: datetime | None = None
    data_interval_end: datetime | None = None
    run_type: str = "manual"
    conf: dict[str, Any] | None = None


def context(ti: Ti, **more: Any) -> Any:
    """Make a context."""
    return {"ti": ti, "dag_run": DagRun()} | more


@dataclass
class Job:
    """A job in a folder, and the parts that others play in it."""

    folder: Path
    name: str = "flights"

    @property
    def storage(self) -> str:
        """The storage URI."""
        return f"file://{self.folder}"

    @property
    def coordinator(self) -> Coordinator:
        """A coordinator, as another process would open one."""
        return Coordinator(open_store(self.storage), self.name)

    def trigger(
        self,
        run_id: str,
        *stages: str | StageSpec,
        config: CheckpointConfig | None = None,
        reads: Slice = Slice(),  # noqa: B008 - frozen
    ) -> int:
        """Trigger a run's checkpoint; gives its id."""
        answer = self.coordinator.trigger(
            TriggerRequest(
                epoch=epoch_name(run_id),
                slice=reads,
                stages=tuple(
                    each if isinstance(each, StageSpec) else StageSpec(each) for each in stages or ("routes",)
                ),
                config=config or CheckpointConfig(),
                owner=Owner(self.name, run_id),
            )
        )
        assert isinstance(answer, Triggered)
        return answer.pending.checkpoint

    def begin(self, run_id: str, stage: str = "routes", claimant: str = "somebody") -> Handover:
        """Claim a stage's execution."""
        answer = self.coordinator.begin(epoch_name(run_id), stage, claimant)
        assert isinstance(answer, Submit), answer
        return answer.handover

    def acknowledge(self, handover: Handover) -> None:
        """Acknowledge without any state (semantics A4)."""
        self.coordinator.acknowledge(ack_of(handover))

    def decline(self, handover: Handover, detail: str, reason: Reason = Reason.CHECKPOINT_DECLINED) -> None:
        """Decline."""
        self.coordinator.decline(
            DeclineDocument(
                job=handover.job,
                checkpoint=handover.checkpoint,
                epoch=handover.epoch,
                stage=handover.stage,
                token=handover.token,
                reason=reason,
                detail=detail,
            )
        )

    def complete(self, run_id: str, reads: Slice = Slice()) -> int:  # noqa: B008 - frozen
        """Run a whole epoch of the one stage `routes`; gives its checkpoint."""
        checkpoint = self.trigger(run_id, reads=reads)
        self.acknowledge(self.begin(run_id))
        self.coordinator.complete(checkpoint)
        return checkpoint
