"""What other tasks ask of a stage's task, whatever it does when it runs."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import BaseOperator

from ...checkpoint import CheckpointConfig
from ...checkpoint.errors import InvalidConfigError
from ...checkpoint.views.config_fields import config_json
from ...checkpoint.views.drawn_stages import DrawnStage
from ...storage.names import shorten
from .exchange import Exchange

if TYPE_CHECKING:
    from airflow.sdk import Context

Push = Callable[[str, Any], None]
"""Keeps a value as an XCom of a task: its key, and the value."""


class StageOperator(SparkSubmitOperator):
    """The declared side of a stage: `SparkEpochOperator` fills it in and runs it.

    The DAG's topology is read off these attributes, and the stage that runs asks the topology for its siblings.
    """

    storage: str | None
    job: str | None
    aws_conn_id: str | None
    airflow_api_conn_id: str | None
    uid: str
    parallelism: int | None
    max_parallelism: int | None
    reads: tuple[str, ...]
    exchange: Exchange | None


class TriggerOperator(BaseOperator):
    """The declared side of the task that triggers a job's checkpoints: `TriggerCheckpointOperator` runs it."""

    storage: str | None
    job: str | None
    aws_conn_id: str | None
    config: CheckpointConfig

    @property
    def cairn_job(self) -> str:
        """What the page in Airflow knows of the job beside its storage and name, which are template fields: JSON."""
        stages = [asdict(stage) for stage in self.drawn_stages()]
        return json.dumps({"aws_conn_id": self.aws_conn_id, "config": config_json(self.config), "stages": stages})

    @classmethod
    def get_serialized_fields(cls) -> frozenset[str]:
        """Let the serialised DAG hold `cairn_job`; by it the page finds the tasks that trigger, subclasses too."""
        return frozenset({*super().get_serialized_fields(), "cairn_job"})

    @abstractmethod
    def drawn_stages(self) -> Sequence[DrawnStage]:
        """Give the stages as the whole DAG file declares them, to be drawn.

        Raises:
            InvalidConfigError: an exchange contradicts another, or joins no two stages.
        """

    @abstractmethod
    def trigger(self, context: Context, push: Push) -> dict[str, Any]:
        """Make the checkpoint of a run's epoch pending, in whichever task's process (semantics T9).

        Args:
            context: Airflow's, of the task that does it; the templates are rendered.
            push: keeps a value under a key, as an XCom of the task that triggers.

        Returns:
            The task's result.
        """

    @abstractmethod
    def check_turn(self, event: Mapping[str, Any]) -> None:
        """Check how the wait for a place has ended; the request is to be asked again.

        Args:
            event: what the trigger of a deferred task yielded.

        Raises:
            CheckpointError: the trigger could not go on.
        """


def stage_uid(uid: str, map_index: int | None) -> str:
    """Give the uid of the stage that a task instance runs.

    Args:
        uid: the task's.
        map_index: the instance's; None or -1 where the task is not mapped.
    """
    return uid if map_index is None or map_index < 0 else f"{uid}-{map_index}"


def checked_reads(reads: object, uid: str, task: str, *, in_group: bool) -> tuple[str, ...]:
    """Give what a stage was given as its `reads`.

    Args:
        reads: by the author.
        uid: the stage's own.
        task: the task's id, for messages.
        in_group: whether the stage is in a `CheckpointedTaskGroup`.

    Raises:
        InvalidConfigError: they are no list of uids, the stage names itself, or it is in no group.
    """
    if not isinstance(reads, list | tuple) or not all(isinstance(each, str) for each in reads):
        raise InvalidConfigError(
            "reads must be a list of stages' uids: write reads=['clean']", task=task, reads=shorten(reads)
        )
    if reads and not in_group:
        raise InvalidConfigError(
            "reads belongs to stages of a CheckpointedTaskGroup; without one, name what a stage reads by "
            "TriggerCheckpointOperator(stages=[StageSpec(uid, upstream=(…))])",
            task=task,
            reads=", ".join(reads),
        )
    if uid in reads:
        raise InvalidConfigError(
            "the stage names itself in reads; what it wrote before is its state, epoch.state(…)", task=task, uid=uid
        )
    return tuple(reads)
