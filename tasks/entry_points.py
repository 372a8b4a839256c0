"""Master hooks and listeners that installed packages add to every job, through entry points.

They are loaded only where a task runs, never where a DAG is parsed: the scheduler imports none of them.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import timedelta
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any

from ..checkpoint.errors import InvalidConfigError
from ..checkpoint.extensions.contracts import CheckpointListener, MasterHook, check_hooks, check_listeners
from ..storage.errors import CairnError

if TYPE_CHECKING:
    from ..checkpoint import Coordinator


MASTER_HOOKS = "airflow_cairn.master_hooks"
"""The entry-point group of master hooks: functions of the job's name that return a hook, or None for none."""

LISTENERS = "airflow_cairn.listeners"
"""The entry-point group of listeners: functions of the job's name that return a listener, or None for none."""


def master_hooks_of(
    job: str, given: Sequence[MasterHook], max_concurrent: int, within: timedelta | None = None
) -> tuple[MasterHook, ...]:
    """Return a job's master hooks: those of its DAG, then those of installed packages (semantics T7).

    Args:
        job: the job's name.
        given: the DAG's hooks.
        max_concurrent: `max_concurrent_checkpoints` of the job.
        within: the timeout of its checkpoints; None if the hooks are not called for a checkpoint.
    """
    return check_hooks([*given, *_plugged(MASTER_HOOKS, job)], max_concurrent, within)


def listeners_of(job: str, given: Sequence[CheckpointListener]) -> tuple[CheckpointListener, ...]:
    """Return a job's listeners: those of its DAG, then those of installed packages (semantics C4, D4)."""
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


# Notifies a job's listeners how its checkpoints ended, from any task of the job (semantics C4, D4).


log = logging.getLogger("airflow_cairn")


def tell_listeners(coordinator: Coordinator, given: Sequence[CheckpointListener]) -> None:
    """Notify the listeners of checkpoints that they have not heard of; a job without listeners sends no request."""
    from .mirror import Mirror  # here: a DAG file imports this module, and needs no mirror

    listeners = [
        each.of_job(coordinator) if isinstance(each, Mirror) else each for each in listeners_of(coordinator.job, given)
    ]
    if listeners:
        calls = coordinator.deliver(listeners)
        if calls:
            names = ", ".join(each.name for each in listeners)
            log.info("Notified listeners how checkpoints ended: %s", names)


def notify_listeners_best_effort(coordinator: Coordinator, given: Sequence[CheckpointListener]) -> None:
    """Notify the listeners from a task whose main work is another; errors are only logged."""
    try:
        tell_listeners(coordinator, given)
    except CairnError:
        log.exception("The listeners could not be notified; their notices are kept, and the next task notifies them")
