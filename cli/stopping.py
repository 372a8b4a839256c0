"""`cairn stop`: stops a job with a savepoint, so that no epoch begins in between (semantics P2)."""

from __future__ import annotations

import argparse
import hashlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from ..checkpoint import Coordinator, system_runtime
from ..checkpoint.head import SavepointEntry
from ..checkpoint.layout import epoch_name, run_id_of
from ..checkpoint.reasons import Status
from ..checkpoint.savepoints import OpenFolder, SavepointRequest
from . import text
from .progress import ProgressLine
from .savepoints import INTERVAL_S, document_of


def stop(
    coordinator: Coordinator, options: argparse.Namespace, opened: OpenFolder, wait: Callable[[float], object]
) -> tuple[list[str], dict[str, Any], bool]:
    """Stop a job with a savepoint, or go on with that.

    Args:
        coordinator: of the job.
        options: the command's words: `target`, `request_id`, `drain`, `wait`.
        opened: opens the savepoint's folder.
        wait: waits so many seconds.

    Returns:
        Lines and document that say what became of it, and whether the job did not stop.

    Raises:
        SavepointRefusedError: it was refused; nothing was opened, and the job goes on.
        NoCheckpointError: there is nothing to take a savepoint of.
    """
    request = options.request_id or f"stop {system_runtime().new_token()}"
    if not options.request_id:
        # Said before anything is done, because whoever asks with it again goes on with what was begun.
        print(f"request id: {request}", file=sys.stderr)
    run = drain_run(request) if options.drain else None
    last = epoch_name(run) if run else None
    wish = SavepointRequest(options.target, request, renew=True, stop=True, drain=last)
    with ProgressLine("copied") as line:
        entry = coordinator.savepoint(wish, opened, line.show)
        if run is not None and entry.waits and options.wait:
            print("\n".join(_trigger_it(run)), file=sys.stderr)
        while options.wait and entry.waits:
            wait(INTERVAL_S)
            # If it has failed meanwhile, that is to be said, and not to be tried once more.
            entry = coordinator.savepoint(replace(wish, renew=False), opened, line.show)
    document = {"job": coordinator.job, "stopped": coordinator.head().stopped, **document_of(entry)}
    return list(_said(coordinator.job, entry, run)), document | {"last_run": run}, entry.status is Status.FAILED


def drain_run(request: str) -> str:
    """Give the id of the DAG run that is a job's last one: the same request has the same.

    Args:
        request: the request's id.
    """
    return f"cairn_drain__{hashlib.sha256(request.encode()).hexdigest()[:12]}"


def _said(job: str, entry: SavepointEntry, run: str | None) -> Iterator[str]:
    columns = text.width()
    if entry.status is Status.COMPLETED:
        yield entry.uri
        yield from text.paragraph(
            f"{job} has stopped with savepoint {entry.id}, up to {run_id_of(entry.epoch)}: {entry.files} files, "
            f"{text.size(entry.size_bytes)}. It takes no request until `cairn resume {job}`; pause the DAG, so that "
            "its runs do not fail meanwhile",
            columns,
        )
    elif entry.status is Status.FAILED:
        why = f"{entry.reason}: {entry.detail}"
        yield from text.paragraph(f"{job} goes on: savepoint {entry.id} FAILED: {why}", columns)
    elif run is not None:
        yield from text.paragraph(
            f"{job} is being stopped; no run begins but its last one. When that has completed, ask again with the same "
            "request id",
            columns,
        )
        yield from _trigger_it(run)
    else:
        yield from text.paragraph(
            f"{job} is being stopped; no run begins after {run_id_of(entry.epoch)}. When that has completed, ask again "
            "with the same request id, or say --wait. Do not pause the DAG before: Airflow starts no tasks of a paused "
            "one",
            columns,
        )


def _trigger_it(run: str) -> Iterator[str]:
    yield "start the last run:"
    yield f"  airflow dags trigger DAG_ID --run-id {run}"
