"""Goes on with savepoints that people asked for from the pages in Airflow (semantics P1, P2).

No process of such a person waits for the epoch. So the task that ends the epoch copies the files, as the API server
does where a person has it go on. Both write the same bytes under the same names, and both make only those that are to
lie where the DAG says: what the job's record alone says is not opened.
"""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import TYPE_CHECKING

from ..checkpoint.errors import SavepointRefusedError
from ..checkpoint.reasons import Status
from ..checkpoint.savepoints.savepoint_request import OpenFolder
from ..storage.errors import CairnError

if TYPE_CHECKING:
    from ..checkpoint import Coordinator
    from ..checkpoint.documents.entries import SavepointEntry

log = logging.getLogger("airflow_cairn")

SOONEST = timedelta(seconds=10)
"""After this long at the earliest a stop is tried again."""
LATEST = timedelta(minutes=10)
"""After this long at the latest."""


def go_on(coordinator: Coordinator, target: str | None, open_folder: OpenFolder) -> SavepointEntry | None:
    """Copy what has still to be copied; what goes wrong is only logged, because the epoch itself is complete.

    Args:
        coordinator: of the job.
        target: where the DAG has the job's savepoints made; those elsewhere are left as they are.
        open_folder: opens it.

    Returns:
        A stop whose files could not be copied now: until it has ended no other run begins, so no other task comes by.
        None: there is none.
    """
    held = None
    for entry in coordinator.savepoints_to_go_on_with():
        try:
            ended = coordinator.go_on_with_savepoint(entry.request, target, open_folder)
        except SavepointRefusedError as error:
            log.warning("savepoint %d, asked for from the page, is left as it is: %s", entry.id, error)
            continue
        except CairnError:
            if entry.stops:
                log.exception("the job could not be stopped with savepoint %d now; this task tries again", entry.id)
                held = entry
            else:
                log.exception("savepoint %d, asked for from the page, could not be made now", entry.id)
            continue
        if ended is not None and ended.status is Status.COMPLETED:
            log.info("savepoint %d, which %s asked for, is complete: %s", ended.id, ended.actor, ended.uri)
    return held


def again_after(entry: SavepointEntry, now_ms: int) -> timedelta:
    """Say how long to wait before another try: a tenth of the stop's age, which its timeout ends."""
    age = timedelta(milliseconds=now_ms - entry.requested_at_ms)
    return min(max(age / 10, SOONEST), LATEST)
