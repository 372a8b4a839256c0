"""The last net: stages that a failover has replaced, and whose tasks have ended well without running again (F5).

The callback of the failed try and the next tries of the stages beside them clear them first. If all of those died, the
task that waits for the checkpoint finds them, because it begins when the stages' tasks have ended.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from airflow.sdk.exceptions import AirflowNotFoundException

from ..checkpoint import Coordinator
from ..checkpoint.errors import InvalidConfigError
from ..checkpoint.layout import run_id_of
from ..checkpoint.requests import Progress, Waiting
from .airflow_api import AirflowApiHook, AirflowApiRefusedError
from .clear_body import TaskRef
from .clearing import SUCCESS, Where, compare_and_clear

log = logging.getLogger(__name__)


def start_again(
    coordinator: Coordinator,
    epoch: str,
    now: Progress,
    states: Mapping[TaskRef, str],
    where_of: Callable[[str], Where] | None,
    conn_id: str | None,
) -> tuple[str, ...]:
    """Clear the tasks of stages that have to run again and have ended well without that.

    Args:
        coordinator: of the job.
        epoch: the epoch's name.
        now: how far its checkpoint is.
        states: what Airflow says of the stages' tasks.
        where_of: finds the tasks of a run by its id; None: the job has no group, and a person clears.
        conn_id: the connection to Airflow's API; None: a person clears.

    Returns:
        The stages whose tasks run again now; none where a person has to clear.

    Raises:
        AirflowApiError: the API cannot be reached; asking again may help.
        UnavailableError: the store did not answer.
    """
    if not isinstance(now, Waiting) or where_of is None or conn_id is None:
        return ()
    where = where_of(run_id_of(epoch))
    due = [each for each in now.restarted if states.get(where.tasks.get(each.stage, TaskRef(""))) == SUCCESS]
    if not due:
        return ()
    note = f"Cairn: checkpoint {now.checkpoint}, attempt {now.attempt} needs this stage again, and it had not run"
    try:
        with AirflowApiHook(conn_id) as api:
            cleared = compare_and_clear(api, where, due, note, lambda: coordinator.to_run_again(epoch))
    except (AirflowNotFoundException, InvalidConfigError, AirflowApiRefusedError) as error:
        named = [each.stage for each in due]
        log.warning("%s must run again and cannot be cleared (%s): %s", ", ".join(named), error, where.by_hand(named))
        return ()
    log.info("%s", cleared)
    return cleared.stages
