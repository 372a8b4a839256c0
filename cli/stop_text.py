"""`cairn stop`: stops a job with a savepoint, so that no epoch begins in between (semantics P2)."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..checkpoint import Coordinator, system_runtime
from ..checkpoint.documents.entries import SavepointEntry, Stopped
from ..checkpoint.documents.layout import epoch_name, run_id_of
from ..checkpoint.documents.run_window import run_text
from ..checkpoint.errors import InvalidConfigError, RetryLaterError
from ..checkpoint.reasons import Status, cause_first
from ..checkpoint.savepoints.savepoint_request import OpenFolder, SavepointRequest, drain_run
from ..checkpoint.views import wording
from ..checkpoint.views.checkpoint_list import savepoint_json
from ..storage.errors import CairnError
from .airflow_api import TOKEN, AirflowApi
from .output import text
from .output.text import ProgressLine
from .savepoints import announce, in_flight, request_of, waited_for


@dataclass(frozen=True, slots=True)
class Airflow:
    """Airflow, as far as a stop needs it: starts the job's last run, and pauses its DAG."""

    api: AirflowApi
    dag_id: str


def airflow_of(job: str, options: argparse.Namespace, environ: Mapping[str, str]) -> Airflow | None:
    """Return Airflow as the command's arguments name it; None if they name no address.

    Args:
        job: the job's name, which is the DAG's id unless another is given.
        options: the command's arguments: `airflow_url`, `dag`.
        environ: holds the token.

    Raises:
        InvalidConfigError: the URL is invalid, the token is missing, or a DAG is given without an address.
    """
    if options.airflow_url is None:
        if options.dag is not None:
            raise InvalidConfigError("--dag is for Airflow: give --airflow-url, or set CAIRN_AIRFLOW_URL")
        return None
    return Airflow(AirflowApi(options.airflow_url, environ.get(TOKEN)), options.dag or job)


def stop(
    coordinator: Coordinator,
    options: argparse.Namespace,
    opened: OpenFolder,
    wait: Callable[[float], object],
    airflow: Airflow | None = None,
) -> tuple[list[str], dict[str, Any], bool]:
    """Stop a job with a savepoint, or go on with a stop.

    Args:
        coordinator: the job's coordinator.
        options: the command's arguments: `target`, `request_id`, `drain`, `wait`.
        opened: opens the savepoint's folder.
        wait: waits for the given seconds.
        airflow: starts the last run, and pauses the DAG once the job has stopped; None: a user does both.

    Returns:
        Lines and JSON document of the result, and whether the job did not stop.

    Raises:
        RefusedError: Airflow has no such DAG, or the last run would not start; nothing was opened; or the job refused
            the savepoint; nothing was opened, and the job goes on.
        AirflowApiRefusedError: Airflow refuses the token, or the token lacks the right; nothing was opened.
        RetryLaterError: the job has stopped, but its DAG is not paused; the message names the savepoint.
        NoCheckpointError: the job has no completed checkpoint.
    """
    request = request_of(options, "stop")
    before = coordinator.look_for_savepoint(request)
    if before is None or before.status is Status.FAILED:
        _check(coordinator.job, airflow, drains=options.drain)
    last = epoch_name(drain_run(request, before)) if options.drain else None
    asked = SavepointRequest(options.target, request, renew=True, stop=True, drain=last)
    coordinator.check_savepoint(asked)
    announce(options, request)
    with ProgressLine("copied") as line:
        entry = coordinator.savepoint(asked, opened, line.show)
        if _settle_if_over(coordinator, airflow, request):
            entry = coordinator.savepoint(replace(asked, renew=False), opened, line.show)
        # A repeated request may omit --drain.
        run = run_id_of(entry.epoch) if entry.drains else None
        if run is not None and entry.waits:
            if airflow is not None:
                airflow.api.start_run(airflow.dag_id, run, system_runtime().now_ms())
            elif options.wait:
                print("\n".join(_trigger_it(run)), file=sys.stderr)
        if options.wait:
            again = replace(asked, renew=False)

            def ask() -> SavepointEntry:
                _settle_if_over(coordinator, airflow, again.request)
                return coordinator.savepoint(again, opened, line.show)

            entry = waited_for(coordinator, entry, ask, wait)
    stopped = coordinator.head().stopped
    if airflow is not None and entry.status is Status.COMPLETED and stopped is Stopped.SHUTDOWN:
        _pause(airflow, coordinator.job, entry)
    document = {"job": coordinator.job, "stopped": stopped, **savepoint_json(entry)}
    lines = list(_said(coordinator, entry, run, airflow, stopped=stopped is Stopped.SHUTDOWN))
    return lines, document | {"last_run": run}, entry.status is Status.FAILED


