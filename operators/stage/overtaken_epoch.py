"""What tasks do whose epoch another run has overtaken: they run again by themselves (semantics C2, D5, S1, T2).

The epoch's next attempt stands on another checkpoint, so all that had run has to run again. Each of three may come
first, and each does what is still to be done: a stage that begins, a stage that stopped, the task that waits.
What they clear is compared first (`clearing`), and triggering again gives the same checkpoint (T9); so it makes no
difference how many of them come, and one that dies is followed by another.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, NoReturn

from airflow.sdk.exceptions import AirflowFailException, AirflowNotFoundException, AirflowRescheduleException

from ...checkpoint.errors import InvalidConfigError
from ...hooks.airflow_api import AirflowApiHook, AirflowApiRefusedError
from ...tasks.clearing import ENDED, GIVEN_UP, Where

if TYPE_CHECKING:
    from airflow.sdk.types import RuntimeTaskInstanceProtocol

    from ...checkpoint import Coordinator
    from ...checkpoint.answers import Failed, Queued
    from ...checkpoint.documents.attempt import Handover
    from ...hooks.clear_body import TaskRef

log = logging.getLogger("airflow_cairn")

COME_BACK_AFTER = timedelta(seconds=10)
"""At the earliest; Airflow does not start the task before its upstreams have succeeded.

Never at once: a task that begins anew before Airflow has seen the end of its last process is taken for failed
(measured).
"""

LOOK_AGAIN_AFTER = timedelta(seconds=15)
"""How long a stage waits in the queue before it asks again, as the task that triggers does."""


def wait_in_line(answer: Queued) -> NoReturn:
    """End this try without using one up: another epoch holds the place that the next attempt needs.

    Raises:
        AirflowRescheduleException: always.
    """
    log.info("the next attempt after checkpoint %d waits: %s", answer.checkpoint, answer.detail)
    raise AirflowRescheduleException(datetime.now(UTC) + LOOK_AGAIN_AFTER)


def come_back_if_overtaken(coordinator: Coordinator, handover: Handover, error: Exception) -> None:
    """End this try without using one up, if its execution counts no more because the epoch was overtaken (C2).

    Raises:
        AirflowRescheduleException: it was; this task begins anew in the epoch's next attempt.
    """
    if coordinator.was_overtaken(handover):
        log.info(
            "checkpoint %d was overtaken by another run, and this stage begins anew: %s", handover.checkpoint, error
        )
        raise AirflowRescheduleException(datetime.now(UTC) + COME_BACK_AFTER) from error


def overtaken_since(checkpoint: int) -> str:
    """Say why only the task that triggers can open the next attempt of an epoch whose last one is a checkpoint."""
    return (
        f"another run has completed since checkpoint {checkpoint}: the task that triggers has to place this epoch's "
        "input anew, and to ask the master hooks"
    )


def let_trigger_run(why: str, stage: str, where: Where, conn_id: str | None) -> NoReturn:
    """Have the task that triggers open the epoch's next attempt, and end this try without using one up (T7, T8).

    Args:
        why: it has to, and no stage can.
        stage: the stage's uid.
        where: the stage's DAG run.
        conn_id: the connection to Airflow's API; None: a person clears.

    Raises:
        AirflowRescheduleException: the task runs; Airflow starts this one after it.
        AirflowFailException: only a person can make it run; the text says what to clear.
        AirflowApiError: the API cannot be reached; the task's own retry tries again.
    """
    _trigger_again(where, conn_id, why, f"Cairn: `{stage}` waits for the checkpoint that this task triggers")
    log.info("%s. The task that triggers opens the next attempt; this task runs again after it", why)
    raise AirflowRescheduleException(datetime.now(UTC) + COME_BACK_AFTER)


def _trigger_again(where: Where, conn_id: str | None, why: str, note: str) -> None:
    remedy = (
        f"on the page of the DAG {where.dag_id}, run {where.run_id}, choose Clear Task Instance at "
        f"{where.trigger_name}, with Downstream switched on"
    )
    if conn_id is None or where.trigger is None:
        raise AirflowFailException(f"{why}. Clear manually: {remedy}")
    try:
        with AirflowApiHook(conn_id) as api:
            given_up = _clear_trigger(api, where, where.trigger, note)
    except (AirflowNotFoundException, InvalidConfigError, AirflowApiRefusedError) as error:
        raise AirflowFailException(f"{why}, and that cannot be arranged: {error}. Mend that, and {remedy}") from None
    if given_up:
        raise AirflowFailException(f"{why}, and it has failed: see its log. Then {remedy}")


def _clear_trigger(api: AirflowApiHook, where: Where, trigger: TaskRef, note: str) -> bool:
    """Clear the task that triggers if it has ended; tell whether Airflow has given it up, and it was left alone.

    Nothing is compared: where another task cleared it since, and it has triggered, triggering again changes nothing.
    """
    facts = api.task_facts(where.dag_id, where.run_id, trigger)
    if facts is None or facts.state in GIVEN_UP:
        return True
    if facts.state in ENDED:
        api.clear(where.dag_id, where.run_id, [trigger], note)
    return False


@dataclass(frozen=True)
class GroupTasks:
    """What the task that waits for a checkpoint needs of its group; see `sensors.runs_again.RunsAgain`."""

    trigger: Callable[[], TaskRef]
    """The task that triggers, once the whole DAG file has been parsed."""
    conn_id: str | None
    """The connection to Airflow's API; None: a person clears."""

    def trigger_again(self, ti: RuntimeTaskInstanceProtocol, progress: Failed) -> None:
        """Have the task that triggers open the epoch's next attempt, unless it is about to.

        Raises:
            AirflowFailException: only a person can make it run; the text says what to clear.
            AirflowApiError: the API cannot be reached; asking again may help.
        """
        where = Where(ti.dag_id, str(ti.run_id), trigger=self.trigger())
        note = f"Cairn: checkpoint {progress.checkpoint} was overtaken; its next attempt is waited for"
        _trigger_again(where, self.conn_id, overtaken_since(progress.checkpoint), note)
