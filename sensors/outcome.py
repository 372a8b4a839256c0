"""Reports how an epoch ended, for `wait_for_checkpoint`, and cleans up afterwards."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Protocol

from airflow.sdk import Asset
from airflow.sdk.exceptions import AirflowFailException, AirflowSensorTimeout

from ..checkpoint.answers import EpochCompleted, Failed
from ..checkpoint.documents import layout
from ..checkpoint.documents.attempt import run_text
from ..checkpoint.documents.head import run_of_head
from ..checkpoint.errors import CheckpointFailedError, InvalidConfigError, RefusedError
from ..checkpoint.reasons import Status, cause_first
from ..checkpoint.remedies import LEFT_BEHIND, REMEDIES
from ..checkpoint.savepoints.savepoint_request import OpenFolder
from ..storage.errors import CairnError
from ..storage.names import StorageUri, check_name, shorten
from ..tasks.messages import skipping

if TYPE_CHECKING:
    from airflow.sdk import BaseSensorOperator, Context
    from airflow.sdk.types import RuntimeTaskInstanceProtocol

    from ..checkpoint import Coordinator
    from ..checkpoint.documents.entries import SavepointEntry
    from ..tasks.job_settings import JobSettings

log = logging.getLogger("airflow_cairn")


@contextmanager
def skipping_as_told(sensor: BaseSensorOperator) -> Iterator[None]:
    """Turn failures into skips as `soft_fail` or `never_fail` say, in every mode, as a poking sensor does.

    Raises:
        AirflowSkipException: the block failed, and one of them is set.
    """
    try:
        yield
    except (AirflowFailException, AirflowSensorTimeout, CairnError) as error:
        if sensor.never_fail or (sensor.soft_fail and not isinstance(error, CairnError)):
            option = "never_fail" if sensor.never_fail else "soft_fail"
            raise skipping(f"Skipping due to {option} is set to True. {error}") from error
        raise


def result_of(coordinator: Coordinator, completed: EpochCompleted, run_id: str) -> dict[str, Any]:
    """Log the contents of a completed checkpoint, and return them as the task's result."""
    head = coordinator.known_head()
    entry, held = head.ended_by_id(completed.checkpoint), head.completed_by_id(completed.checkpoint)
    facts: dict[str, Any] = {"job": coordinator.job, "checkpoint": completed.checkpoint, "epoch": completed.epoch}
    if entry is None:
        log.info("Checkpoint %d · epoch %s: completed long ago", completed.checkpoint, run_id)
        return facts
    took_ms = entry.ended_at_ms - entry.triggered_at_ms
    log.info(
        "Checkpoint %d · epoch %s: completed · attempt %d · %s · %d bytes · %.1f s",
        completed.checkpoint,
        run_text(run_id, entry.window),
        entry.attempt,
        "1 ack" if entry.acks == 1 else f"{entry.acks} acks",
        entry.size_bytes,
        took_ms / 1000,
    )
    if entry.left_out:
        log.warning(
            "The checkpoint completed without %s; their input is kept, and the next epoch reads it first",
            ", ".join(entry.left_out),
        )
        facts["left_out"] = list(entry.left_out)
    if held is not None and held.tables:
        facts["tables"] = sorted(held.tables)
    return {
        **facts,
        "attempt": entry.attempt,
        "acks": entry.acks,
        "size_bytes": entry.size_bytes,
        "duration_ms": took_ms,
    }


