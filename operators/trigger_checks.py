"""What a trigger's author may give it; refused where the DAG is parsed (semantics S3)."""

from __future__ import annotations

import math
from datetime import timedelta

from ..checkpoint import CheckpointConfig
from ..checkpoint.errors import InvalidConfigError
from ..checkpoint.model import StageSpec
from ..checkpoint.requests import check_stages
from ..storage.names import shorten


def check_specs(stages: tuple[StageSpec, ...], config: CheckpointConfig) -> None:
    """Check stages that an author lists.

    Args:
        stages: what must acknowledge.
        config: how the job makes checkpoints.

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

    Args:
        config: what the author gave; None for the defaults.
        **where: `task` or `group` and its id, for the message.

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


def check_schedule(timetable: object, config: CheckpointConfig, **where: str | None) -> None:
    """Check the pause against the DAG's schedule, which is the interval of its checkpoints (semantics S3).

    Only a schedule that is a `timedelta` says how far apart runs are; a cron expression's may differ from run to run.

    Args:
        timetable: of the DAG.
        config: how its checkpoints are made.
        **where: `task` and its id, for the message.

    Raises:
        InvalidConfigError: the pause is longer than the schedule's interval, so that each run would wait longer than
            the one before, for ever.
    """
    interval = getattr(timetable, "delta", None)
    if isinstance(interval, timedelta) and interval < config.min_pause:
        raise InvalidConfigError(
            f"min_pause must not be longer than the DAG's schedule, {interval}: each run would wait longer than the "
            "one before. Make the pause shorter or the schedule longer",
            **where,
            min_pause=repr(config.min_pause),
            schedule=repr(interval),
        )


def check_poll_interval(poll_interval: object) -> float:
    """Give the seconds between two looks of the triggerer.

    Args:
        poll_interval: seconds, or a timedelta.

    Raises:
        InvalidConfigError: it is neither, or not above 0.
    """
    seconds = poll_interval.total_seconds() if isinstance(poll_interval, timedelta) else poll_interval
    if not isinstance(seconds, int | float) or not 0 < seconds < math.inf:
        raise InvalidConfigError("poll_interval must be above 0 seconds", poll_interval=shorten(poll_interval))
    return seconds
