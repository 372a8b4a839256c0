"""`cairn savepoint`, `savepoints`, `dispose`, and `verify` of a savepoint's folder."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, replace
from typing import Any

from ..checkpoint import Coordinator, system_runtime
from ..checkpoint.documents.attempt import run_of_slice, run_text, window_text
from ..checkpoint.documents.entries import SavepointEntry, Stopped
from ..checkpoint.documents.layout import epoch_name, run_id_of
from ..checkpoint.errors import InvalidConfigError, RetryLaterError
from ..checkpoint.reasons import Status, cause_first
from ..checkpoint.savepoints import disposal, integrity
from ..checkpoint.savepoints.disposal import Disposal
from ..checkpoint.savepoints.savepoint_format import open_named
from ..checkpoint.savepoints.savepoint_request import OpenFolder, SavepointRequest, drain_run
from ..checkpoint.views import wording
from ..checkpoint.views.checkpoint_list import Shown, window_json
from ..checkpoint.views.details import savepoint_json
from ..storage.errors import CairnError, printable
from ..storage.port import ObjectStore
from ..storage.records import dataclass
from .airflow_api import TOKEN, AirflowApi
from .output import text
from .output.text import ProgressLine, ask

INTERVAL_S = 2.0
"""Seconds between two looks of `--wait`."""

Found = tuple[list[str], dict[str, Any]]


def savepoint(
    coordinator: Coordinator, options: argparse.Namespace, opened: OpenFolder, wait: Callable[[float], object]
) -> tuple[list[str], dict[str, Any], bool]:
    """Take a savepoint, or go on with one; returns lines, JSON document, and whether it failed."""
    request = SavepointRequest(options.target, request_of(options, "by-hand"), renew=True)
    coordinator.check_savepoint(request)
    announce(options, request.request)
    with ProgressLine("copied") as line:
        entry = coordinator.savepoint(request, opened, line.show)
        if options.wait:
            again = replace(request, renew=False)
            entry = waited_for(coordinator, entry, lambda: coordinator.savepoint(again, opened, line.show), wait)
    return list(_savepoint_lines(coordinator, entry)), savepoint_json(entry), entry.status is Status.FAILED


def request_of(options: argparse.Namespace, kind: str) -> str:
    """Return the request's id: the given one, or a generated one."""
    if options.request_id is not None:
        given: str = options.request_id
        return given
    # No spaces, so that it can be pasted into a shell unquoted.
    return f"{kind}-{system_runtime().new_token()}"


def announce(options: argparse.Namespace, request: str) -> None:
    """Print a generated request id, because a repeated request with it goes on with the first."""
    if options.request_id is None:
        options.made_up_id = request
        print(f"request id: {printable(request)}", file=sys.stderr)


def waited_for(
    coordinator: Coordinator,
    entry: SavepointEntry,
    ask: Callable[[], SavepointEntry],
    wait: Callable[[float], object],
) -> SavepointEntry:
    """Ask for a savepoint again until it no longer waits; print what `--wait` waits for, perhaps hours.

    `ask` asks for the same savepoint again, never for a new one: if it has failed by now, that must be reported.
    """
    said = ""
    while not entry.ended:
        awaited = printable(coordinator.awaited_by(entry))
        if awaited != said:
            print(f"waiting for {awaited}; Ctrl-C ends only this", file=sys.stderr)
        said = awaited
        wait(INTERVAL_S)
        entry = ask()
    return entry


def savepoints(coordinator: Coordinator) -> Found:
    """List the savepoints that a job remembers, newest first."""
    found = list(reversed(coordinator.head().savepoints))
    document = {"job": coordinator.job, "savepoints": [savepoint_json(entry) for entry in found]}
    if not found:
        return [f"{coordinator.job} remembers no savepoint"], document
    headings = ("id", "DAG run", "input (UTC)", "status", "files", "size", "asked for")
    columns = text.width()
    lines = []
    for row, entry in zip(
        text.table(headings, [_cells(entry, columns) for entry in found], right=("id", "files", "size")),
        (None, None, *found),
        strict=True,
    ):
        lines.append(row)
        if entry is not None:
            lines.append(f"    {entry.uri}")
            if entry.reason is not None:
                why = cause_first(entry.detail, entry.reason)
                lines += [f"    {each}" for each in text.paragraph(why, columns - 4)]
    return lines, document