def failure_of(
    coordinator: Coordinator, storage: StorageUri, ended: Failed, run_id: str
) -> CheckpointFailedError | AirflowFailException | InvalidConfigError:
    """Return the error with which the task fails: it says what happened, why, and what to do next.

    Args:
        coordinator: the job's coordinator.
        storage: the storage, for the commands in the message.
        ended: how the epoch's newest attempt ended; checkpoint 0: none is known.
        run_id: the DAG run's id.
    """
    if ended.checkpoint == 0:
        return InvalidConfigError(
            "no checkpoint of this run's epoch is known. If none was ever triggered, put a "
            "TriggerCheckpointOperator of the same job before the stages, or use a CheckpointedTaskGroup. If the "
            "last one ended so long ago that the job's history has forgotten it, clear the whole run",
            job=coordinator.job,
            epoch=run_id,
        )
    run = run_of_head(coordinator.head(), layout.epoch_name(run_id))
    facts = {"job": coordinator.job, "epoch": run, "attempt": ended.attempt}
    way_out = REMEDIES[ended.reason]
    said = next_step_of(coordinator, storage, ended)
    cause = f"checkpoint {ended.checkpoint} failed: {cause_first(ended.detail, ended.reason)}. {said}"
    if ended.for_good:
        return CheckpointFailedError(f"the epoch failed, and no other try follows: {cause}", code="job_failed", **facts)
    if ended.job_failed:
        return CheckpointFailedError(
            f"the job failed, because `tolerable_failed_checkpoints` allows no more failed ones: {cause}",
            code="job_failed",
            **facts,
        )
    failed = CheckpointFailedError(cause, **facts)
    if ended.left_behind or not way_out.waiting_helps:
        # No stage's own retry opens another attempt, so another try of this task would find the same.
        return AirflowFailException(str(failed))
    return failed


def next_step_of(coordinator: Coordinator, storage: StorageUri, ended: Failed) -> str:
    """Return a user's next step for an epoch's newest attempt, which is known."""
    return LEFT_BEHIND if ended.left_behind else REMEDIES[ended.reason].text(coordinator.job, storage, ended.checkpoint)


def clean(coordinator: Coordinator) -> None:
    """Delete files that nothing refers to; the checkpoint is complete, so errors fail no task (C3, W7)."""
    try:
        report = coordinator.clean(spares_looks=True)
    except Exception:
        log.exception("Cleaning failed; the next completed checkpoint cleans again")
        return
    log.info("Cleaning has deleted %d files and aborted %d uploads", report.deleted, report.uploads_aborted)
    if report.foreign:
        named = ", ".join(report.foreign[:10])
        log.warning("Cleaning passed over %d files that Cairn has not written: %s", len(report.foreign), named)
    for failure in report.failures[:10]:
        log.warning("Could not delete %s: %s", failure.key, failure.reason)
    if len(report.failures) > 10:
        log.warning("Of the files, %d more could not be deleted", len(report.failures) - 10)


# Goes on with savepoints that users requested on the pages in Airflow (semantics P1, P2).
#
# No process of the user waits for the epoch. So the task that ends the epoch copies the files, and so does the API
# server when a user has it go on. Both write the same bytes under the same names, and both make only savepoints below
# the target that the DAG names: a target that only the job's record names is not opened.


SOONEST = timedelta(seconds=10)
"""Minimum delay before a stop is tried again."""
LATEST = timedelta(minutes=10)
"""Maximum delay before a stop is tried again."""


def make_asked_savepoints(
    coordinator: Coordinator, target: str | None, open_folder: OpenFolder
) -> SavepointEntry | None:
    """Copy the files of pending savepoints; errors are only logged, because the epoch itself is complete.

    Args:
        coordinator: the job's coordinator.
        target: the DAG's target for the job's savepoints; those elsewhere stay as they are.
        open_folder: opens the target.

    Returns:
        A stop whose files could not be copied now: no other run begins until it has ended, so no other task would copy
        them. None: there is none.
    """
    held = None
    for entry in coordinator.savepoints_to_go_on_with():
        try:
            ended = coordinator.go_on_with_savepoint(entry.request, target, open_folder)
        except RefusedError as error:
            log.warning("Savepoint %d, asked for from the page, is left as it is: %s", entry.id, error)
            continue
        except CairnError:
            if entry.stops:
                log.exception("The job could not be stopped with savepoint %d now; this task tries again", entry.id)
                held = entry
            else:
                log.exception("Savepoint %d, asked for from the page, could not be made now", entry.id)
            continue
        if ended is not None and ended.status is Status.COMPLETED:
            log.info("Savepoint %d, which %s asked for, is complete: %s", ended.id, ended.actor, ended.uri)
    return held


def again_after(entry: SavepointEntry, now_ms: int) -> timedelta:
    """Return the delay before another try: a tenth of the stop's age; the stop's timeout ends it."""
    age = timedelta(milliseconds=now_ms - entry.requested_at_ms)
    return min(max(age / 10, SOONEST), LATEST)


