"""`CheckpointNotifications`: a listener that reports the end of checkpoints through Airflow's notifiers (C4, D4)."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import get_current_context

from ..checkpoint.documents.layout import run_id_of
from ..checkpoint.errors import InvalidConfigError
from ..checkpoint.reasons import Reason
from ..storage.names import check_name, shorten

if TYPE_CHECKING:
    from ..checkpoint.extensions.committables import CheckpointNotice

log = logging.getLogger("airflow_cairn")

Notifier = Callable[[Any], object]
"""One of Airflow's notifiers, or a function that takes the context, as for `on_failure_callback`."""

FOLLOWED = frozenset({Reason.JOB_FAILOVER_REGION, Reason.CHECKPOINT_SUBSUMED})
"""Reasons for which an attempt ends although its epoch goes on by itself."""


class CheckpointNotifications:
    """Calls notifiers when a checkpoint of the job has completed or failed, at least once for each.

    Put it into the `listeners` of the group. A notifier gets the context of the task that calls it, with an additional
    `checkpoint`: a dict with `id`, `run_id`, `attempt`, `status`, `reason`, `detail` and `latest`. A notifier that
    fails is logged, as Airflow does with a callback; the epoch does not wait for it, and it is not called again.

    Args:
        completed: one notifier or several, for checkpoints that have completed.
        failed: one notifier or several, for checkpoints that have failed.
        failovers: also report attempts that ended although their epoch goes on: by itself, or after a pause of the DAG.
        name: this listener's name in the job; each listener needs another name.
    """

    def __init__(
        self,
        *,
        completed: Notifier | Sequence[Notifier] = (),
        failed: Notifier | Sequence[Notifier] = (),
        failovers: bool = False,
        name: str = "notifications",
    ) -> None:
        self.name = check_name("listener", name)
        self._completed = _checked("completed", completed)
        self._failed = _checked("failed", failed)
        self._failovers = failovers
        if not self._completed and not self._failed:
            raise InvalidConfigError(
                "CheckpointNotifications without a notifier notifies no one: give completed=[…] or failed=[…]",
                listener=name,
            )

    def notify_checkpoint_complete(self, notice: CheckpointNotice) -> None:
        """Call the notifiers for completed checkpoints."""
        self._call(self._completed, notice)

    def notify_checkpoint_aborted(self, notice: CheckpointNotice) -> None:
        """Call the notifiers for failed checkpoints."""
        if self._failovers or not (notice.paused or notice.reason in FOLLOWED):
            self._call(self._failed, notice)

    def _call(self, notifiers: Sequence[Notifier], notice: CheckpointNotice) -> None:
        about = {
            "id": notice.checkpoint,
            "run_id": run_id_of(notice.epoch),
            "attempt": notice.attempt,
            "status": notice.status.value,
            "reason": notice.reason.value if notice.reason is not None else None,
            "detail": notice.detail,
            "latest": notice.latest,
        }
        for notifier in notifiers:
            # A notifier renders its own fields once, in place: use a copy for each checkpoint.
            try:
                copy.copy(notifier)({**_context(), "checkpoint": about})
            except Exception:  # foreign code: whatever it raises, the checkpoint has ended
                log.exception(
                    "The notifier %s could not tell how checkpoint %d ended: %s",
                    type(notifier).__name__,
                    notice.checkpoint,
                    notice.reason or notice.status,
                )


def _context() -> dict[str, Any]:
    """Return the context of the running task; a callback in the DAG processor has none."""
    try:
        return {**get_current_context()}
    except RuntimeError:
        return {}


def _checked(option: str, given: Notifier | Sequence[Notifier]) -> tuple[Notifier, ...]:
    found = (given,) if callable(given) else given
    if isinstance(found, str) or not isinstance(found, Sequence) or not all(callable(each) for each in found):
        raise InvalidConfigError(
            "a notifier is a function of the context, or one of Airflow's notifiers, such as SmtpNotifier(…)",
            option=option,
            found=shorten(given),
        )
    return tuple(found)