def verify(folder: ObjectStore) -> tuple[list[str], dict[str, Any], bool]:
    """Check every file of a savepoint's folder; returns lines, JSON document, and whether it is damaged."""
    found = integrity.load(folder)
    with ProgressLine("checked") as line:
        damages = list(integrity.damages(folder, found, line.show))
    run = run_of_slice(found.source.epoch, found.source.slice)
    holds = f"of {found.header.job}, up to {run}, checkpoint {found.source.checkpoint}"
    size = f"{found.end.files} files, {wording.size(found.end.size_bytes)}"
    lines = [f"savepoint {holds}: {'DAMAGED' if damages else 'whole'}, {size}"]
    lines += [f"  {damage}" for damage in damages]
    document = {
        "savepoint": folder.uri,
        "job": found.header.job,
        "checkpoint": found.source.checkpoint,
        "run_id": run_id_of(found.source.epoch),
        "input": window_json(window_text(found.source.slice)),
        "request": found.header.request,
        "stages": [stage.uid for stage in found.stages],
        "files": found.end.files,
        "size_bytes": found.end.size_bytes,
        "whole": not damages,
        "damages": [asdict(damage) for damage in damages],
    }
    return lines, document, bool(damages)


def dispose(
    store: ObjectStore, opened: OpenFolder, options: argparse.Namespace
) -> tuple[list[str], dict[str, Any], bool]:
    """Dispose of a savepoint, after the user at the terminal has agreed.

    The storage's jobs are asked whether they need the savepoint.

    Returns:
        Lines and JSON document of the result, and whether a file could not be deleted.
    """
    folder = open_named(options.path, opened)
    plan = disposal.plan(store, folder, opened)
    if not options.yes and (options.force or not plan.against):
        ask(_lost(plan), "Delete it?", "savepoint_refused", "deleted", savepoint=plan.uri)
    found = disposal.dispose(store, folder, system_runtime(), opened, force=options.force)
    lines = [*_lost(found), f"deleted: {found.uri}"]
    if found.failures:
        lines = [f"could not be deleted, type it again to go on: {each.key}: {each.reason}" for each in found.failures]
    document = {
        "savepoint": found.uri,
        "job": found.job,
        "files": found.files,
        "size_bytes": found.size_bytes,
        "against": list(found.against),
        "failures": [asdict(each) for each in found.failures],
    }
    return lines, document, bool(found.failures)


def in_flight(entry: SavepointEntry) -> str:
    """Return a clause with the stages that still have to read input held by a savepoint (semantics P1, B2)."""
    return f"; still to be read by {', '.join(entry.owing)}: what it holds in flight" if entry.owing else ""


def _savepoint_lines(coordinator: Coordinator, entry: SavepointEntry) -> Iterator[str]:
    job = coordinator.job
    if entry.status is Status.COMPLETED:
        yield entry.uri
        yield from text.paragraph(
            f"savepoint {entry.id} of {job}, up to {run_text(run_id_of(entry.epoch), entry.window)}: "
            f"{entry.files} files, {wording.size(entry.size_bytes)}{in_flight(entry)}"
        )
    elif entry.status is Status.FAILED:
        yield from text.paragraph(f"savepoint {entry.id} FAILED: {cause_first(entry.detail, entry.reason)}")
    else:
        yield from text.paragraph(
            f"savepoint {entry.id} of {job} waits for {coordinator.awaited_by(entry)}. Then ask again with the same "
            f"request id, {entry.request}, or give --wait"
        )


