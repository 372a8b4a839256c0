"""Airflow's API for the command line: starts a run of a DAG, or pauses the DAG. Needs no Airflow installed."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from ..checkpoint.errors import AirflowApiError, AirflowApiRefusedError, InvalidConfigError, RefusedError
from ..storage.errors import printable
from ..storage.names import scheme_of, shorten
from ..storage.open import OPTIONS, StoreOptions

if TYPE_CHECKING:
    from http.client import HTTPConnection


TOKEN = "CAIRN_AIRFLOW_TOKEN"
"""The variable with the token; an argument would show it to every user of the machine."""
TIMEOUT_S = 30.0
"""Seconds for each step of a request."""
WAITS_S = (0.5, 2.0, 5.0)
"""Seconds between the tries of a request that an overloaded server answers with an error."""
MAX_ANSWER = 1 << 20
"""Maximum number of bytes read of an answer."""

_HTTP_OK, _CREATED, _NOT_FOUND, _CONFLICT, _REFUSED = 200, 201, 404, 409, frozenset({401, 403})
_OVERLOADED = frozenset({429, 500, 502, 503, 504})


class AirflowApi:
    """Airflow's public REST API, for runs and pauses. Follows no redirects, so the token goes nowhere else.

    Raises:
        InvalidConfigError: the URL is invalid, or the token is missing.
    """

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

    def is_paused(self, job: str, dag_id: str) -> bool:
        """Return whether a job's DAG is paused.

        Raises:
            RefusedError: Airflow has no such DAG.
            AirflowApiRefusedError: Airflow refuses the token, or the token lacks the right.
            AirflowApiError: Airflow could not be reached, or its answer cannot be used.
        """
        status, found = self.send("GET", _dag(dag_id))
        if status == _NOT_FOUND:
            raise RefusedError("Airflow has no such DAG; name it by --dag", code="no_such_dag", job=job, dag=dag_id)
        if status != _HTTP_OK or not isinstance(found, dict):
            raise self.unexpected(status, found)
        return bool(found.get("is_paused"))

    def check_runs(self, job: str, dag_id: str) -> None:
        """Check that a run of a job's DAG would start.

        Raises:
            RefusedError: Airflow has no such DAG, or it is paused.
        """
        if self.is_paused(job, dag_id):
            raise RefusedError(
                "the DAG is paused, so a run of it would not start: unpause it",
                code="no_such_dag",
                job=job,
                dag=dag_id,
                paused=True,
            )

    def start_run(
        self,
        dag_id: str,
        run_id: str,
        now_ms: int,
        window: Sequence[datetime] | None = None,
        *,
        again: bool = False,
    ) -> bool:
        """Create a run of a DAG; True if this call created it, False if it existed.

        Without a window, start and end of the data interval, `now_ms` is the logical date, and the timetable decides;
        else the start is the logical date. A run that reads its window again, although the job has read it (semantics
        T8), has a logical date less than a second later: the run that has read the window has that start, and Airflow
        starts no task after the end date of the DAG.

        Raises:
            AirflowApiRefusedError: Airflow refuses the token, or the token lacks the right.
            AirflowApiError: Airflow could not be reached, or its answer cannot be used.
        """
        date = datetime.fromtimestamp(now_ms / 1000, UTC)
        body: dict[str, object] = {"dag_run_id": run_id}
        if window is not None:
            start, end = window
            date = start + timedelta(microseconds=1 + now_ms % 999_999) if again else start
            body |= {"data_interval_start": start.isoformat(), "data_interval_end": end.isoformat()}
        if again:
            body["conf"] = {"cairn": {"read_again": True}}
        body["logical_date"] = date.isoformat()
        status, found = self.send("POST", f"{_dag(dag_id)}/dagRuns", body)
        created = status in (_HTTP_OK, _CREATED)
        if not created and status == _CONFLICT:
            # The answer is the same if another run has this logical date: look for the run itself.
            status, found = self.send("GET", f"{_dag(dag_id)}/dagRuns/{quote(run_id, safe='')}")
        if status not in (_HTTP_OK, _CREATED):
            raise self.unexpected(status, found)
        return created

    def is_over(self, dag_id: str, run_id: str) -> bool:
        """Return whether a DAG run has ended; False if it does not exist.

        Raises:
            AirflowApiRefusedError: Airflow refuses the token, or the token lacks the right.
            AirflowApiError: Airflow could not be reached, or its answer cannot be used.
        """
        status, found = self.send("GET", f"{_dag(dag_id)}/dagRuns/{quote(run_id, safe='')}")
        if status == _NOT_FOUND:
            return False
        if status != _HTTP_OK or not isinstance(found, dict):
            raise self.unexpected(status, found)
        return found.get("state") in ("success", "failed")

    def pause(self, dag_id: str) -> None:
        """Pause a DAG; a paused one stays paused.

        Raises:
            RefusedError: Airflow has no such DAG.
            AirflowApiRefusedError: Airflow refuses the token, or the token lacks the right.
            AirflowApiError: Airflow could not be reached, or its answer cannot be used.
        """
        status, found = self.send("PATCH", f"{_dag(dag_id)}?update_mask=is_paused", {"is_paused": True})
        if status == _NOT_FOUND:
            raise RefusedError("Airflow has no such DAG; name it by --dag", code="no_such_dag", dag=dag_id)
        if status != _HTTP_OK:
            raise self.unexpected(status, found)

    def send(self, method: str, path: str, body: object = None) -> tuple[int, object]:
        """Send a request; returns status and JSON, or None if the answer is not JSON.

        All requests of this class may be repeated: a pause, a run with a given id. So a server that is temporarily
        unable to answer is asked again.
        """
        found = self._once(method, path, body)
        for wait_s in WAITS_S:
            if found[0] not in _OVERLOADED:
                break
            time.sleep(wait_s)
            found = self._once(method, path, body)
        return found

    def _once(self, method: str, path: str, body: object) -> tuple[int, object]:
        from http.client import HTTPException  # imports all of `email`, which few commands need

        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        wire = self._connection()
        try:
            wire.request(method, f"{self._base}/api/v2{path}", json.dumps(body) if body else None, headers)
            answer = wire.getresponse()
            status, data = answer.status, answer.read(MAX_ANSWER)
        except (OSError, HTTPException) as error:
            raise AirflowApiError(
                f"Airflow's API did not answer: {type(error).__name__}: {error}. With the same --request-id it may be "
                "asked again",
                code="airflow_unavailable",
                host=self._host,
            ) from error
        finally:
            wire.close()
        if status in _REFUSED:
            raise AirflowApiRefusedError(
                f"Airflow's API does not take the token of {TOKEN}, or it lacks the right to read the DAG and to make "
                "runs of it, or to pause it",
                code="airflow_refused",
                host=self._host,
                status=status,
            )
        return status, _json(data)

    def unexpected(self, status: int, found: object) -> AirflowApiError:
        detail: Any = found.get("detail", "") if isinstance(found, dict) else ""
        return AirflowApiError(
            "the answer of Airflow's API cannot be used",
            code="airflow_unavailable",
            host=self._host,
            status=status,
            detail=printable(str(detail)),
        )

    def _connection(self) -> HTTPConnection:
        import ssl
        from http.client import HTTPConnection, HTTPSConnection

        if not self._secure:
            return HTTPConnection(self._host, self._port, timeout=TIMEOUT_S)
        return HTTPSConnection(self._host, self._port, timeout=TIMEOUT_S, context=ssl.create_default_context())


def _dag(dag_id: str) -> str:
    return f"/dags/{quote(dag_id, safe='')}"


def _json(data: bytes) -> object:
    try:
        return json.loads(data)
    except ValueError:
        return None


# Opens a storage with an Airflow connection: its credentials, its endpoint, and its storage, if it names one.


def take_over(options: argparse.Namespace) -> None:
    """Apply the connection that a command names, and find its storage.

    Arguments take precedence over the connection, and the connection over `CAIRN_STORAGE`.

    It reads `conn`, `storage`, `endpoint_url` and `region`, and sets `stores`, the options of each kind of store by the
    scheme of its URIs.
    """
    said = {"endpoint_url": options.endpoint_url, "region": options.region}
    options.stores = {scheme: _with(kind(), said) for scheme, kind in OPTIONS.items()}
    from_environment = os.environ.get("CAIRN_STORAGE")
    if options.conn is None:
        options.storage = options.storage or from_environment
        return
    found, storage = _read(options.conn, options.storage or from_environment)
    options.storage = options.storage or storage or from_environment
    options.stores |= {scheme: _with(found, said) for scheme, kind in OPTIONS.items() if isinstance(found, kind)}


def stores_of(conn_id: str, storage: str) -> dict[str, StoreOptions]:
    """Return the options of a second storage's store, with the connection that is named for it."""
    found, _ = _read(conn_id, storage)
    return {scheme: found for scheme, kind in OPTIONS.items() if isinstance(found, kind)}


def _with(options: StoreOptions, said: Mapping[str, str | None]) -> StoreOptions:
    known = {each.name for each in fields(options)}
    return replace(options, **{name: value for name, value in said.items() if value and name in known})  # type: ignore[arg-type]


def _read(conn_id: str, named: str | None) -> tuple[StoreOptions, str | None]:
    # Airflow prints when it is imported; this command's output must stay machine-readable.
    with redirect_stdout(sys.stderr):
        try:
            from ..hooks.storage import OPTIONS_OF, STORAGE
            from ..hooks.storage_connections import connection_on_a_shell
        except ImportError as error:
            raise InvalidConfigError(
                f"--conn needs Airflow, which cannot be imported here: {error}. Give the credentials in the "
                "environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY), or by AWS_PROFILE",
                conn_id=conn_id,
            ) from error
        found = connection_on_a_shell(conn_id)
        storage = found.extra_dejson.get(STORAGE) or None
        scheme = scheme_of(str(named or storage))
        return OPTIONS_OF.get(scheme, OPTIONS_OF["s3"])(found), storage
