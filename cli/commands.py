"""The function behind each command: reads or changes the store, and returns its output."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import closing, redirect_stdout
from dataclasses import asdict
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from ..checkpoint import Coordinator, system_runtime
from ..checkpoint.documents.head import Head, run_of_head
from ..checkpoint.errors import InvalidConfigError, NoCheckpointError
from ..checkpoint.health.store_reach import check_root
from ..checkpoint.reasons import Status
from ..checkpoint.savepoints.savepoint_format import open_named
from ..checkpoint.store.verification import Verification
from ..checkpoint.views import checkpoint_list
from ..checkpoint.views.details import details
from ..checkpoint.views.stats import stats as stats_of
from ..checkpoint.views.wording import size
from ..storage import open_store
from ..storage.clock import system_sleep
from ..storage.errors import printable
from ..storage.names import check_name, parse_storage_uri
from ..storage.port import ObjectStore
from ..storage.records import dataclass
from . import doctor as doctor_of
from . import interventions
from . import savepoints as savepoints_of
from .airflow_api import TOKEN, AirflowApi, stores_of
from .output import detail_lines, listings, states
from .output.listings import servers as servers_of
from .output.text import ProgressLine, meant

if TYPE_CHECKING:
    from ..operators.group.checks import JobRegions


@dataclass(frozen=True, slots=True)
class Outcome:
    """The output of a command, as lines and as a JSON document."""

    lines: Iterable[str]
    """A list is printed at once; any other iterable line by line as they arrive."""
    document: dict[str, Any]
    damaged: bool = False
    over: bool = False
    """Whether a later look would find the same."""


def jobs(store: ObjectStore, _options: argparse.Namespace) -> Outcome:
    """List the jobs of a storage."""
    found = list(checkpoint_list.jobs(store))
    if not found:
        check_root(store)
    lines = listings.job_lines(found) if found else [f"no jobs in {store.uri}"]
    return Outcome(lines, {"jobs": [row.as_json() for row in found]}, damaged=any(row.problem for row in found))


def checkpoints(store: ObjectStore, options: argparse.Namespace) -> Outcome:
    """List a job's checkpoints, the requests that wait, and whether the job is stopped."""
    found = checkpoint_list.listing(_job(store, options.job))
    return Outcome(listings.lines(found, options.limit), found.as_json(limit=options.limit))


def show(store: ObjectStore, options: argparse.Namespace) -> Outcome:
    """Show one checkpoint."""
    coordinator = _job(store, options.job)
    found = details(coordinator, options.checkpoint, subtasks=options.subtasks)
    document = {"job": options.job, **found.as_json(storage=store.uri, stages=options.limit)}
    over = options.checkpoint is not None and found.row.status is not Status.PENDING
    return Outcome(detail_lines.lines(coordinator.files, found, options.limit), document, over=over)


def stats(store: ObjectStore, options: argparse.Namespace) -> Outcome:
    """Show a job in numbers."""
    found = stats_of(_job(store, options.job).head())
    return Outcome(listings.stats_lines(found), asdict(found))


def job_pulse(store: ObjectStore, options: argparse.Namespace) -> Hashable:
    """Return a value that changes whenever the job's counts do."""
    return Coordinator(store, options.job).head().revision


def checkpoints_pulse(store: ObjectStore, options: argparse.Namespace) -> Hashable:
    """Return a value that changes whenever one of the job's checkpoints does."""
    return checkpoint_list.pulse(Coordinator(store, options.job))


def show_pulse(store: ObjectStore, options: argparse.Namespace) -> Hashable:
    """Return a value that changes whenever the checkpoint does."""
    return checkpoint_list.pulse(Coordinator(store, options.job), options.checkpoint)


