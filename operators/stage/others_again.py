"""The other tasks that a failover, or a clear of one stage, has run again: cleared by the first that comes (F1, F5)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable
from typing import Any

from ...checkpoint.answers import Restarted
from ...hooks.airflow_api import AirflowApiHook
from ...tasks.clearing import SUCCESS, Where, compare_and_clear
from ...tasks.stage_states import states_of

log = logging.getLogger(__name__)

RUNNING = "running"
"""Airflow's state of a task whose process is on."""


def not_on_their_way(ti: Any, where: Where, restarted: Iterable[Restarted]) -> list[Restarted]:
    """Give those of some stages whose tasks Airflow does not start by itself: they have ended well, or run as before.

    Asks by the way that every task has, which needs no connection.
    """
    found = list(restarted)
    states = states_of(ti, [where.tasks[each.stage] for each in found if each.stage in where.tasks])
    return [
        each
        for each in found
        if each.stage in where.tasks and states.get(where.tasks[each.stage]) in (SUCCESS, RUNNING)
    ]


def let_others_run_again(
    restarted: Collection[Restarted],
    stage: str,
    where: Where,
    conn_id: str | None,
    note: str,
    to_run_again: Callable[[], Iterable[Restarted]],
) -> None:
    """Clear the other tasks that have to run again. What goes wrong is logged with what a person has to clear.

    The next try of a stage that reads from them clears them too, and so does the task that waits for the checkpoint.

    Args:
        restarted: the stages, each with the task that held it.
        stage: the one that has failed, or was cleared.
        where: its DAG run.
        conn_id: the connection to Airflow's API; None: a person clears.
        note: what the page shows at each task.
        to_run_again: asks the store which of them are not claimed by now.
    """
    if not restarted:
        return
    stages = [each.stage for each in restarted]
    named = ", ".join(stages)
    if conn_id is None:
        log.warning(
            "%s must run again too, and Cairn clears no task of this DAG (airflow_api_conn_id=None): %s",
            named,
            where.remedy([*stages, stage]),
        )
        return
    try:
        with AirflowApiHook(conn_id) as api:
            cleared = compare_and_clear(api, where, restarted, note, to_run_again)
    except Exception as error:
        remedy = where.remedy([*stages, stage])
        # The page folds the trace away; what went wrong belongs into the log line.
        log.exception("%s must run again too, and could not be cleared (%s): %s", named, error, remedy)  # noqa: TRY401
        return
    log.info("%s", cleared)