def _settle_if_over(coordinator: Coordinator, airflow: Airflow | None, request: str) -> bool:
    """Fail a stop whose last run has ended without its epoch: Airflow knows that, the head does not (semantics P2)."""
    entry = coordinator.look_for_savepoint(request)
    if airflow is None or entry is None or not (entry.waits and entry.drains):
        return False
    run = run_id_of(entry.epoch)
    if not airflow.api.is_over(airflow.dag_id, run):
        return False
    return coordinator.give_up_stop(entry.epoch, f"its DAG run {run} has ended")


def _check(job: str, airflow: Airflow | None, *, drains: bool) -> None:
    """Check, before the head holds the job back, that Airflow will do its part."""
    if airflow is not None and drains:
        airflow.api.check_runs(job, airflow.dag_id)
    elif airflow is not None:
        airflow.api.is_paused(job, airflow.dag_id)


def _pause(airflow: Airflow, job: str, entry: SavepointEntry) -> None:
    try:
        airflow.api.pause(airflow.dag_id)
    except CairnError as error:
        raise RetryLaterError(
            f"the job has stopped, and its savepoint is kept; but the DAG is not paused: {error.message}. Pause it "
            "manually",
            code="dag_not_paused",
            **{**error.fields, "job": job, "savepoint": entry.uri},
        ) from error


def _said(
    coordinator: Coordinator, entry: SavepointEntry, run: str | None, airflow: Airflow | None, *, stopped: bool
) -> Iterator[str]:
    columns, job = text.width(), coordinator.job
    paused = f"{airflow.dag_id} is paused" if airflow else "pause the DAG, so that its runs do not fail meanwhile"
    if entry.status is Status.COMPLETED and not stopped:
        yield entry.uri
        yield from text.paragraph(f"{job} had stopped with savepoint {entry.id}, and was resumed since", columns)
    elif entry.status is Status.COMPLETED:
        yield entry.uri
        yield from text.paragraph(
            f"{job} has stopped with savepoint {entry.id}, up to {run_text(run_id_of(entry.epoch), entry.window)}: "
            f"{entry.files} files, {wording.size(entry.size_bytes)}{in_flight(entry)}. It takes no request until "
            f"`cairn resume {job} {coordinator.files.storage_option}`; {paused}",
            columns,
        )
    elif entry.status is Status.FAILED:
        why = cause_first(entry.detail, entry.reason)
        yield from text.paragraph(f"{job} goes on: savepoint {entry.id} FAILED: {why}", columns)
    elif run is not None and entry.waits:
        yield from text.paragraph(
            f"{job} is being stopped; no run begins but its last one. When that has completed, ask again with the same "
            "request id",
            columns,
        )
        if airflow is None:
            yield from _trigger_it(run)
    else:
        yield from text.paragraph(
            f"{job} is being stopped; the savepoint waits for {coordinator.awaited_by(entry)}. No run begins after "
            f"that. Then ask again with the same request id, {entry.request}, or say --wait. Do not pause the DAG "
            "before: Airflow starts no tasks of a paused one",
            columns,
        )


def _trigger_it(run: str) -> Iterator[str]:
    yield "start the last run:"
    yield f"  airflow dags trigger DAG_ID --run-id {run}"