def verify(store: ObjectStore, options: argparse.Namespace) -> Outcome:
    """Check every file of one retained checkpoint, or of all; or of a savepoint, if the store is its folder.

    Raises:
        InvalidConfigError: a checkpoint is named together with a savepoint.
    """
    if is_path(options.job):
        if options.checkpoint is not None:
            raise InvalidConfigError("a savepoint holds one checkpoint; give its folder alone", savepoint=options.job)
        return Outcome(*savepoints_of.verify(store))
    coordinator = _job(store, options.job)
    with ProgressLine("checked") as line:
        found = coordinator.verify(options.checkpoint, deep=options.deep, on_progress=line.show)
    lines = [each for verified in found for each in _verification_lines(verified)] or ["no checkpoint is retained"]
    document: dict[str, Any] = {
        "job": options.job,
        "checkpoints": [{**asdict(each), "whole": each.whole} for each in found],
    }
    lists, later = {}, {}
    if options.checkpoint is None:
        lists, later = coordinator.verify_lists(deep=options.deep), coordinator.completed_later()
        document["damaged_lists"] = lists
        document["completed_later"] = [{"checkpoint": id_, "epoch": epoch} for id_, epoch in later.items()]
    lines += [f"list of completed epochs: DAMAGED\n  {key}: {problem}" for key, problem in lists.items()]
    lines += [_later_line(coordinator.head(), checkpoint, epoch) for checkpoint, epoch in later.items()]
    return Outcome(lines, document, damaged=bool(lists) or not all(each.whole for each in found))


def forget_listener(store: ObjectStore, options: argparse.Namespace) -> Outcome:
    """Drop the notices of a listener that no longer exists, or one of them."""
    job = _job(store, options.job)
    return Outcome(
        *interventions.forget_listener_of(job, options.job, options.listener, options.checkpoint, yes=options.yes)
    )


def doctor(options: argparse.Namespace) -> Outcome:
    """Check a storage and its jobs, this machine, and the cluster."""
    ask: Callable[[], object] | None = None
    dag = cache(partial(_dag_of, options))  # parsed once, for its stage and its tables
    if options.stage is not None:
        ask = partial(_ask_by_stage, dag, options)
    elif options.storage and not options.read_only and not (options.endpoint_url or options.region):
        ask = partial(_ask_by_connection, options)
    store = opened(options.storage, options) if options.storage else None
    with ProgressLine("checked") as line:
        found = doctor_of.doctor(store, options, line.show, ask=ask, dag=dag)
    return Outcome(list(doctor_of.lines(found)), found.as_json(), damaged=not found.healthy)


def _dag_of(options: argparse.Namespace) -> Any:
    from ..operators.group.checks import dag_in

    return dag_in(*options.dag_file)


def _ask_by_stage(dag: Callable[[], Any], options: argparse.Namespace) -> object:
    from ..operators.stage.trial import ask_by_stage, stage_in

    return ask_by_stage(stage_in(dag(), options.stage), dict(options.conf))


def _ask_by_connection(options: argparse.Namespace) -> object:
    from ..operators.stage.trial import ask_by_connection

    conn_id = options.spark_conn or "spark_default"
    return ask_by_connection(conn_id, dict(options.conf), storage=options.storage, aws_conn_id=options.conn)


def clean(store: ObjectStore, options: argparse.Namespace) -> Outcome:
    """Delete files that no checkpoint of a job refers to."""
    job = _job(store, options.job)
    with ProgressLine("deleted") as line:
        found = job.clean(line.show)
    lines = [f"{found.deleted} files deleted, {found.uploads_aborted} uploads aborted"]
    lines += [f"not deleted: {failure.key}: {failure.reason}" for failure in found.failures]
    return Outcome(lines, {"job": job.job, **asdict(found)}, damaged=bool(found.failures))


def rewind(store: ObjectStore, options: argparse.Namespace) -> Outcome:
    """Rewind a job to an older checkpoint."""
    lines, document = interventions.rewind(_job(store, options.job), options)
    return Outcome(lines, document)


def mirror(store: ObjectStore, options: argparse.Namespace) -> Outcome:
    """Copy a job to another storage, or forget its mirror there."""
    if options.give_up:
        return Outcome(
            *interventions.give_up(_job(store, options.job), options.to, partial(opened_other, options.to, options))
        )
    lines, document, failed = interventions.mirror(_job(store, options.job), opened_other(options.to, options))
    return Outcome(lines, document, damaged=failed)


def activate(store: ObjectStore, options: argparse.Namespace) -> Outcome:
    """Make a mirror the job."""
    first = opened_other(options.first, options) if options.first else None
    return Outcome(*interventions.activate(_job(store, options.job), first, options))


