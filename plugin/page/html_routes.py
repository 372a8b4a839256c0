"""The pages: one address each, rendered by the server, complete without script."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Request
from pydantic import BeforeValidator
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from ...checkpoint import system_runtime
from ...checkpoint.masking import masked
from ...checkpoint.reasons import Status
from ...checkpoint.rows.reading import RowsKind
from ...checkpoint.rows.shown import KEYS, READ_BYTES
from ...checkpoint.views.checkpoint_list import CheckpointRow, JobState, Shown
from ...checkpoint.views.details import CheckpointDetails
from ...checkpoint.views.drawn_stages import box_of, specs_of
from ...checkpoint.views.overview import ServerRow, alarms
from ...storage.errors import CairnError, ErrorKind, printable
from ...storage.records import dataclass
from ..drawings.charts import StageGraph, axis, durations, graph_of, marks_of, new_bytes, sparkline, timeline
from ..drawings.stage_progress import StageProgress, TaskTry, bars_of, progress_of
from .declared_jobs import DeclaredJob
from .jobs import LATE, READ, JobFilter, Jobs
from .responses import JobNotKnownError, html, static
from .server import Server

# Selects the checkpoints of a job's history that a page shows; pure.


ROWS = 50


@dataclass(frozen=True, slots=True)
class HistoryFilter:
    """The reader's filter."""

    status: Shown | None = None
    """None: every status."""
    run: str = ""
    """A part of the run's id; empty: every run."""
    page: int = 1
    """Page number from 1; a number beyond the last shows the last page."""
    whole: bool = False
    """Whether `run` is the whole id."""


@dataclass(frozen=True, slots=True)
class HistoryPage:
    """Some checkpoints, newest first."""

    rows: tuple[CheckpointRow, ...]
    number: int
    pages: int
    matching: int
    """Number of checkpoints that match the filter."""
    known: int
    """Number of checkpoints that the job remembers."""


