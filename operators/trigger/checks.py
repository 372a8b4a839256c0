"""What a trigger's author may give it; refused where the DAG is parsed (semantics S3)."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Protocol, Self, runtime_checkable

from ...checkpoint import CheckpointConfig
from ...checkpoint.documents.attempt import StageSpec
from ...checkpoint.documents.strict_json import plain_json
from ...checkpoint.errors import InvalidConfigError
from ...checkpoint.stage_graph import check_stages
from ...storage.names import shorten
from ...tasks.job_settings import is_rendered_later, naming

if TYPE_CHECKING:
    from airflow.sdk import DAG


def check_specs(stages: tuple[StageSpec, ...], config: CheckpointConfig) -> None:
    """Check stages that an author lists.

    Raises:
        InvalidConfigError: something is no StageSpec, or they are no job.
        InvalidNameError: a uid is outside the grammar (semantics W1).
    """
    for stage in stages:
        if not isinstance(stage, StageSpec):
            raise InvalidConfigError("a stage must be a StageSpec: write StageSpec('routes')", stage=shorten(stage))
    check_stages(stages, config)


def check_config(config: object, **where: str | None) -> CheckpointConfig:
    """Give the config to make checkpoints with.

    Raises:
        InvalidConfigError: it is no CheckpointConfig.
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
    """A timetable made for checkpoints: `plugin.timetable.CheckpointTimetable`, which this layer must not import."""

    interval: timedelta
    min_pause: timedelta

    def named(self, dag_id: str) -> Self:
        """Give this timetable for a DAG."""


def fit_schedule(dag: DAG, config: CheckpointConfig, **where: str | None) -> CheckpointConfig:
    """Check the pause against the DAG's schedule, which is the interval of its checkpoints (semantics S3).

    A `CheckpointTimetable` learns the DAG's id here (S2). It may say the pause too; then it need not be said again.
    Else only a schedule that is a `timedelta` says how far apart runs are; a cron expression's may differ.

    Args:
        dag: whose schedule it is.
        config: how its checkpoints are made.
        **where: `task` or `group` and its id, for the message.

    Returns:
        The config with the pause that holds.

    Raises:
        InvalidConfigError: the pause is longer than the schedule's interval, so that each run would wait longer than
            the one before, for ever; or it is another than the timetable's.
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
    """Tell a `CheckpointTimetable` which DAG it is for, because Airflow never does (semantics S2).

    The DAG gets a timetable of its own, so that one may be given to several.

    Returns:
        It; None where the DAG has another schedule.
    """
    if not isinstance(dag.timetable, CheckpointSchedule):
        return None
    dag.timetable = named = dag.timetable.named(dag.dag_id)
    return named


def check_poll_interval(poll_interval: object) -> float:
    """Give the seconds between two looks of the triggerer.

    Raises:
        InvalidConfigError: it is neither a number nor a timedelta, or not above 0.
    """
    seconds = poll_interval.total_seconds() if isinstance(poll_interval, timedelta) else poll_interval
    if not isinstance(seconds, int | float) or not 0 < seconds < math.inf:
        raise InvalidConfigError("poll_interval must be above 0 seconds", poll_interval=shorten(poll_interval))
    return seconds


def check_slice_detail(detail: object, *, rendered: bool = False, **where: str | None) -> dict[str, Any]:
    """Check that the input's detail can be kept in the store (semantics T8).

    Args:
        detail: a JSON object, or None for none; before it is rendered, it may be or hold a template.
        rendered: whether the templates were rendered.
        **where: the task or group, for the message.

    Returns:
        The detail as it will come back; empty where it is none, or known only when the task runs.

    Raises:
        InvalidConfigError: it is no JSON object, or would come back as something else; the message says where in it.
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
    return kept
