"""A stage whose upstreams have to run again: its task is rescheduled until they have (semantics F1, B1)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import NoReturn

from airflow.sdk.exceptions import AirflowFailException, AirflowNotFoundException, AirflowRescheduleException

from ...checkpoint.answers import BeginAnswer, Restarted, UpstreamsNotReady
from ...checkpoint.errors import InvalidConfigError
from ...hooks.airflow_api import AirflowApiError, AirflowApiHook, AirflowApiRefusedError
from ...tasks.clearing import Where, compare_and_clear, idle, note_of

log = logging.getLogger(__name__)

COME_BACK_AFTER = timedelta(seconds=10)
"""At the earliest; Airflow does not start the task before its upstreams have succeeded."""


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
