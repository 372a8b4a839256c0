"""Master hooks and listeners of a job: its DAG's, those of installed packages, and the mirror.

Entry points are loaded only where a task runs, never where a DAG is parsed: the scheduler imports none of them.
"""

from __future__ import annotations

import copy
import logging
import secrets
import sys
from collections.abc import Sequence
from datetime import timedelta
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any

from ..checkpoint.errors import InvalidConfigError
from ..checkpoint.extensions.contracts import CheckpointListener, MasterHook, check_hooks, check_listeners
from ..checkpoint.masking import one_line
from ..checkpoint.validation import MIRROR_LISTENER
from ..storage.errors import CairnError
from ..storage.names import check_storage_uri

if TYPE_CHECKING:
    from ..checkpoint import Coordinator
    from ..checkpoint.extensions.committables import CheckpointNotice

log = logging.getLogger("airflow_cairn")

MASTER_HOOKS = "airflow_cairn.master_hooks"
"""The entry-point group of master hooks: functions of the job's name that return a hook, or None for none."""

LISTENERS = "airflow_cairn.listeners"
"""The entry-point group of listeners: functions of the job's name that return a listener, or None for none."""


def master_hooks_of(
    job: str, given: Sequence[MasterHook], max_concurrent: int, within: timedelta | None = None
) -> tuple[MasterHook, ...]:
    """Return a job's master hooks: those of its DAG, then those of installed packages (semantics T7).

    `within` is the timeout of the job's checkpoints; None if the hooks are not called for a checkpoint.
    """
    return check_hooks([*given, *_plugged(MASTER_HOOKS, job)], max_concurrent, within)


def listeners_of(job: str, given: Sequence[CheckpointListener]) -> tuple[CheckpointListener, ...]:
    """Return a job's listeners: those of its DAG, then those of installed packages (semantics C4, D4)."""
    return check_listeners([*given, *_plugged(LISTENERS, job)])


def _plugged(group: str, job: str) -> list[Any]:
    points = _installed(tuple(sys.path)).select(group=group)
    found = (_made(point, job) for point in sorted(points, key=lambda point: point.name))
    return [each for each in found if each is not None]


@cache
def _installed(_path: tuple[str, ...]) -> Any:
    """Return the entry points of all packages on a path: a task asks several times, and a look reads each package."""
    return entry_points()


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


class Mirror:
    """Copies the job to another storage after each completed checkpoint, so that it can go on there.

    Put it into the `listeners` of the group; a group has one. A pass copies what is new since the last one, in the last
    task of the run. If the other storage does not answer, the task logs a warning and the run succeeds: the next pass
    copies everything that the mirror lacks then. How far it is behind is a metric, and on the job's page.

    Args:
        storage: URI of the mirror's storage, in another region or with another provider.
        aws_conn_id: Airflow connection for it, of the types that the group's `aws_conn_id` takes; None: the provider's
            own chain.

    Raises:
        InvalidKeyError: the URI has no accepted form.
        UnsupportedStorageError: its scheme is not supported.
    """

    name = MIRROR_LISTENER

    def __init__(self, storage: str, aws_conn_id: str | None = None) -> None:
        self.storage = check_storage_uri(storage)
        self.aws_conn_id = aws_conn_id
        self._coordinator: Coordinator | None = None

    def of_job(self, coordinator: Coordinator) -> Mirror:
        """Return this listener for one job."""
        mine = copy.copy(self)
        mine._coordinator = coordinator
        return mine

    def notify_checkpoint_complete(self, notice: CheckpointNotice) -> None:  # noqa: ARG002 - the newest one is copied
        """Bring the mirror up to the job's newest checkpoint; whatever goes wrong is logged: the run has succeeded."""
        from ..hooks.storage import CheckpointStorageHook
        from ..storage.probe import ensure_probed

        assert self._coordinator is not None, "the task binds it to its job"
        try:
            store = CheckpointStorageHook(self.storage, self.aws_conn_id).open_store()
            ensure_probed(store, nonce=secrets.token_hex(8))
            found = self._coordinator.mirror(store)
        except Exception as error:  # noqa: BLE001 - Airflow and its providers raise what they like, too
            said = str(error) if isinstance(error, CairnError) else one_line(repr(error))
            log.warning("The job was not mirrored to %s, and the mirror is as it was: %s", self.storage, said)
            return
        log.info(
            "Mirrored checkpoint %d to %s: %d files copied, %d bytes",
            found.checkpoint,
            self.storage,
            found.files,
            found.size_bytes,
        )

    def notify_checkpoint_aborted(self, notice: CheckpointNotice) -> None:
        """Do nothing: a mirror holds completed checkpoints only."""


def tell_listeners(coordinator: Coordinator, given: Sequence[CheckpointListener]) -> None:
    """Tell listeners of checkpoints' ends that they have not heard of (semantics C4, D4); without any, no request."""
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
