"""The answer to a request that failed: a status, a title, what happened, and what to do next."""

from __future__ import annotations

import logging

from airflow.sdk.exceptions import AirflowNotFoundException
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from ...checkpoint.errors import AirflowApiError, AirflowApiRefusedError, CheckpointError
from ...checkpoint.masking import masked
from ...storage.errors import CairnError, ErrorKind, printable
from ...storage.records import dataclass
from ..interventions.plan import InterventionRefusedError

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
    """Return an error as the reader sees it; an unexpected error is logged and not shown.

    Args:
        error: the error of a route.
    """
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
