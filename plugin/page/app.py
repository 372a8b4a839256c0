"""The app that Airflow mounts below `/cairn`, and its REST interface, which answers as `cairn … --json` does."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from itertools import groupby
from typing import Annotated, Any, Literal

from airflow.sdk.exceptions import AirflowNotFoundException
from fastapi import APIRouter, Depends, FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from ...checkpoint import system_runtime
from ...checkpoint.documents.strict_json import Json
from ...checkpoint.rows.reading import RowsKind
from ...checkpoint.views.checkpoint_list import JobState
from ...checkpoint.views.details import savepoint_json
from ...storage.errors import CairnError
from ..interventions.plan import InterventionRefusedError
from . import html_routes, intervention_routes
from .declared_jobs import DeclaredJob
from .job_reader import JobReader, SharedReads
from .jobs import READ, JobFilter, Jobs
from .responses import API, ForeignRequestError, JobNotKnownError, TemplatedJobError, document, failed, guarded
from .server import Server

_ANSWERED = (
    AirflowNotFoundException,
    CairnError,
    ForeignRequestError,
    HTTPException,
    InterventionRefusedError,
    JobNotKnownError,
    RequestValidationError,
    TemplatedJobError,
    TimeoutError,
)
"""Errors of routes that `responses` knows."""


def create_app(server: Server, shared: SharedReads | None = None) -> FastAPI:
    """Create the app. Each of its routes requires a user, even those of style and icon; no folder is mounted."""
    app = FastAPI(title="Cairn", openapi_url=None, docs_url=None, redoc_url=None)
    app.middleware("http")(guarded)
    for kind in _ANSWERED:
        app.add_exception_handler(kind, failed)
    jobs = Jobs(server, JobReader(server.open_store, shared or SharedReads()))
    for router in (rest_router, html_routes.router, intervention_routes.router):
        # Take the routes as they are: `include_router` would create each anew, which is most of the app's start.
        app.router.routes.extend(router(server, jobs).routes)
    return app


Limit = Annotated[int, Query(ge=1, le=10_000)]
First = Annotated[int, Query(ge=0, le=10_000_000)]
Name = Annotated[str | None, Query(max_length=1_000)]
Required = Annotated[str, Query(max_length=1_000)]


def rest_router(server: Server, jobs: Jobs) -> APIRouter:
    """Create the routes."""
    made = APIRouter(prefix=API, dependencies=[Depends(server.signed_in)])
    may_read = [Depends(server.may_read)]
    one = "/dags/{dag_id}/jobs/{job}"
    now_ms = system_runtime().now_ms

    @made.get("/dags", summary="The jobs of all DAGs whose runs you may read")
    def all_jobs(user: Any = Depends(server.signed_in)) -> JSONResponse:
        by_dag = groupby(jobs.of_user(user), key=lambda job: job.dag_id)
        return JSONResponse({"dags": [_of_dag(dag_id, found) for dag_id, found in by_dag]})

    @made.get("/jobs", summary="Each of these jobs in a row, the most urgent first")
    async def job_rows(
        text: Annotated[str, Query(max_length=1_000)] = "",
        state: JobState | Literal["late"] | None = None,
        user: Any = Depends(server.signed_in),
    ) -> JSONResponse:
        declared = await run_in_threadpool(jobs.of_user, user)
        now = now_ms()
        found = await jobs.rows(declared, JobFilter(state, text), now)
        left_out = found.named - min(found.named, READ)
        return JSONResponse({"jobs": [each.as_json(now) for each in found.jobs], "jobs_left_out": left_out})

    @made.get("/dags/{dag_id}/jobs", summary="The jobs of a DAG", dependencies=may_read)
    def jobs_of_dag(dag_id: str) -> JSONResponse:
        return JSONResponse(_of_dag(dag_id, jobs.of_dag(dag_id)))

    @made.get(one, summary="A job at a glance", dependencies=may_read)
    async def overview(job: DeclaredJob = Depends(jobs.find)) -> JSONResponse:
        found, schedule = await jobs.reader.overview(job), await jobs.schedule(job.dag_id)
        said = found.as_json(storage=job.storage, now_ms=now_ms())
        return document(job, {**said, "schedule": asdict(schedule) if schedule else None})

    @made.get(f"{one}/checkpoints", summary="Its checkpoints, newest first", dependencies=may_read)
    async def checkpoints(job: DeclaredJob = Depends(jobs.find), limit: Limit = 100) -> JSONResponse:
        return document(job, (await jobs.reader.overview(job)).listing.as_json(limit=limit))

    @made.get(f"{one}/checkpoints/{{checkpoint}}", summary="One checkpoint by stage and subtask", dependencies=may_read)
    async def checkpoint(
        checkpoint: int,
        job: DeclaredJob = Depends(jobs.find),
        limit: Limit = 100,
        edits: bool = Depends(server.edits),
    ) -> JSONResponse:
        found = await jobs.reader.checkpoint(job, checkpoint)
        found = found if edits else found.without_examples()
        return document(job, found.as_json(storage=job.storage, stages=limit))

    @made.get(f"{one}/checkpoints/{{checkpoint}}/states", summary="What it holds", dependencies=may_read)
    async def states(checkpoint: int, job: DeclaredJob = Depends(jobs.find)) -> JSONResponse:
        return document(job, (await jobs.reader.states(job, checkpoint)).as_json())

    @made.get(f"{one}/checkpoints/{{checkpoint}}/files", summary="Its files, each checked", dependencies=may_read)
    async def files(
        checkpoint: int, job: DeclaredJob = Depends(jobs.find), stage: Name = None, first: First = 0, limit: Limit = 100
    ) -> JSONResponse:
        return document(job, (await jobs.reader.files(job, checkpoint, stage, first, limit)).as_json())

    @made.get(
        f"{one}/checkpoints/{{checkpoint}}/rows",
        summary="The first rows of a state or a published table",
        # A user without the right to edit sees that a state exists, but not its rows.
        dependencies=[Depends(server.may_edit)],
    )
    async def rows(
        checkpoint: int,
        stage: Required,
        name: Required,
        kind: RowsKind = "state",
        job: DeclaredJob = Depends(jobs.find),
    ) -> JSONResponse:
        return document(job, (await jobs.reader.rows(job, checkpoint, stage, name, kind)).as_json())

    @made.get(f"{one}/savepoints", summary="The savepoints that it remembers, newest first", dependencies=may_read)
    async def savepoints(job: DeclaredJob = Depends(jobs.find)) -> JSONResponse:
        found = await jobs.reader.savepoints(job)
        return document(job, {"savepoints": [savepoint_json(entry) for entry in found]})

    @made.get(f"{one}/servers", summary="The Spark servers that its stages share", dependencies=may_read)
    async def servers(job: DeclaredJob = Depends(jobs.find)) -> JSONResponse:
        return document(job, {"servers": [row.as_json() for row in await jobs.reader.servers(job)]})

    @made.get(f"{one}/doctor", summary="What is wrong with it and its storage", dependencies=may_read)
    async def doctor(job: DeclaredJob = Depends(jobs.find)) -> JSONResponse:
        return document(job, (await jobs.reader.examined(job)).as_json())

    @made.get(f"{one}/configuration", summary="Its options, as the DAG declares them", dependencies=may_read)
    def configuration(job: DeclaredJob = Depends(jobs.find)) -> JSONResponse:
        stages = [asdict(stage) for stage in job.stages]
        declared = {"aws_conn_id": job.aws_conn_id, "task_id": job.task_id, "config": job.config, "stages": stages}
        return document(job, declared)

    @made.get("/openapi.json", summary="This description")
    def openapi(request: Request) -> JSONResponse:
        return JSONResponse(request.app.openapi())

    return made


def _of_dag(dag_id: str, jobs: Iterable[DeclaredJob]) -> dict[str, Json]:
    named = [
        {"job": job.job, "storage": job.storage, "task_id": job.task_id, "templated": job.is_templated} for job in jobs
    ]
    return {"dag_id": dag_id, "jobs": named}