def resume(store: ObjectStore, options: argparse.Namespace) -> Outcome:
    """Start a job from a savepoint, or let a stopped one go on.

    Raises:
        InvalidConfigError: an option about a savepoint is given, but no savepoint.
    """
    if options.source is None and (options.claim or options.again or options.allow_non_restored_state):
        raise InvalidConfigError("--claim, --again and --allow-non-restored-state are about a savepoint: give --from")
    if options.source is not None:
        job = Coordinator(store, options.job)
        return Outcome(
            *interventions.resume(
                job, opened_savepoint(options.source, options), options, lambda uri: opened(uri, options)
            )
        )
    return Outcome(*interventions.go_on(_job(store, options.job, way_out="; name a savepoint to start from")))


def savepoint(store: ObjectStore, options: argparse.Namespace) -> Outcome:
    """Take a savepoint of a job."""
    job = _job(store, options.job)
    return Outcome(*savepoints_of.savepoint(job, options, lambda uri: opened(uri, options), system_sleep))


def stop(store: ObjectStore, options: argparse.Namespace) -> Outcome:
    """Stop a job with a savepoint."""
    job = _job(store, options.job)
    airflow = savepoints_of.airflow_of(job.job, options, os.environ)
    return Outcome(*savepoints_of.stop(job, options, lambda uri: opened(uri, options), system_sleep, airflow))


def savepoints(store: ObjectStore, options: argparse.Namespace) -> Outcome:
    """List a job's savepoints."""
    return Outcome(*savepoints_of.savepoints(_job(store, options.job)))


def servers(store: ObjectStore, options: argparse.Namespace) -> Outcome:
    """List the Spark servers that a job's stages share, or those of all jobs."""
    if options.job is not None:
        asked = [_job(store, options.job).job]
    else:
        asked = [row.job for row in checkpoint_list.jobs(store)]
        if not asked:
            check_root(store)
    lines, document = servers_of(store, asked, system_runtime().now_ms())
    return Outcome(lines, document, damaged=bool(document["problems"]))


def adopt(store: ObjectStore, options: argparse.Namespace) -> Outcome:
    """Return a job another owner."""
    return Outcome(*interventions.adopt(_job(store, options.job), options))


def dispose(store: ObjectStore, options: argparse.Namespace) -> Outcome:
    """Dispose of a savepoint."""
    return Outcome(*savepoints_of.dispose(store, lambda uri: opened(uri, options), options))


def is_path(word: str) -> bool:
    """Return whether a word is a savepoint's folder; a job's name holds neither a colon nor a slash."""
    return ":" in word or "/" in word


def opened(uri: str, options: argparse.Namespace) -> ObjectStore:
    """Open a store with the arguments that every command has."""
    where = parse_storage_uri(uri)
    return open_store(where, options=options.stores.get(where.scheme))


def opened_other(uri: str, options: argparse.Namespace) -> ObjectStore:
    """Open a second storage, which may have a connection of its own."""
    if options.other_conn is None:
        return opened(uri, options)
    return opened(uri, argparse.Namespace(stores=stores_of(options.other_conn, uri)))


def opened_savepoint(uri: str, options: argparse.Namespace) -> ObjectStore:
    """Open a savepoint's folder, or that of the `_metadata` in it, with the arguments that every command has."""
    return open_named(uri, lambda above: opened(above, options))


def state(store: ObjectStore, options: argparse.Namespace) -> Outcome:
    """Show the first rows of a state."""
    return Outcome(*states.rows(_job(store, options.job), options))


def compact(store: ObjectStore, options: argparse.Namespace) -> Outcome:
    """Merge bases and deltas of states that grow."""
    _job(store, options.job)
    return Outcome(*states.compact(store, options, lambda text: print(printable(text), file=sys.stderr, flush=True)))


def diff(store: ObjectStore, options: argparse.Namespace) -> Outcome:
    """Compare a state in two checkpoints."""
    return Outcome(*states.diff(_job(store, options.job), options))


def _job(store: ObjectStore, name: str, way_out: str = "") -> Coordinator:
    coordinator = Coordinator(store, name)
    if coordinator.head().revision == 0:
        check_root(store)
        known = [row.job for row in checkpoint_list.jobs(store)]
        raise NoCheckpointError(
            f"the storage has no such job{meant(name, known)}{way_out}",
            job=name,
            storage=store.uri,
            jobs=", ".join(known) or "none",
        )
    return coordinator


def _later_line(head: Head, checkpoint: int, epoch: str | None) -> str:
    of = f"of {run_of_head(head, epoch)} " if epoch else ""
    return (
        f"checkpoint {checkpoint} {of}is later than this head.json, as after a restore from a backup: it does not "
        "count. Clear its run, and it runs again"
    )