# The group's operations for `wait_for_checkpoint`.


class RunsAgain(Protocol):
    """A group's tasks that can run again."""

    def trigger_again(self, ti: RuntimeTaskInstanceProtocol, progress: Failed) -> None:
        """Have the task that triggers open the epoch's next attempt, unless it is about to do so."""


# Asset events of an epoch's last task: they say which checkpoint completed, and its contents. Airflow registers a
# task's asset events with its success, in one transaction. A task that dies before leaves no event, and its next try
# finds the same checkpoint. A task that a user clears succeeds again, with another event of the same checkpoint.


def check_table_outlets(table_outlets: object, others: Iterable[object] = ()) -> dict[str, Asset]:
    """Check the assets that get an event for each published table.

    Args:
        table_outlets: an asset for each table, by the table's name.
        others: the assets that get an event for the whole checkpoint.

    Raises:
        InvalidConfigError: `table_outlets` maps something else, or an asset is named twice: its event would have two
            meanings.
        InvalidKeyError: no table can have such a name (semantics W1).
    """
    if table_outlets is None:
        return {}
    if not isinstance(table_outlets, Mapping) or not all(isinstance(each, Asset) for each in table_outlets.values()):
        raise InvalidConfigError(
            "table_outlets must give an asset for each table: table_outlets={'totals': Asset('totals')}",
            table_outlets=shorten(table_outlets),
        )
    found = {check_name("table", name): asset for name, asset in table_outlets.items()}
    # Airflow identifies an event's asset by name and URI.
    taken = [(each.name, each.uri) for each in others if isinstance(each, Asset)]
    for name, asset in found.items():
        if (asset.name, asset.uri) in taken:
            raise InvalidConfigError(
                "an asset in table_outlets is that of another table, or in outlets too: give each an asset of its own",
                table=name,
                asset=asset.name,
            )
        taken.append((asset.name, asset.uri))
    return found


def rows_by_table(coordinator: Coordinator | None, result: Mapping[str, Any]) -> dict[str, int]:
    """Return the number of rows that the epoch has written to each published table, if known.

    A store that does not answer does not delay the event.

    Args:
        coordinator: the job's coordinator; None: nothing is known.
        result: the task's result.
    """
    if coordinator is None or "tables" not in result:
        return {}
    from ..checkpoint.views import data_sets  # here: a DAG file does not need it

    try:
        found = data_sets.rows_written(coordinator, result["checkpoint"]) or {}
    except CairnError as error:
        log.warning("The asset events say no rows: %s", error)
        return {}
    return {name: rows for name, rows in found.items() if rows is not None}


def describe(
    outlets: Iterable[object],
    tables: Mapping[str, Asset],
    context: Context,
    settings: JobSettings,
    result: Mapping[str, Any],
    rows: Mapping[str, int],
) -> None:
    """Write to the event of each asset which checkpoint completed; an author's own entries stay.

    Args:
        outlets: the task's outlets; those that are not an `Asset` stay unchanged.
        tables: the assets among them that stand for a table, by the table's name.
        context: Airflow's task context.
        settings: the job and its storage.
        result: the task's result.
        rows: the number of rows that the epoch has written, by table.
    """
    facts = {"storage": str(settings.storage), "run_id": context["ti"].run_id, **result}
    for asset in outlets:
        if isinstance(asset, Asset):
            names = [name for name, of in tables.items() if of == asset]
            event = context["outlet_events"][asset]
            event.extra = {**facts, **_of_tables(names, rows), **event.extra}
    published = result.get("tables", ())
    for name in tables:
        if "acks" in result and name not in published:
            known = ", ".join(published) or "none"
            log.warning(
                "The option table_outlets names %r, which the checkpoint does not publish; it publishes: %s",
                name,
                known,
            )


def _of_tables(names: list[str], rows: Mapping[str, int]) -> dict[str, Any]:
    """Return the facts about tables: a table's own event names that table, the checkpoint's has the rows of all."""
    if not names:
        return {"rows": dict(rows)} if rows else {}
    (name,) = names
    return {"table": name, **({"rows": rows[name]} if name in rows else {})}
