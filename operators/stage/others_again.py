"""The other tasks that a failover, or a clear of one stage, has run again: cleared by the first that comes (F1, F5)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable
from datetime import UTC, datetime
from typing import Any, NoReturn

from airflow.sdk.exceptions import AirflowFailException, AirflowNotFoundException, AirflowRescheduleException

from ...checkpoint.answers import BeginAnswer, Restarted, UpstreamsNotReady
from ...checkpoint.errors import InvalidConfigError
from ...hooks.airflow_api import AirflowApiError, AirflowApiHook, AirflowApiRefusedError
from ...tasks.clearing import SUCCESS, Where, compare_and_clear, idle, note_of
from ...tasks.stage_states import states_of
from .overtaken_epoch import COME_BACK_AFTER

log = logging.getLogger("airflow_cairn")

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
    removed = where.removed(stages)
    if removed:
        log.warning("%s must run again too: %s", named, where.ways_on_without(removed))
        return
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


def let_upstreams_run(
    answer: UpstreamsNotReady,
    stage: str,
    where: Where,
    conn_id: str | None,
    begin_again: Callable[[], BeginAnswer],
    to_run_again: Callable[[], Iterable[Restarted]],
) -> NoReturn:
    """Clear what must run again and is not cleared yet, and end this try without using one up.

    Args:
        answer: of the stage's `begin`.
        stage: its uid.
        where: its DAG run.
        conn_id: the connection to Airflow's API; None: a person clears.
        begin_again: asks what `answer` is the answer to once more.
        to_run_again: asks the store which stages have to run again and are not claimed.

    Raises:
        AirflowRescheduleException: the upstreams run again; Airflow starts this task after them.
        AirflowFailException: only a person can make them run again; the text says what to clear.
        AirflowApiError: the API cannot be reached; the task's own retry tries again.
    """
    why = (
        f"checkpoint {answer.checkpoint} · attempt {answer.attempt}: {', '.join(answer.upstreams)}, which stage "
        f"{stage} reads from, must run again first"
    )
    removed = where.removed(answer.upstreams)
    if removed:
        raise AirflowFailException(f"{why}: {where.ways_on_without(removed)}")
    known = {*answer.upstreams, *(each.stage for each in answer.restarted)}
    remedy = where.remedy({*known, stage})
    if conn_id is None:
        raise AirflowFailException(f"{why}. Cairn clears no task of this DAG (airflow_api_conn_id=None): {remedy}")
    try:
        with AirflowApiHook(conn_id) as api:
            note = note_of(answer.checkpoint, answer.attempt, f"`{stage}` reads from it")
            # Not itself: who has opened the next attempt may have named this task too, which is about to begin.
            others = [each for each in answer.restarted if each.stage != stage]
            cleared = compare_and_clear(api, where, others, note, to_run_again)
            left = idle(api, where, [each for each in answer.upstreams if each not in cleared.stages])
    except (AirflowNotFoundException, InvalidConfigError, AirflowApiRefusedError) as error:
        raise AirflowFailException(f"{why}, and that cannot be arranged: {error}. Mend that, and {remedy}") from None
    except AirflowApiError as error:
        later = f"{why}. {error.message}; the next try tries again, or {remedy}"
        raise AirflowApiError(later, **error.fields) from None
    # One that ended a moment ago may have acknowledged since. What is claimed now is found by the try that comes back.
    if left and isinstance(begin_again(), UpstreamsNotReady):
        raise AirflowFailException(f"{why}, and nothing will start them: {where.remedy({*left, stage})}")
    log.info("%s; %s. This task runs again after them", why, cleared)
    raise AirflowRescheduleException(datetime.now(UTC) + COME_BACK_AFTER)