def _cells(entry: SavepointEntry, columns: int) -> tuple[str, ...]:
    whole = entry.status is Status.COMPLETED
    return (
        str(entry.id),
        text.run_name(run_id_of(entry.epoch), max(24, columns - 96)),
        text.window(entry.window),
        Shown.of(entry.status),
        str(entry.files) if whole else "-",
        wording.size(entry.size_bytes) if whole else "-",
        wording.moment(entry.requested_at_ms),
    )


def _lost(plan: Disposal) -> Iterator[str]:
    yield from text.paragraph(
        f"savepoint of {plan.job}: {plan.files} files, {wording.size(plan.size_bytes)}, are deleted and "
        "cannot come back"
    )
    for why in plan.against:
        yield from text.paragraph(f"although {why}")


@dataclass(frozen=True, slots=True)
class Airflow:
    """Airflow, as far as a stop needs it: starts the job's last run, and pauses its DAG."""

    api: AirflowApi
    dag_id: str


def airflow_of(job: str, options: argparse.Namespace, environ: Mapping[str, str]) -> Airflow | None:
    """Return the Airflow that arguments and environment name, by default of the job's name; None without a URL.

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

    `airflow` starts the last run, and pauses the DAG once the job has stopped; None: a user does both.

    Returns:
        Lines and JSON document of the result, and whether the job did not stop.
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
                print("\n".join(_trigger_run(run)), file=sys.stderr)
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
    lines = list(_stop_lines(coordinator, entry, run, airflow, stopped=stopped is Stopped.SHUTDOWN))
    return lines, document | {"last_run": run}, entry.status is Status.FAILED


def _settle_if_over(coordinator: Coordinator, airflow: Airflow | None, request: str) -> bool:
    """Fail a stop whose last run has ended without its epoch: Airflow knows that, the head does not (semantics P2)."""
    entry = coordinator.look_for_savepoint(request)
    if airflow is None or entry is None or not (entry.waits and entry.drains):
        return False
    run = run_id_of(entry.epoch)
    if not airflow.api.is_over(airflow.dag_id, run):
        return False
    return coordinator.give_up_stop(entry.epoch, f"the DAG run {run} has ended")


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


def _stop_lines(
    coordinator: Coordinator, entry: SavepointEntry, run: str | None, airflow: Airflow | None, *, stopped: bool
) -> Iterator[str]:
    job = coordinator.job
    paused = f"{airflow.dag_id} is paused" if airflow else "pause the DAG, so that its runs do not fail"
    if entry.status is Status.COMPLETED and not stopped:
        yield entry.uri
        yield from text.paragraph(f"{job} had stopped with savepoint {entry.id}, and was resumed since")
    elif entry.status is Status.COMPLETED:
        yield entry.uri
        yield from text.paragraph(
            f"{job} has stopped with savepoint {entry.id}, up to {run_text(run_id_of(entry.epoch), entry.window)}: "
            f"{entry.files} files, {wording.size(entry.size_bytes)}{in_flight(entry)}. It takes no request until "
            f"`cairn resume {job} {coordinator.files.storage_option}`; {paused}"
        )
    elif entry.status is Status.FAILED:
        why = cause_first(entry.detail, entry.reason)
        yield from text.paragraph(f"{job} goes on: savepoint {entry.id} FAILED: {why}")
    elif run is not None and entry.waits:
        yield from text.paragraph(
            f"{job} is being stopped; no run begins but its last one. When that has completed, ask again with the same "
            "request id"
        )
        if airflow is None:
            yield from _trigger_run(run)
    else:
        yield from text.paragraph(
            f"{job} is being stopped; the savepoint waits for {coordinator.awaited_by(entry)}. No run begins after "
            f"that. Then ask again with the same request id, {entry.request}, or give --wait. Do not pause the DAG "
            "before: Airflow starts no tasks of a paused one"
        )


def _trigger_run(run: str) -> Iterator[str]:
    yield "start the last run:"
    yield f"  airflow dags trigger DAG_ID --run-id {run}"
