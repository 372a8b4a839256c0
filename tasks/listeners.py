"""Tells a job's listeners how its checkpoints ended, wherever a task comes by (semantics C4, D4)."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..checkpoint.extensions.listeners import CheckpointListener
from ..storage.errors import CairnError
from .entry_points import listeners_of

if TYPE_CHECKING:
    from ..checkpoint import Coordinator

log = logging.getLogger("airflow_cairn")


def tell(coordinator: Coordinator, given: Sequence[CheckpointListener]) -> None:
    """Notify the listeners of what they do not know yet; a job without listeners pays no request.

    Raises:
        ListenerError: a listener failed; all others have been notified, and its notice is kept.
        InvalidConfigError: a listener of an installed package cannot be used.
        UnavailableError: the store did not answer; the next task calls the listeners that were not called.
    """
    listeners = listeners_of(coordinator.job, given)
    if listeners:
        calls = coordinator.deliver(listeners)
        if calls:
            names = ", ".join(each.name for each in listeners)
            log.info("notified listeners how checkpoints ended: %s", names)


def tell_if_possible(coordinator: Coordinator, given: Sequence[CheckpointListener]) -> None:
    """Notify the listeners, where the task has something else to do: what goes wrong is only logged."""
    try:
        tell(coordinator, given)
    except CairnError:
        log.exception("the listeners could not be notified; their notices are kept, and the next task notifies them")
