"""Lets the tasks of an epoch that another run has overtaken run again by themselves (semantics C2, D5, S1, T2).

The epoch's next attempt is based on another checkpoint, so all tasks that ran must run again. Three tasks may notice
that: a stage that begins, a stage that has ended, and the task that waits. Each does what is still to be done. They
compare before they clear (`clearing`), and triggering again returns the same checkpoint (T9). So any number of them may
act at once, and if one dies another takes over.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.sdk import TaskInstanceState
from airflow.sdk.exceptions import AirflowFailException, AirflowNotFoundException, AirflowRescheduleException

from ...checkpoint.answers import BeginAnswer, Restarted, UpstreamsNotReady
from ...checkpoint.errors import AirflowApiError, AirflowApiRefusedError, InvalidConfigError
from ...hooks.airflow_api import AirflowApiHook
from ...hooks.task_refs import AT_WORK, ENDED, GIVEN_UP
from ...storage.records import dataclass
from ...tasks.clearing import Where, compare_and_clear, idle, note_of
from ...tasks.stage_states import states_of

if TYPE_CHECKING:
    from airflow.sdk.types import RuntimeTaskInstanceProtocol

    from ...checkpoint import Coordinator
    from ...checkpoint.answers import Failed, Queued
    from ...checkpoint.documents.attempt import Handover
    from ...hooks.task_refs import TaskRef


log = logging.getLogger("airflow_cairn")

COME_BACK_AFTER = timedelta(seconds=10)
"""Minimum delay before the task starts again; Airflow does not start it before its upstreams have succeeded.

Not zero: Airflow treats a task as failed if it starts again before Airflow has seen the end of its last process
(measured).
"""

LOOK_AGAIN_AFTER = timedelta(seconds=15)
"""Delay until a stage in the queue asks again; the task that triggers waits as long."""


def wait_in_line(answer: Queued) -> NoReturn:
    """End this try without counting it: another epoch holds the place that the next attempt needs.

    Raises:
        AirflowRescheduleException: always.
    """
    log.info("The next attempt after checkpoint %d waits: %s", answer.checkpoint, answer.detail)
    raise AirflowRescheduleException(datetime.now(UTC) + LOOK_AGAIN_AFTER)


def reschedule_if_replaced(coordinator: Coordinator, handover: Handover, error: Exception) -> None:
    """End this try without counting it, if its execution was replaced and no other process clears its task (C2, F5).

    Another run has overtaken the epoch, or an attempt was opened between the claim's look at the head and the claim,
    by a process that could not see the claim.

    Raises:
        AirflowRescheduleException: this task begins again in the epoch's next attempt.
    """
    if coordinator.was_overtaken(handover):
        why = "was overtaken by another run"
    elif coordinator.was_missed(handover):
        why = "was replaced while this stage claimed its work"
    else:
        return
    log.info("Checkpoint %d %s, and this stage begins anew: %s", handover.checkpoint, why, error)
    raise AirflowRescheduleException(datetime.now(UTC) + COME_BACK_AFTER) from error


def overtaken_since(checkpoint: int) -> str:
    """Return why only the task that triggers can open the next attempt of an epoch whose last attempt completed."""
    return (
        f"another run has completed since checkpoint {checkpoint}: the task that triggers has to place this epoch's "
        "input anew, and to ask the master hooks"
    )


def let_trigger_run(why: str, stage: str, where: Where, conn_id: str | None) -> NoReturn:
    """Have the task that triggers open the epoch's next attempt, and end this try without counting it (T7, T8).

    Args:
        why: why the trigger must run and no stage can take its place.
        stage: the stage's uid.
        where: the stage's DAG run.
        conn_id: the connection to Airflow's API; None: a user clears.

    Raises:
        AirflowRescheduleException: the trigger runs; Airflow starts this task after it.
        AirflowFailException: only a user can make it run; the message says what to clear.
    """
    _trigger_again(where, conn_id, why, f"Cairn: `{stage}` waits for the checkpoint that this task triggers")
    log.info(
        "This stage cannot begin: %s. The task that triggers opens the next attempt; this task runs again after it", why
    )
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
    """Clear the trigger if it has ended; return whether Airflow has given it up, in which case it is not cleared.

    No comparison is needed: if another task has cleared it since and it has triggered, triggering again changes
    nothing.
    """
    facts = api.task_facts(where.dag_id, where.run_id, trigger)
    if facts is None or facts.state in GIVEN_UP:
        return True
    if facts.state in ENDED:
        api.clear(where.dag_id, where.run_id, [trigger], note)
    return False


@dataclass(frozen=True)
class GroupTasks:
    """Operations of a group for the task that waits for its checkpoint; see `sensors.outcome.RunsAgain`."""

    trigger: Callable[[], TaskRef]
    """Returns the task that triggers, once the whole DAG file has been parsed."""
    conn_id: str | None
    """The connection to Airflow's API; None: a user clears."""

    def trigger_again(self, ti: RuntimeTaskInstanceProtocol, progress: Failed) -> None:
        """Have the task that triggers open the epoch's next attempt, unless that task is about to.

        Raises:
            AirflowFailException: only a user can make it run; the message says what to clear.
        """
        where = Where(ti.dag_id, str(ti.run_id), trigger=self.trigger())
        note = f"Cairn: checkpoint {progress.checkpoint} was overtaken; its next attempt is waited for"
        _trigger_again(where, self.conn_id, overtaken_since(progress.checkpoint), note)


