"""Builds the app's answers: HTML for a browser, JSON for a program, also where a request failed."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any
from urllib.parse import quote

from airflow.sdk.exceptions import AirflowNotFoundException
from fastapi.exceptions import RequestValidationError
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response

from ...checkpoint.documents.layout import run_id_of
from ...checkpoint.documents.strict_json import Json
from ...checkpoint.errors import AirflowApiError, AirflowApiRefusedError, CheckpointError
from ...checkpoint.masking import masked
from ...checkpoint.reasons import cause_and_verdict, cause_first
from ...checkpoint.views import wording
from ...checkpoint.views.checkpoint_list import Shown
from ...checkpoint.views.next_step import failure_text, meaning_of
from ...storage.errors import CairnError, ErrorKind, printable
from ...storage.records import dataclass
from ..interventions.acts import REQUEST
from ..interventions.plan import InterventionRefusedError
from .declared_jobs import DeclaredJob

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
    """Return the address of a job's overview, in the interface `below` the app; empty: the pages."""
    return _address(request, job.dag_id, job.task_id, below)


def _address(request: Request, dag_id: str, job: str, below: str = "") -> str:
    base = request.scope.get("root_path", "")
    return f"{base}{below}/dags/{_segment(dag_id)}/jobs/{_segment(job)}"


def html(request: Request, template: str, *, status: int = 200, **values: Any) -> HTMLResponse:
    """Return a page."""
    base = request.scope.get("root_path", "")
    page = _TEMPLATES.get_template(template).render(base=base, airflow=base.removesuffix(PREFIX), **values)
    return HTMLResponse(page, status)


def document(job: DeclaredJob, found: dict[str, Json]) -> JSONResponse:
    """Return a JSON document about a job, with the job's identity."""
    return JSONResponse({"dag_id": job.dag_id, "job": job.job, "storage": job.storage, **found})


def failed(request: Request, error: Exception) -> Response:
    """Answer a failed request in the format that its path and its `Accept` header ask for."""
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
    """Add the headers to every answer, and answer errors that no other code handles."""
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


log = logging.getLogger("airflow_cairn")


class JobNotKnownError(Exception):
    """The DAG or the job in a path does not exist."""


class TemplatedJobError(Exception):
    """The job's storage or name is a template, and no run has rendered it yet."""


class RowsNotShownError(Exception):
    """This process cannot read the rows of a state; the message says why, and what to do."""


class ForeignRequestError(Exception):
    """A changing request was not sent by a page of Cairn."""


class NotYetDoneError(TimeoutError):
    """An intervention has not ended in time, and goes on."""


@dataclass(frozen=True, slots=True)
class Problem:
    """An error as the reader sees it."""

    status: int
    title: str
    text: str = ""
    way_out: str = ""


_SIGN_IN = Problem(401, "Your session has ended", "", "Reload Airflow and sign in.")
_NO_RIGHT = Problem(
    403,
    "You may not do this",
    "A job is shown to those who may read the runs of its DAG, and changed by those who may edit them.",
    "Ask an administrator of this Airflow for the right to read, or to edit, DAG runs.",
)
_OWNED = Problem(403, "Another DAG owns this job")
_FOREIGN = Problem(
    403,
    "Nothing was done",
    "This request does not come from a page of Cairn, so it may be forged.",
    "Open the page in Airflow and confirm there. A program sends its token: `Authorization: Bearer …`.",
)
_REFUSED = Problem(403, "Airflow refuses this", "", "Ask an administrator of this Airflow for the right.")
_AWAY = Problem(502, "Airflow's own API did not do this", "", "Reload this page: it says what there is now.")
_NOT_YET_DONE = Problem(
    504,
    "There is no answer yet",
    "The storage, or Airflow's own API, has not answered in time. What you have confirmed goes on.",
    "Look at the job's page in a minute: it says what has been done.",
)
_DEFECT = Problem(
    500, "Cairn could not make this page", "This is a defect of Cairn.", "The API server's log has the cause."
)
_OF_KIND = {
    ErrorKind.GONE: Problem(404, "This is not there"),
    ErrorKind.DATA: Problem(
        502, "A document of this job is damaged", "", "To list all damage, type `cairn verify JOB --storage ROOT`."
    ),
    ErrorKind.FORBIDDEN: Problem(
        502,
        "The storage refuses the credentials",
        "",
        "Let the DAG name a connection (`aws_conn_id`) that may list and read there from the API server too.",
    ),
    ErrorKind.UNAVAILABLE: Problem(504, "The storage does not answer", "", "Reload this page in a minute."),
    ErrorKind.CONFLICT: Problem(504, "The job changes faster than it can be read", "", "Reload this page."),
    ErrorKind.INVALID: Problem(502, "The storage cannot be used", "", "Correct the DAG or its connection."),
    ErrorKind.UNSUPPORTED: Problem(502, "The storage cannot be used", "", "Correct the DAG or its connection."),
}


def problem_of(error: Exception) -> Problem:
    """Return an error as the reader sees it; an unexpected error is logged and not shown."""
    match error:
        case HTTPException():
            return _of_http(error)
        case RequestValidationError():
            return Problem(422, "This address is not understood", _wrong(error))
        case NotYetDoneError():
            return _NOT_YET_DONE
        case TimeoutError():
            return _with(_OF_KIND[ErrorKind.UNAVAILABLE], "It has not answered in time.")
        case JobNotKnownError():
            return Problem(
                404, "There is no such job", str(error), "To see all jobs, open Cairn in Airflow's Browse menu."
            )
        case TemplatedJobError():
            return Problem(
                409, "Only a run knows this job", str(error), "Trigger a run of the DAG; its job is shown here then."
            )
        case AirflowApiRefusedError():
            return _with(_REFUSED, error.message)
        case AirflowApiError():
            return _with(_AWAY, error.message)
        case InterventionRefusedError():
            return Problem(409, "Nothing was done", str(error))
        case RowsNotShownError():
            return Problem(409, "These rows cannot be shown here", printable(masked(str(error))))
        case ForeignRequestError():
            return _FOREIGN
        case AirflowNotFoundException():
            return _with(_OF_KIND[ErrorKind.INVALID], str(error))
        case CheckpointError(code="job_owned"):
            return _with(_OWNED, error.message)
        case CairnError() if error.kind in _OF_KIND:
            return _with(_OF_KIND[error.kind], str(error))
    log.error("A page of Cairn could not be made", exc_info=error)
    return _DEFECT


def _wrong(error: RequestValidationError) -> str:
    return "; ".join(f"`{each['loc'][-1]}`: {each['msg']}" for each in error.errors()) + "."


def _of_http(error: HTTPException) -> Problem:
    if error.status_code == 401:
        return _SIGN_IN
    if error.status_code == 403:
        return _NO_RIGHT
    return Problem(error.status_code, str(error.detail))


def _with(problem: Problem, text: str) -> Problem:
    return Problem(problem.status, problem.title, printable(masked(text)), problem.way_out)
