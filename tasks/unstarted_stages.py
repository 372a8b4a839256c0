"""The last net: stages that have not acknowledged although Airflow shows their tasks as successes (F5).

A failover has replaced what they wrote, and the processes that should have cleared them died; or a user has marked the
task while it ran; or an acknowledgement was deleted. The task that waits for the checkpoint finds them, because it
begins when the stages' tasks have ended. A stage's task ends as a success by itself only after its acknowledgement
counted, so such a task has nothing in hand: it runs again, and its begin settles what the try before left.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from airflow.sdk.exceptions import AirflowNotFoundException

from ..checkpoint.answers import Progress, Restarted, Waiting
from ..checkpoint.documents.layout import run_id_of
from ..checkpoint.errors import InvalidConfigError
from ..hooks.airflow_api import AirflowApiHook, AirflowApiRefusedError
from ..hooks.clear_body import TaskRef
from .clearing import SUCCESS, Where, compare_and_clear

if TYPE_CHECKING:
    from ..checkpoint import Coordinator

log = logging.getLogger("airflow_cairn")


def start_again(
    coordinator: Coordinator,
    epoch: str,
    now: Progress,
    states: Mapping[TaskRef, str],
    where_of: Callable[[str], Where] | None,
    conn_id: str | None,
) -> tuple[str, ...]:
    """Clear the tasks of stages that have not acknowledged and have ended well all the same.

    Args:
        coordinator: of the job.
        epoch: the epoch's name.
        now: how far its checkpoint is.
        states: what Airflow says of the stages' tasks.
        where_of: finds the tasks of a run by its id; None: the job has no group, and a user clears.
        conn_id: the connection to Airflow's API; None: a user clears.

    Returns:
        The stages whose tasks run again now; none where a user has to clear.

    Raises:
        AirflowApiError: the API cannot be reached; asking again may help.
        UnavailableError: the store did not answer.
    """
    if not isinstance(now, Waiting) or where_of is None or conn_id is None:
        return ()
    where = where_of(run_id_of(epoch))
    named = [uid for uid in now.missing if uid in where.tasks and states.get(where.tasks[uid]) == SUCCESS]
    if not named:
        return ()
    note = f"Cairn: checkpoint {now.checkpoint}, attempt {now.attempt} has nothing of this stage, so it runs again"

    def missing() -> tuple[Restarted, ...]:
        still = coordinator.progress(epoch)
        same = isinstance(still, Waiting) and still.checkpoint == now.checkpoint
        return tuple(Restarted(uid, "") for uid in still.missing) if isinstance(still, Waiting) and same else ()

    try:
        with AirflowApiHook(conn_id) as api:
            cleared = compare_and_clear(api, where, [Restarted(uid, "") for uid in named], note, missing)
    except (AirflowNotFoundException, InvalidConfigError, AirflowApiRefusedError) as error:
        log.warning("%s must run again and cannot be cleared (%s): %s", ", ".join(named), error, where.remedy(named))
        return ()
    log.info("%s", cleared)
    return cleared.stages
