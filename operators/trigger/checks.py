"""Checks a trigger's arguments when the DAG is parsed (semantics S3)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Protocol, Self, TypedDict, runtime_checkable

from ...checkpoint import CheckpointConfig
from ...checkpoint.config import check_stages
from ...checkpoint.documents.attempt import MAX_SLICE_BYTES, StageSpec
from ...checkpoint.documents.strict_json import plain_json
from ...checkpoint.errors import InvalidConfigError
from ...checkpoint.extensions.contracts import CheckpointListener, MasterHook
from ...checkpoint.source import Source
from ...storage.names import shorten
from ...tasks.job_settings import is_rendered_later, is_same_job, naming
from ..graph.declaration import TriggerOperator

if TYPE_CHECKING:
    from airflow.sdk import DAG


def check_specs(stages: tuple[StageSpec, ...], config: CheckpointConfig) -> None:
    """Check the stages that an author lists.

    Raises:
        InvalidConfigError: an entry is not a StageSpec, or the stages make no job.
        InvalidKeyError: a uid is outside the grammar (semantics W1).
    """
    for stage in stages:
        if not isinstance(stage, StageSpec):
            raise InvalidConfigError("a stage must be a StageSpec: write StageSpec('routes')", stage=shorten(stage))
    check_stages(stages, config)


def check_only_one(trigger: TriggerOperator, **where: str | None) -> None:
    """Check that no other task of the DAG triggers checkpoints of the same job: a run is one epoch of it.

    Raises:
        InvalidConfigError: another task does, a group's own or one that stands alone.
    """
    for other in trigger.dag.tasks:
        if other is not trigger and isinstance(other, TriggerOperator) and is_same_job(other, trigger):
            raise InvalidConfigError(
                f"{other.task_id} and {trigger.task_id} trigger the checkpoints of one job: their epochs would "
                "complete each other. Take one of them out, or give each its own job (job='…')",
                **where,
                job=trigger.job,
            )


def check_config(config: object, **where: str | None) -> CheckpointConfig:
    """Check and return the checkpoint config.

    Raises:
        InvalidConfigError: `config` is not a CheckpointConfig.
    """
    if config is None:
        return CheckpointConfig()
    if not isinstance(config, CheckpointConfig):
        raise InvalidConfigError(
            "config must be a CheckpointConfig: write config=CheckpointConfig(retained=3)",
            **where,
            config=shorten(config),
        )
    return config


@runtime_checkable
class CheckpointSchedule(Protocol):
    """A timetable for checkpoints: `plugin.timetable.CheckpointTimetable`, which this layer must not import."""

    interval: timedelta
    min_pause: timedelta

    def named(self, dag_id: str) -> Self:
        """Return this timetable for a DAG."""


def fit_schedule(dag: DAG, config: CheckpointConfig, **where: str | None) -> CheckpointConfig:
    """Check the pause against the DAG's schedule, which is the interval of its checkpoints (semantics S3).

    A `CheckpointTimetable` gets the DAG's id here (S2). If it has a pause, the config need not repeat it. Otherwise
    only a `timedelta` schedule says how far apart runs are; a cron expression's intervals may vary.

    Args:
        dag: the DAG with the schedule.
        config: its checkpoint config.
        **where: `task` or `group` and its id, for the error message.

    Returns:
        The config with the effective pause.

    Raises:
        InvalidConfigError: the pause is longer than the schedule's interval, so that each run would wait longer than
            the one before, forever; or it differs from the timetable's.
    """
    timetable = name_schedule(dag)
    if timetable is not None:
        pause = timetable.min_pause
        if config.min_pause not in (timedelta(0), pause):
            raise InvalidConfigError(
                "min_pause must be that of the DAG's CheckpointTimetable: give it to the timetable, and leave it out "
                "of CheckpointConfig",
                **where,
                min_pause=repr(config.min_pause),
                timetable=repr(pause),
            )
        return replace(config, min_pause=pause)
    interval = getattr(dag.timetable, "delta", None)
    if isinstance(interval, timedelta) and interval < config.min_pause:
        raise InvalidConfigError(
            f"min_pause must not be longer than the DAG's schedule, {interval}: each run would wait longer than the "
            "one before. Make the pause shorter or the schedule longer",
            **where,
            min_pause=repr(config.min_pause),
            schedule=repr(interval),
        )
    return config


def name_schedule(dag: DAG) -> CheckpointSchedule | None:
    """Pass the DAG's id to its `CheckpointTimetable`, because Airflow never does (semantics S2).

    The DAG gets its own copy of the timetable, so that several DAGs may share one.

    Returns:
        The timetable; None if the DAG has another schedule.
    """
    if not isinstance(dag.timetable, CheckpointSchedule):
        return None
    dag.timetable = named = dag.timetable.named(dag.dag_id)
    return named


def check_slice_detail(detail: object, *, rendered: bool = False, **where: str | None) -> dict[str, Any]:
    """Check that the detail of the input can be kept in the store (semantics T8).

    Args:
        detail: a JSON object, or None; before rendering, it may be or contain a template.
        rendered: whether the templates were rendered.
        **where: `task` or `group` and its id, for the error message.

    Returns:
        The detail as it will be read back; empty if there is none, or if it is known only at run time.

    Raises:
        InvalidConfigError: the detail is not a JSON object, is too large for the document of an attempt, or would be
            read back differently; the message says where it differs.
    """
    if detail is None or (not rendered and is_rendered_later(detail)):
        return {}
    if not isinstance(detail, dict):
        raise InvalidConfigError(
            f"slice_detail must be a JSON object, a dict of texts, numbers, lists and dicts: found "
            f"{type(detail).__name__}",
            **where,
        )
    with naming(**where):
        later = None if rendered else is_rendered_later
        kept: dict[str, Any] = plain_json("slice_detail", detail, refusal=InvalidConfigError, later=later)
    size = len(json.dumps(kept, default=str).encode())  # some of it may be known only at run time
    if size > MAX_SLICE_BYTES:
        raise InvalidConfigError(
            f"slice_detail has {size:,} bytes, and {MAX_SLICE_BYTES:,} fit into the document of an attempt. Put less "
            "into it, or the place of a file",
            **where,
        )
    return kept


# Arguments that a checkpointed task group and its trigger share.


class JobOptions(TypedDict):
    """Arguments that a `CheckpointedTaskGroup` passes to its trigger, under the same names."""

    storage: str
    job: str
    config: CheckpointConfig | None
    aws_conn_id: str | None
    slice_detail: dict[str, Any] | None
    source: Source | Sequence[Source] | None
    reads_window: bool | None
    master_hooks: Sequence[MasterHook] | None
    listeners: Sequence[CheckpointListener]
    restore_from: str | None
    allow_non_restored_state: bool
    claim: bool
    deferrable: bool
    poll_interval: timedelta | float
