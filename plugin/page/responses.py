"""Builds the app's answers: HTML for a browser, JSON for a program, with the same headers."""

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
from ...checkpoint.reasons import cause_and_verdict, cause_first
from ...checkpoint.views import wording
from ...checkpoint.views.checkpoint_list import Shown
from ...checkpoint.views.next_step import failure_text, meaning_of
from ...storage.errors import CairnError
from ..interventions.plan import InterventionRefusedError
from ..interventions.savepoints import REQUEST
from .declared_jobs import DeclaredJob
from .problems import problem_of

PREFIX = "/cairn"
"""Path below Airflow's own base path at which Airflow mounts the app."""

API = "/api/v1"
"""Path of the REST interface, below the app."""

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "frame-ancestors 'self'; base-uri 'none'; form-action 'self'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""Headers of every answer: pages show foreign data, so no inline script or style runs, and no proxy stores them."""

_FOLDER = Path(__file__).parent

_JOB_IS_THERE = (CairnError, InterventionRefusedError, TimeoutError)
"""Errors of an intervention after its job was found and the user's right was checked."""

_UTC = "+00:00"
_WHOLE_RUN = 24
"""Characters of a run's id that fit into a table."""


def _segment(text: object) -> str:
    return quote(str(text), safe="")


def _words(text: str) -> Markup:
    """Show text between back quotes as code that a user types or reads elsewhere; escapes everything."""
    parts = text.split("`")
    if len(parts) % 2 == 0:  # an unmatched back quote: foreign text
        return escape(text)
    return Markup().join(
        Markup("<code>{}</code>").format(part) if n % 2 else escape(part) for n, part in enumerate(parts)
    )


def _run_name(run_id: str) -> str:
    """Shorten a run's id to the moment in it, and UTC to its letter."""
    if len(run_id) <= _WHOLE_RUN:
        return run_id
    moment = run_id.rpartition("__")[2]
    return f"{moment.removesuffix(_UTC)}Z" if moment.endswith(_UTC) else moment


def _sentence(text: str) -> str:
    """End a foreign text as a sentence; an empty one stays empty."""
    return text if not text or text.endswith((".", "!", "?", "…")) else f"{text}."


def _spoken(word: str) -> str:
    """Write one of Flink's words, such as `IN_PROGRESS`, as in a sentence."""
    return word.lower().replace("_", " ")


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
    found.filters.update(
        segment=_segment, sentence=_sentence, spoken=_spoken, words=_words, run=run_id_of, run_name=_run_name
    )
    found.filters.update(shown=Shown.of, operation=lambda request: request.removeprefix(REQUEST))
    found.filters.update(happened=lambda detail: cause_and_verdict(detail)[0])
    found.filters.update(why=failure_text, meaning=meaning_of, cause_first=cause_first)
    found.filters.update(duration=_duration, size=wording.size, moment=wording.moment)
    found.globals.update(how_stopped=wording.how_stopped, restart=wording.restart)
    return found


_TEMPLATES = _environment()


def address(request: Request, job: DeclaredJob, below: str = "") -> str:
    """Return the address of a job's overview.

    Args:
        request: its root path gives the address below which the app answers.
        job: the job.
        below: the interface, below the app; empty: the pages.
    """
    return _address(request, job.dag_id, job.task_id, below)


def _address(request: Request, dag_id: str, job: str, below: str = "") -> str:
    base = request.scope.get("root_path", "")
    return f"{base}{below}/dags/{_segment(dag_id)}/jobs/{_segment(job)}"


def html(request: Request, template: str, *, status: int = 200, **values: Any) -> HTMLResponse:
    """Return a page.

    Args:
        request: its root path gives the address below which Airflow and the app answer.
        template: the template file's name.
        status: the answer's status.
        **values: values for the template.
    """
    base = request.scope.get("root_path", "")
    page = _TEMPLATES.get_template(template).render(base=base, airflow=base.removesuffix(PREFIX), **values)
    return HTMLResponse(page, status)


def document(job: DeclaredJob, found: dict[str, Json]) -> JSONResponse:
    """Return a JSON document about a job, with the job's identity.

    Args:
        job: the job.
        found: the document.
    """
    return JSONResponse({"dag_id": job.dag_id, "job": job.job, "storage": job.storage, **found})


def failed(request: Request, error: Exception) -> Response:
    """Answer a failed request in the format that its path and its `Accept` header ask for.

    Args:
        request: the request.
        error: its error.
    """
    problem = problem_of(error)
    path = request.scope["path"].removeprefix(request.scope.get("root_path", ""))
    if path.startswith(API) or "text/html" not in request.headers.get("accept", ""):
        return JSONResponse({"error": asdict(problem)}, problem.status)
    return html(request, "problem.html", status=problem.status, problem=problem, job_page=_job_page(request, error))


def _job_page(request: Request, error: Exception) -> str | None:
    """Return the page of the job for which a user wanted an intervention; None without a job, or without the right."""
    path = request.path_params
    if "kind" not in path or not isinstance(error, _JOB_IS_THERE):
        return None
    return _address(request, path["dag_id"], path["job"])


async def guarded(request: Request, proceed: Callable[[Request], Awaitable[Response]]) -> Response:
    """Add the headers to every answer, and answer errors that no other code handles.

    Args:
        request: the request.
        proceed: the rest of the app.
    """
    try:
        answer = await proceed(request)
    except Exception as error:  # noqa: BLE001 - `problem_of` logs unexpected errors
        answer = failed(request, error)
    answer.headers.update(HEADERS)
    return answer


def static(name: str) -> Response | None:
    """Return a file that pages refer to; None if there is none with this name."""
    kinds = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
    path = _FOLDER / "static" / name
    if path.suffix not in kinds or path.parent != _FOLDER / "static" or not path.is_file():
        return None
    return Response(path.read_bytes(), media_type=kinds[path.suffix])
