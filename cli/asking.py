"""`cairn checkpoint`: asks for a checkpoint now. An epoch is a DAG run, so Airflow is asked for one.

The run's id is made of the request's, so asking twice gives one run: Airflow refuses an id that it has.
"""

from __future__ import annotations

import argparse
import json
import os
import ssl
from collections.abc import Mapping
from datetime import UTC, datetime
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any
from urllib.parse import quote, urlsplit

from ..checkpoint import Runtime, system_runtime
from ..checkpoint.errors import InvalidConfigError
from ..storage.errors import CairnError, ErrorKind
from ..storage.names import check_name, shorten
from .commands import Outcome
from .text import printable

TOKEN = "CAIRN_AIRFLOW_TOKEN"
"""The variable that holds the token; an argument would show it to everybody on the machine."""
TIMEOUT_S = 30.0
"""For each step of a request."""
MAX_ANSWER = 1 << 20
"""Bytes of an answer that are read."""

_HTTP_OK, _CREATED, _NOT_FOUND, _CONFLICT, _REFUSED = 200, 201, 404, 409, frozenset({401, 403})


class AirflowUnavailableError(CairnError):
    """Airflow's API could not be reached, or answered what it should not; the same request may be sent again."""

    kind = ErrorKind.UNAVAILABLE


class AirflowRefusedError(CairnError):
    """Airflow's API does not take the token, or it does not have the right."""

    kind = ErrorKind.FORBIDDEN


class NoSuchDagError(CairnError):
    """Airflow has no such DAG, or it is paused: no run of it would start."""

    kind = ErrorKind.CONFLICT


def checkpoint(options: argparse.Namespace) -> Outcome:
    """Ask for a checkpoint of a job now, by a DAG run of the type manual (semantics T2, T3).

    Args:
        options: with `job`, `dag`, `airflow_url` and `request_id`.

    Raises:
        InvalidConfigError: the URL is none, or the token is missing.
        InvalidNameError: the request's id is outside the grammar (semantics W1).
        NoSuchDagError: Airflow has no such DAG, or it is paused.
        AirflowRefusedError: it does not take the token, or it does not have the right.
        AirflowUnavailableError: it could not be reached, or answered what it should not.
    """
    return ask(options.job, options.dag or options.job, options.airflow_url, options.request_id, os.environ)


def ask(
    job: str,
    dag_id: str,
    url: str | None,
    request_id: str | None,
    environ: Mapping[str, str],
    runtime: Runtime | None = None,
) -> Outcome:
    """Ask Airflow for a run of a DAG; see `checkpoint`.

    Args:
        job: whose checkpoint is wanted.
        dag_id: of the DAG that makes them.
        url: of Airflow's API server; None: it is missing.
        request_id: the same gives the same run; None: a fresh one.
        environ: holds the token.
        runtime: clock and randomness; the system's by default.

    Raises:
        InvalidConfigError: the URL is none, or the token is missing.
        InvalidNameError: the request's id is outside the grammar (semantics W1).
        NoSuchDagError: Airflow has no such DAG, or it is paused.
        AirflowRefusedError: it does not take the token, or it does not have the right.
        AirflowUnavailableError: it could not be reached, or answered what it should not.
    """
    runtime = runtime or system_runtime()
    request = request_id or runtime.new_token()
    check_name("request", request)
    run_id = f"cairn__{request}"
    api = _Api(url, environ.get(TOKEN))
    dag = f"/dags/{quote(dag_id, safe='')}"
    status, found = api.send("GET", dag)
    if status == _NOT_FOUND:
        raise NoSuchDagError("Airflow has no such DAG; name it by --dag", job=job, dag=dag_id)
    if status != _HTTP_OK or not isinstance(found, dict):
        raise api.unexpected(status, found)
    if found.get("is_paused"):
        raise NoSuchDagError("the DAG is paused, so a run of it would not start: unpause it", job=job, dag=dag_id)
    now = datetime.fromtimestamp(runtime.now_ms() / 1000, UTC).isoformat()
    status, found = api.send("POST", f"{dag}/dagRuns", {"dag_run_id": run_id, "logical_date": now})
    created = status in (_HTTP_OK, _CREATED)
    if not created and status == _CONFLICT:
        # Also where another run has this very logical date; only the run itself says which.
        status, found = api.send("GET", f"{dag}/dagRuns/{quote(run_id, safe='')}")
    if status not in (_HTTP_OK, _CREATED):
        raise api.unexpected(status, found)
    line = f"the DAG run {run_id} of {dag_id} is there already: nothing was asked anew"
    if created:
        asked = f"asked for a checkpoint of {job}: DAG run {run_id} of {dag_id}"
        line = f"{asked}. It comes before those of the schedule, and waits for no pause"
    return Outcome([line], {"job": job, "dag": dag_id, "run": run_id, "request": request, "created": created})


class _Api:
    """Airflow's public REST API, as far as two requests need it; no redirects, so the token goes nowhere else."""

    def __init__(self, url: str | None, token: str | None) -> None:
        try:
            parts = urlsplit(url or "")
            port = parts.port
        except ValueError:
            parts, port = urlsplit(""), None
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.query:
            raise InvalidConfigError(
                "the address of Airflow's API server is missing, or no plain http or https URL: give --airflow-url "
                "https://airflow.example.com, or set CAIRN_AIRFLOW_URL",
                airflow_url=shorten(parts.hostname or ""),
            )
        if not token or not token.isascii() or not token.isprintable():
            raise InvalidConfigError(f"set {TOKEN} to a token of Airflow's API: printable ASCII on one line")
        self._host, self._port = parts.hostname, port
        self._secure, self._base = parts.scheme == "https", parts.path.rstrip("/")
        self._token = token

    def send(self, method: str, path: str, body: object = None) -> tuple[int, object]:
        """Send one request; gives status and JSON, or None where the answer is no JSON.

        Raises:
            AirflowRefusedError: the token is not taken, or lacks the right.
            AirflowUnavailableError: there was no answer; the request may have arrived.
        """
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        wire = self._connection()
        try:
            wire.request(method, f"{self._base}/api/v2{path}", json.dumps(body) if body else None, headers)
            answer = wire.getresponse()
            status, data = answer.status, answer.read(MAX_ANSWER)
        except (OSError, HTTPException) as error:
            raise AirflowUnavailableError(
                f"Airflow's API did not answer: {type(error).__name__}: {error}. With the same --request-id it may be "
                "asked again",
                host=self._host,
            ) from error
        finally:
            wire.close()
        if status in _REFUSED:
            raise AirflowRefusedError(
                f"Airflow's API does not take the token of {TOKEN}, or it lacks the right to read the DAG and to make "
                "runs of it",
                host=self._host,
                status=status,
            )
        return status, _json(data)

    def unexpected(self, status: int, found: object) -> AirflowUnavailableError:
        """Give the error for an answer that is none."""
        detail: Any = found.get("detail", "") if isinstance(found, dict) else ""
        return AirflowUnavailableError(
            "Airflow's API answered what it should not", host=self._host, status=status, detail=printable(str(detail))
        )

    def _connection(self) -> HTTPConnection:
        if not self._secure:
            return HTTPConnection(self._host, self._port, timeout=TIMEOUT_S)
        return HTTPSConnection(self._host, self._port, timeout=TIMEOUT_S, context=ssl.create_default_context())


def _json(data: bytes) -> object:
    try:
        return json.loads(data)
    except ValueError:
        return None
