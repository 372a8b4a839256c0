"""Creates the app that Airflow mounts below `/cairn`."""

from __future__ import annotations

from airflow.sdk.exceptions import AirflowNotFoundException
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from ...storage.errors import CairnError
from ..interventions.plan import InterventionRefusedError
from . import html_routes, intervention_routes, rest_routes
from .answers import failed, guarded
from .job_reader import JobReader
from .jobs import Jobs
from .problems import ForeignRequestError, JobNotKnownError, TemplatedJobError
from .server import Server
from .shared_reads import SharedReads

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
"""Errors of routes that `problems` knows."""


def create_app(server: Server, shared: SharedReads | None = None) -> FastAPI:
    """Create the app. Each of its routes requires a user, even those of style and icon; no folder is mounted.

    Args:
        server: the API server in which the app runs.
        shared: lets equal requests share a read of a store.
    """
    app = FastAPI(title="Cairn", openapi_url=None, docs_url=None, redoc_url=None)
    app.middleware("http")(guarded)
    for kind in _ANSWERED:
        app.add_exception_handler(kind, failed)
    jobs = Jobs(server, JobReader(server.open_store, shared or SharedReads()))
    for made in (rest_routes, html_routes, intervention_routes):
        # Share the route objects: `include_router` would create each anew, and that takes most of the app's start.
        app.router.routes.extend(made.router(server, jobs).routes)
    return app
