"""What installed packages add to every job, by entry points: master hooks and listeners.

Loaded where a task runs, never where a DAG is parsed: the scheduler imports nothing of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from ..checkpoint.errors import InvalidConfigError
from ..checkpoint.extensions.listeners import CheckpointListener, check_listeners
from ..checkpoint.extensions.master_hooks import MasterHook, check_hooks

MASTER_HOOKS = "airflow_cairn.master_hooks"
"""The entry-point group of master hooks: functions of the job's name that give a hook, or None for none."""

LISTENERS = "airflow_cairn.listeners"
"""The entry-point group of listeners: likewise."""


def master_hooks_of(
    job: str, given: Sequence[MasterHook], max_concurrent: int, within: timedelta | None = None
) -> tuple[MasterHook, ...]:
    """Give a job's master hooks: those of its DAG, then those of installed packages (semantics T7).

    Args:
        job: the job's name.
        given: the DAG's.
        max_concurrent: `max_concurrent_checkpoints` of the job.
        within: the timeout of its checkpoints; None where the hooks are asked for no checkpoint.

    Raises:
        InvalidConfigError: an entry point cannot be loaded or gives no hook, two hooks have one name, or hooks do not
            fit the config.
    """
    return check_hooks([*given, *_plugged(MASTER_HOOKS, job)], max_concurrent, within)


def listeners_of(job: str, given: Sequence[CheckpointListener]) -> tuple[CheckpointListener, ...]:
    """Give a job's listeners: those of its DAG, then those of installed packages (semantics C4, D4).

    Raises:
        InvalidConfigError: an entry point cannot be loaded or gives no listener, or two listeners have one name.
    """
    return check_listeners([*given, *_plugged(LISTENERS, job)])


def _plugged(group: str, job: str) -> list[Any]:
    found = (_made(point, job) for point in sorted(entry_points(group=group), key=lambda point: point.name))
    return [each for each in found if each is not None]


def _made(point: EntryPoint, job: str) -> Any:
    try:
        return point.load()(job)
    except Exception as error:
        whose = point.dist.name if point.dist else "an unknown package"
        raise InvalidConfigError(
            f"the entry point {point.name} of {whose} cannot be used: {error!r}. Mend that package, or uninstall it",
            group=point.group,
            value=point.value,
            job=job,
        ) from error