def page_of(rows: Sequence[CheckpointRow], wanted: HistoryFilter) -> HistoryPage:
    """Select the rows of a page."""
    matching = [row for row in rows if wanted.status in (None, row.said) and _is_of(row.run_id, wanted)]
    pages = max(1, -(-len(matching) // ROWS))
    number = min(wanted.page, pages)
    shown = tuple(matching[(number - 1) * ROWS : number * ROWS])
    return HistoryPage(shown, number, pages, len(matching), len(rows))


def _is_of(run_id: str, wanted: HistoryFilter) -> bool:
    return run_id == wanted.run if wanted.whole else wanted.run.lower() in run_id.lower()


Text = Annotated[str, Query(max_length=1_000)]
Number = Annotated[int, Query(ge=1, le=10_000)]
OneStatus = Annotated[Shown | None, BeforeValidator(lambda chosen: chosen or None)]
"""A form sends an empty text for "all"."""
OneState = Annotated[JobState | Literal["late"] | None, BeforeValidator(lambda chosen: chosen or None)]


STAGES = 200
"""Maximum number of stages on a checkpoint's page."""

STAGES_IN_PROGRESS = 50
"""Maximum number of stages of a checkpoint in progress in the overview; its own page shows more."""

COLUMNS = 200
"""Maximum number of a state's columns on a page."""

LINES = 10
"""Runs of the timeline that a page shows at first; a click shows the rest of the page."""

FILES = 100
"""Files that a page shows, and checks."""


def router(server: Server, jobs: Jobs) -> APIRouter:
    """Create the routes."""
    made = APIRouter(default_response_class=Response, include_in_schema=False, dependencies=[Depends(server.signed_in)])
    may_read = [Depends(server.may_read)]
    one = "/dags/{dag_id}/jobs/{job}"
    now_ms = system_runtime().now_ms

    async def overview_page(request: Request, job: DeclaredJob) -> Response:
        # Concurrently: each waits up to eight seconds, and a proxy not much longer.
        found, (servers, problem) = await asyncio.gather(jobs.reader.overview(job), servers_of(job))
        now = now_ms()
        said, schedule = alarms(found, job.storage, now), await jobs.schedule(job.dag_id)
        shown_in = [each.found for each in found.pending] + ([found.failed] if found.failed is not None else [])
        progress = await progress_in(job, shown_in)
        shown: dict[str, Any] = {"found": found, "alarms": said, "now_ms": now, "schedule": schedule}
        shown["progress"] = {each.row.run_id: progress[each.row.id] for each in reversed(shown_in)}
        shown["bars"] = {run_id: bars_of(of_run) for run_id, of_run in shown["progress"].items()}
        shown |= {"servers": servers, "servers_problem": problem, "most": STAGES_IN_PROGRESS}
        return html(request, "overview.html", job=job, tab="overview", **shown)

    async def progress_in(job: DeclaredJob, found: Sequence[CheckpointDetails]) -> dict[int, dict[str, StageProgress]]:
        """Return the progress of each stage of some checkpoints, by the checkpoint's id and the stage's uid."""
        runs = {each.row.run_id for each in found}
        tasks = {stage.task_id for stage in job.stages if stage.task_id is not None}
        tries = await run_in_threadpool(server.tries, job.dag_id, runs, tasks) if runs else ()
        return {each.row.id: progress_of(each, _by_stage(job, each, tries), now_ms()) for each in found}

    async def servers_of(job: DeclaredJob) -> tuple[list[ServerRow], str | None]:
        """Return the job's Spark servers, or why their record cannot be read; the rest of the page is shown anyway."""
        try:
            return await jobs.reader.servers(job), None
        except CairnError as error:
            if error.kind is not ErrorKind.DATA:
                raise
            return [], printable(masked(str(error)))
        except TimeoutError:
            return [], "the storage has not answered in time"

    async def history_page(request: Request, job: DeclaredJob, wanted: HistoryFilter) -> Response:
        rows = (await jobs.reader.overview(job)).listing.checkpoints
        page = page_of(rows, wanted)
        now = now_ms()
        lines = timeline(page.rows, now)
        return html(
            request,
            "history.html",
            job=job,
            tab="history",
            page=page,
            wanted=wanted,
            statuses=list(Shown),
            lines=lines,
            ticks=axis(page.rows, now),
            first_lines=LINES,
        )

    async def jobs_page(
        request: Request, declared: Sequence[DeclaredJob], wanted: JobFilter, dag_id: str | None = None
    ) -> Response:
        now = now_ms()
        found = await jobs.rows(declared, wanted, now)
        shown: dict[str, Any] = {"found": found, "wanted": wanted, "states": [*JobState, LATE], "most": READ}
        shown |= {"dag_id": dag_id, "now_ms": now, "sparkline": sparkline}
        return html(request, "jobs.html", **shown)

    @made.get("/")
    async def index(
        request: Request, state: OneState = None, text: Text = "", user: Any = Depends(server.signed_in)
    ) -> Response:
        declared = await run_in_threadpool(jobs.of_user, user)
        return await jobs_page(request, declared, JobFilter(state, text))

    @made.get("/static/{name}")
    def file(name: str) -> Response:
        found = static(name)
        if found is None:
            raise JobNotKnownError(f"There is no file `{name}`.")
        return found

    @made.get("/dags/{dag_id}", dependencies=may_read)
    async def dag(
        request: Request, dag_id: str, run_id: Text = "", known: tuple[DeclaredJob, ...] = Depends(jobs.of_dag)
    ) -> Response:
        if not known:
            return html(request, "no_job.html", dag_id=dag_id)
        (job, *others) = known
        if others:
            return await jobs_page(request, known, JobFilter(), dag_id)
        if job.is_templated:
            return html(request, "templated.html", job=job)
        if run_id:
            return await history_page(request, job, HistoryFilter(run=run_id, whole=True))
        return await overview_page(request, job)

    @made.get(one, dependencies=may_read)
    async def overview(request: Request, job: DeclaredJob = Depends(jobs.find)) -> Response:
        return await overview_page(request, job)

    @made.get(f"{one}/history", dependencies=may_read)
    async def history(
        request: Request,
        job: DeclaredJob = Depends(jobs.find),
        status: OneStatus = None,
        run: Text = "",
        page: Number = 1,
    ) -> Response:
        return await history_page(request, job, HistoryFilter(status, run, page))

    @made.get(f"{one}/checkpoints/{{checkpoint}}", dependencies=may_read)
    async def checkpoint(
        request: Request,
        checkpoint: int,
        job: DeclaredJob = Depends(jobs.find),
        edits: bool = Depends(server.edits),
    ) -> Response:
        found, known = await jobs.reader.checkpoint(job, checkpoint), await jobs.reader.overview(job)
        found = found if edits else found.without_examples()
        latest = known.latest_completed
        progress = (await progress_in(job, [found]))[found.row.id]
        shown: dict[str, Any] = {
            "found": found,
            "progress": progress,
            "bars": bars_of(progress),
            "attempts": [each for each in reversed(known.listing.checkpoints) if each.run_id == found.row.run_id],
            "most": STAGES,
            "graph": _graph(job, found, progress),
            "newest": None if latest is None else latest.id,
        }
        return html(request, "checkpoint.html", job=job, tab="history", **shown)

    @made.get(f"{one}/checkpoints/{{checkpoint}}/files", dependencies=may_read)
    async def files(
        request: Request,
        checkpoint: int,
        job: DeclaredJob = Depends(jobs.find),
        stage: Text = "",
        page: Number = 1,
    ) -> Response:
        first = (page - 1) * FILES
        found = await jobs.reader.files(job, checkpoint, stage or None, first, FILES)
        shown: dict[str, Any] = {
            "found": found,
            "stage": stage,
            "number": page,
            "pages": max(1, -(-found.files // FILES)),
        }
        return html(request, "files.html", job=job, tab="history", **shown)

    @made.get(f"{one}/state", dependencies=may_read)
    async def state(request: Request, job: DeclaredJob = Depends(jobs.find)) -> Response:
        latest = (await jobs.reader.overview(job)).latest_completed
        found = None if latest is None else await jobs.reader.states(job)
        return html(request, "state.html", job=job, tab="state", found=found, most=COLUMNS)

    # A user without the right to edit sees that a state exists, but not its rows.
    @made.get(f"{one}/checkpoints/{{checkpoint}}/rows", dependencies=[Depends(server.may_edit)])
    async def rows(
        request: Request,
        checkpoint: int,
        stage: Text,
        name: Text,
        kind: RowsKind = "state",
        job: DeclaredJob = Depends(jobs.find),
    ) -> Response:
        found = await jobs.reader.rows(job, checkpoint, stage, name, kind)
        return html(request, "rows.html", job=job, tab="state", found=found, most_bytes=READ_BYTES, most_keys=KEYS)

    @made.get(f"{one}/failovers", dependencies=may_read)
    async def failovers(request: Request, job: DeclaredJob = Depends(jobs.find)) -> Response:
        found = await jobs.reader.overview(job)
        rows = {row.id: row for row in found.listing.checkpoints}
        ends: dict[str, list[int]] = {}
        for row in rows.values():
            if row.status is Status.COMPLETED and row.ended_at_ms is not None:
                ends.setdefault(row.run_id, []).append(row.ended_at_ms)
        return html(request, "failovers.html", job=job, tab="failovers", found=found.stats, rows=rows, ends=ends)

    @made.get(f"{one}/summary", dependencies=may_read)
    async def summary(request: Request, job: DeclaredJob = Depends(jobs.find)) -> Response:
        known = await jobs.reader.overview(job)
        rows = known.listing.checkpoints
        trends = {"duration": durations(rows), "new bytes": new_bytes(rows)}
        return html(request, "summary.html", job=job, tab="summary", found=known.stats, trends=trends)

    @made.get(f"{one}/savepoints", dependencies=may_read)
    async def savepoints(request: Request, job: DeclaredJob = Depends(jobs.find)) -> Response:
        found = await jobs.reader.savepoints(job)
        return html(request, "savepoints.html", job=job, tab="savepoints", found=found)

    @made.get(f"{one}/doctor", dependencies=may_read)
    async def doctor(request: Request, job: DeclaredJob = Depends(jobs.find)) -> Response:
        examined = await jobs.reader.examined(job)
        return html(request, "doctor.html", job=job, tab="doctor", examined=examined, found=examined.found)

    @made.get(f"{one}/configuration", dependencies=may_read)
    async def configuration(request: Request, job: DeclaredJob = Depends(jobs.find)) -> Response:
        owner = (await jobs.reader.overview(job)).owner
        return html(request, "configuration.html", job=job, tab="configuration", owner=owner)

    return made


def _by_stage(job: DeclaredJob, found: CheckpointDetails, tries: Sequence[TaskTry]) -> dict[str, list[TaskTry]]:
    """Group the task tries by the checkpoint's stages."""
    of_task: dict[tuple[str, str, int], list[TaskTry]] = {}
    for each in tries:
        of_task.setdefault((each.run_id, each.task_id, each.map_index), []).append(each)
    by_stage = {}
    for stage in found.stages:
        drawn = job.drawn(stage.stage)
        if drawn is not None and drawn[0].task_id is not None:
            index = -1 if drawn[1] is None else drawn[1]
            by_stage[stage.stage] = of_task.get((found.row.run_id, drawn[0].task_id, index), [])
    return by_stage


def _graph(job: DeclaredJob, found: CheckpointDetails, progress: Mapping[str, StageProgress]) -> StageGraph | None:
    """Draw the stages as of the checkpoint's trigger, else as the DAG declares them now."""
    stages = found.drawn or job.stages

    def drawn(stage: str) -> str | None:
        of = box_of(stages, stage)
        return None if of is None else of[0].uid

    return graph_of(specs_of(stages), marks_of(progress, drawn))