def _verification_lines(found: Verification) -> Iterator[str]:
    if found.whole:
        yield f"checkpoint {found.checkpoint}: whole, {found.files} files, {size(found.size_bytes)}"
        if found.unknown:
            yield (
                f"  of {found.unknown} files nothing but the store's etag is known (version 0.1 wrote them): "
                "a byte that flipped on the medium would not be found"
            )
        return
    yield f"checkpoint {found.checkpoint}: DAMAGED, it cannot be restored"
    yield from (f"  {damage.key}: {damage.problem}" for damage in found.damages)


def regions(options: argparse.Namespace) -> Outcome:
    """Return the regions of each job of a DAG (semantics F1)."""
    # Airflow and DAG files may print; this command's output must stay machine-readable.
    with redirect_stdout(sys.stderr):
        from ..operators.group.checks import regions_in

        found = regions_in(options.dag_file, options.dag_id)
    lines = [line for job in found for line in _region_lines(job)]
    return Outcome(lines, {"dag": options.dag_id, "jobs": [_regions_document(job) for job in found]})


def try_launcher(options: argparse.Namespace) -> Outcome:
    """Try the launcher of a DAG's stage on its service; see `Trial`. Without `--json` each look is printed at once."""
    out, found = sys.stdout, []
    with redirect_stdout(sys.stderr):
        from ..operators.group.checks import dag_in
        from ..operators.stage.trial import Trial, stage_in

        task = stage_in(dag_in(options.dag_file, options.dag_id), options.task_id)
        with closing(Trial(task).looks()) as looks:
            for seen in looks:
                found.append(seen)
                if not options.json:  # a part may take an hour, and the next one may end in an error
                    line = f"{'' if seen.fine else '! '}{seen.what}".ljust(_LOOK) + seen.found
                    print(printable(line), file=out, flush=True)
    return Outcome([], {"seen": [asdict(each) for each in found]}, damaged=not all(each.fine for each in found))


_LOOK = 47
"""Columns of what is looked at."""


def _region_lines(job: JobRegions) -> list[str]:
    regions = job.regions
    stages = f"{len(job.stages)} stage{'s' if len(job.stages) != 1 else ''}"
    head = f"job {job.job}: {stages} in {len(regions)} region{'s' if len(regions) != 1 else ''}"
    return [head, *(f"  {number}  {', '.join(region)}" for number, region in enumerate(regions, 1))]


def _regions_document(job: JobRegions) -> dict[str, object]:
    return {
        "job": job.job,
        "triggered_by": job.task,
        "regions": [list(region) for region in job.regions],
        "edges": [
            {"from": up, "to": stage.uid, "exchange": "pipelined" if up in stage.pipelined else "blocking"}
            for stage in job.stages
            for up in stage.upstream
        ],
    }


def checkpoint(options: argparse.Namespace) -> Outcome:
    """Request a checkpoint of a job now, with a DAG run of the type manual (semantics T2, T3).

    The run's id is made from the request's, so a repeated request creates one run: Airflow refuses an existing id.

    Raises:
        InvalidConfigError: the URL is invalid, the token is missing, or the window has no length.
        InvalidKeyError: the request's id is outside the grammar (semantics W1).
    """
    job, dag_id, runtime = options.job, options.dag or options.job, system_runtime()
    request = runtime.new_token() if options.request_id is None else options.request_id
    run_id = f"cairn__{check_name('request', request)}"
    if options.window is not None and options.window[0] >= options.window[1]:
        raise InvalidConfigError("the first moment of --window is to be before the second", window=options.window)
    api = AirflowApi(options.airflow_url, os.environ.get(TOKEN))
    api.check_runs(job, dag_id)
    if options.request_id is None:
        options.made_up_id = request
    created = api.start_run(dag_id, run_id, runtime.now_ms(), options.window, again=options.read_again)
    line = f"the DAG run {run_id} of {dag_id} is there already: nothing was asked anew"
    if created:
        asked = f"asked for a checkpoint of {job}: DAG run {run_id} of {dag_id}"
        line = f"{asked}. It comes before those of the schedule, and waits for no pause"
    return Outcome([line], {"job": job, "dag": dag_id, "run": run_id, "request": request, "created": created})
