"""Goes on with savepoints that people asked for from the pages in Airflow (semantics P1, P2).

No process of such a person waits for the epoch. So the task that ends the epoch copies the files, as the API server
does where it is asked how far the savepoint is. Both write the same bytes under the same names.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ..checkpoint.reasons import Status
from ..checkpoint.savepoints.savepoint_request import OpenFolder
from ..storage.errors import CairnError

if TYPE_CHECKING:
    from ..checkpoint import Coordinator

log = logging.getLogger(__name__)


def go_on(coordinator: Coordinator, open_folder: OpenFolder) -> None:
    """Copy what has still to be copied; what goes wrong is only logged, because the epoch itself is complete.

    Args:
        coordinator: of the job.
        open_folder: opens a savepoint's folder.
    """
    try:
        for entry in coordinator.savepoints_to_go_on_with():
            ended = coordinator.go_on_with_savepoint(entry.request, open_folder)
            if ended is not None and ended.status is Status.COMPLETED:
                log.info("savepoint %d, which %s asked for, is complete: %s", ended.id, ended.actor, ended.uri)
    except CairnError:
        log.exception("a savepoint that was asked for from the page could not be made now; the next task goes on")