# Clears the other tasks that must run again after a failover or a clear of one stage; the first process does it (F1,
# F5).


def not_scheduled(ti: Any, where: Where, restarted: Iterable[Restarted]) -> list[Restarted]:
    """Return those stages whose tasks Airflow does not start by itself: they have succeeded, or an old try runs.

    Asks through the task's own channel to Airflow, which needs no connection.
    """
    found = list(restarted)
    states = states_of(ti, [where.tasks[each.stage] for each in found if each.stage in where.tasks])
    return [
        each
        for each in found
        if each.stage in where.tasks and states.get(where.tasks[each.stage]) in AT_WORK | {TaskInstanceState.SUCCESS}
    ]


def clear_restarted_stages(
    restarted: Collection[Restarted],
    stage: str,
    where: Where,
    conn_id: str | None,
    note: str,
    unclaimed_now: Callable[[], Collection[str]],
) -> None:
    """Clear the other tasks that must run again. Errors are logged, with the tasks that a user has to clear.

    The next try of a stage that reads from them clears them too, and so does the task that waits for the checkpoint.

    Args:
        restarted: the stages, each with the task that held it.
        stage: the stage that failed or was cleared.
        where: its DAG run.
        conn_id: the connection to Airflow's API; None: a user clears.
        note: the note that the page shows at each task.
        unclaimed_now: asks the store which stages no try has claimed in the pending attempt.
    """
    if not restarted:
        return
    stages = [each.stage for each in restarted]
    named = ", ".join(stages)
    removed = where.removed(stages)
    if removed:
        log.warning("Stages must run again too, %s: %s", named, where.ways_on_without(removed))
        return
    if conn_id is None:
        log.warning(
            "Stages must run again too, %s, and Cairn clears no task of this DAG (airflow_api_conn_id=None): %s",
            named,
            where.remedy([*stages, stage]),
        )
        return
    try:
        with AirflowApiHook(conn_id) as api:
            cleared = compare_and_clear(api, where, restarted, note, unclaimed_now)
    except Exception as error:
        remedy = where.remedy([*stages, stage])
        # The page folds the trace away, so the log line includes the error.
        log.exception("Stages must run again too, %s, and could not be cleared (%s): %s", named, error, remedy)  # noqa: TRY401
        return
    log.info("%s", cleared)


def let_upstreams_run(
    answer: UpstreamsNotReady,
    stage: str,
    where: Where,
    conn_id: str | None,
    begin_again: Callable[[], BeginAnswer],
    unclaimed_now: Callable[[], Collection[str]],
) -> NoReturn:
    """Clear the upstreams that must run again and are not cleared yet, and end this try without counting it.

    Args:
        answer: the answer to the stage's `begin`.
        stage: the stage's uid.
        where: its DAG run.
        conn_id: the connection to Airflow's API; None: a user clears.
        begin_again: repeats the stage's `begin`.
        unclaimed_now: asks the store which stages no try has claimed in the pending attempt.

    Raises:
        AirflowRescheduleException: the upstreams run again; Airflow starts this task after them.
        AirflowFailException: only a user can make them run again; the message says what to clear.
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
            # Leave this task out, though the next attempt may name it too: it is about to begin.
            others = [each for each in answer.restarted if each.stage != stage]
            cleared = compare_and_clear(api, where, others, note, unclaimed_now)
            left = idle(api, where, [each for each in answer.upstreams if each not in cleared.stages])
    except (AirflowNotFoundException, InvalidConfigError, AirflowApiRefusedError) as error:
        raise AirflowFailException(f"{why}, and that cannot be arranged: {error}. Mend that, and {remedy}") from None
    except AirflowApiError as error:
        later = f"{why}. {error.message}; the next try tries again, or {remedy}"
        raise AirflowApiError(later, **error.fields) from None
    # A task that ended a moment ago may have acknowledged since. Stages claimed by now are found by the next try.
    if left and isinstance(begin_again(), UpstreamsNotReady):
        if set(left.values()) != {TaskInstanceState.SUCCESS}:
            raise AirflowFailException(f"{why}, and nothing will start them: {where.remedy({*left, stage})}")
        # They succeeded without an acknowledgement: a person has marked them, or has deleted their acknowledgements.
        with AirflowApiHook(conn_id) as api:
            api.clear(where.dag_id, where.run_id, where.with_plain(left), note)
        log.warning("Cleared, because they ended well without an acknowledgement in the store: %s", ", ".join(left))
    log.info("This stage cannot begin: %s. %s. This task runs again after them", why, cleared)
    raise AirflowRescheduleException(datetime.now(UTC) + COME_BACK_AFTER)
