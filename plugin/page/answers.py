"""How an answer leaves the app: as HTML to a browser, as JSON to a program, under the same headers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response

from ...checkpoint.documents.layout import run_id_of
from ...checkpoint.documents.strict_json import Json
from ...checkpoint.views import wording
from ...storage.errors import CairnError
from ..interventions.of_savepoints import REQUEST
from ..interventions.plan import InterventionRefusedError
from .declared_jobs import DeclaredJob
from .problems import problem_of

PREFIX = "/cairn"
"""Where Airflow mounts the app, below its own base path."""

API = "/api/v1"
"""Where the REST interface lies, below the app."""

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "frame-ancestors 'self'; base-uri 'none'; form-action 'self'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""Of every answer: what is stored by others is shown, so no inline script or style runs, and no proxy keeps it."""

_FOLDER = Path(__file__).parent

_JOB_IS_THERE = (CairnError, InterventionRefusedError, TimeoutError)
"""What an intervention raises once its job is found, and the person may change it."""

_WHOLE_RUN = 24
"""Characters of a run's id that a table has room for."""


def _segment(text: object) -> str:
    return quote(str(text), safe="")


def _words(text: str) -> Markup:
    """Show what stands between back quotes as what a user types or reads elsewhere; all of it is escaped."""
    parts = text.split("`")
    if len(parts) % 2 == 0:  # one has no partner: someone else's words
        return escape(text)
    return Markup().join(
        Markup("<code>{}</code>").format(part) if n % 2 else escape(part) for n, part in enumerate(parts)
    )


def _run_name(run_id: str) -> str:
    """Shorten a run's id to the moment in it, as the command does where a line has no room."""
    return run_id if len(run_id) <= _WHOLE_RUN else run_id.rpartition("__")[2].removesuffix("+00:00")


def _duration(took_ms: int | None) -> str:
    return "–" if took_ms is None else wording.duration(took_ms)


def _environment() -> Environment:
    found = Environment(
        loader=FileSystemLoader(_FOLDER / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters.update(segment=_segment, words=_words, run=run_id_of, run_name=_run_name)
    found.filters.update(operation=lambda request: request.removeprefix(REQUEST))
    found.filters.update(duration=_duration, size=wording.size, moment=wording.moment)
    found.globals.update(how_stopped=wording.how_stopped, restart=wording.restart)
    return found


_TEMPLATES = _environment()


def address(request: Request, job: DeclaredJob, below: str = "") -> str:
    """Give the address of a job's overview.

    Args:
        request: whose root path says below which address the app answers.
        job: the job.
        below: the interface, below the app; empty: the pages.
    """
    return _address(request, job.dag_id, job.task_id, below)


def _address(request: Request, dag_id: str, job: str, below: str = "") -> str:
    base = request.scope.get("root_path", "")
    return f"{base}{below}/dags/{_segment(dag_id)}/jobs/{_segment(job)}"


def html(request: Request, template: str, *, status: int = 200, **values: Any) -> HTMLResponse:
    """Make a page.

    Args:
        request: whose root path says below which address Airflow and the app answer.
        template: the file's name.
        status: of the answer.
        **values: what the template shows.
    """
    base = request.scope.get("root_path", "")
    page = _TEMPLATES.get_template(template).render(base=base, airflow=base.removesuffix(PREFIX), **values)
    return HTMLResponse(page, status)


def document(job: DeclaredJob, found: dict[str, Json]) -> JSONResponse:
    """Answer a program with a document of a job, and say of which.

    Args:
        job: the job.
        found: the document.
    """
    return JSONResponse({"dag_id": job.dag_id, "job": job.job, "storage": job.storage, **found})


def failed(request: Request, error: Exception) -> Response:
    """Answer a request that failed, as its path and its `Accept` want it.

    Args:
        request: what was asked.
        error: how that failed.
    """
    problem = problem_of(error)
    path = request.scope["path"].removeprefix(request.scope.get("root_path", ""))
    if path.startswith(API) or "text/html" not in request.headers.get("accept", ""):
        return JSONResponse({"error": asdict(problem)}, problem.status)
    return html(request, "problem.html", status=problem.status, problem=problem, job_page=_job_page(request, error))


def _job_page(request: Request, error: Exception) -> str | None:
    """Give the address of the job that a person wanted to do something; None where there is none, or no right to it."""
    path = request.path_params
    if "kind" not in path or not isinstance(error, _JOB_IS_THERE):
        return None
    return _address(request, path["dag_id"], path["job"])


async def guarded(request: Request, proceed: Callable[[Request], Awaitable[Response]]) -> Response:
    """Give every answer the headers, and answer also what nothing else answers.

    Args:
        request: what is asked.
        proceed: the rest of the app.
    """
    try:
        answer = await proceed(request)
    except Exception as error:  # noqa: BLE001 - what no route foresees is logged by `problem_of`
        answer = failed(request, error)
    answer.headers.update(HEADERS)
    return answer


def static(name: str) -> Response | None:
    """Give a file that pages refer to; None where there is none of that name.

    Args:
        name: of the file, without a folder.
    """
    kinds = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
    path = _FOLDER / "static" / name
    if path.suffix not in kinds or path.parent != _FOLDER / "static" or not path.is_file():
        return None
    return Response(path.read_bytes(), media_type=kinds[path.suffix])
