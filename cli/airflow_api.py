"""Airflow's API as the command line asks it: for a run of a DAG, or for a pause. Needs no Airflow installed."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from ..checkpoint.errors import InvalidConfigError
from ..storage.errors import CairnError, ErrorKind
from ..storage.names import shorten
from ..storage.printable import printable

if TYPE_CHECKING:
    from http.client import HTTPConnection

TOKEN = "CAIRN_AIRFLOW_TOKEN"
"""The variable that holds the token; an argument would show it to every user of the machine."""
TIMEOUT_S = 30.0
"""For each step of a request."""
WAITS_S = (0.5, 2.0, 5.0)
"""Between the tries of a request that an overloaded server answers with an error."""
MAX_ANSWER = 1 << 20
"""Bytes of an answer that are read."""

_HTTP_OK, _CREATED, _NOT_FOUND, _CONFLICT, _REFUSED = 200, 201, 404, 409, frozenset({401, 403})
_OVERLOADED = frozenset({429, 500, 502, 503, 504})


class AirflowUnavailableError(CairnError):
    """Airflow's API could not be reached, or its answer cannot be used; the same request may be sent again."""

    kind = ErrorKind.UNAVAILABLE


class AirflowRefusedError(CairnError):
    """Airflow's API does not take the token, or it does not have the right."""

    kind = ErrorKind.FORBIDDEN
    retry_cures = False


class NoSuchDagError(CairnError):
    """Airflow has no such DAG, or it is paused: no run of it would start."""

    kind = ErrorKind.CONFLICT
    retry_cures = False


class AirflowApi:
    """Airflow's public REST API, as far as runs and pauses need it; no redirects, so the token goes nowhere else.

    Raises:
        InvalidConfigError: the URL is none, or the token is missing.
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
        """Tell whether a job's DAG is paused.

        Raises:
            NoSuchDagError: Airflow has no such DAG.
            AirflowRefusedError: it does not take the token, or it does not have the right.
            AirflowUnavailableError: it could not be reached, or its answer cannot be used.
        """
        status, found = self.send("GET", _dag(dag_id))
        if status == _NOT_FOUND:
            raise NoSuchDagError("Airflow has no such DAG; name it by --dag", job=job, dag=dag_id)
        if status != _HTTP_OK or not isinstance(found, dict):
            raise self.unexpected(status, found)
        return bool(found.get("is_paused"))

    def check_runs(self, job: str, dag_id: str) -> None:
        """See that a run of a job's DAG would start.

        Raises:
            NoSuchDagError: Airflow has no such DAG, or it is paused.
            AirflowRefusedError: it does not take the token, or it does not have the right.
            AirflowUnavailableError: it could not be reached, or its answer cannot be used.
        """
        if self.is_paused(job, dag_id):
            raise NoSuchDagError(
                "the DAG is paused, so a run of it would not start: unpause it", job=job, dag=dag_id, paused=True
            )

    def start_run(self, dag_id: str, run_id: str, now_ms: int) -> bool:
        """Make a run of a DAG; True if this call made it, False if it was there before.

        Raises:
            AirflowRefusedError: Airflow does not take the token, or it does not have the right.
            AirflowUnavailableError: it could not be reached, or its answer cannot be used.
        """
        now = datetime.fromtimestamp(now_ms / 1000, UTC).isoformat()
        status, found = self.send("POST", f"{_dag(dag_id)}/dagRuns", {"dag_run_id": run_id, "logical_date": now})
        created = status in (_HTTP_OK, _CREATED)
        if not created and status == _CONFLICT:
            # Also where another run has this very logical date; only the run itself says which.
            status, found = self.send("GET", f"{_dag(dag_id)}/dagRuns/{quote(run_id, safe='')}")
        if status not in (_HTTP_OK, _CREATED):
            raise self.unexpected(status, found)
        return created

    def is_over(self, dag_id: str, run_id: str) -> bool:
        """Tell whether a run of a DAG has ended; one that there is not has not.

        Raises:
            AirflowRefusedError: Airflow does not take the token, or it does not have the right.
            AirflowUnavailableError: it could not be reached, or its answer cannot be used.
        """
        status, found = self.send("GET", f"{_dag(dag_id)}/dagRuns/{quote(run_id, safe='')}")
        if status == _NOT_FOUND:
            return False
        if status != _HTTP_OK or not isinstance(found, dict):
            raise self.unexpected(status, found)
        return found.get("state") in ("success", "failed")

    def pause(self, dag_id: str) -> None:
        """Pause a DAG; one that is paused stays so.

        Raises:
            NoSuchDagError: Airflow has no such DAG.
            AirflowRefusedError: it does not take the token, or it does not have the right.
            AirflowUnavailableError: it could not be reached, or its answer cannot be used.
        """
        status, found = self.send("PATCH", f"{_dag(dag_id)}?update_mask=is_paused", {"is_paused": True})
        if status == _NOT_FOUND:
            raise NoSuchDagError("Airflow has no such DAG; name it by --dag", dag=dag_id)
        if status != _HTTP_OK:
            raise self.unexpected(status, found)

    def send(self, method: str, path: str, body: object = None) -> tuple[int, object]:
        """Send a request; gives status and JSON, or None where the answer is no JSON.

        All that is asked for here may be asked for twice: a pause, a run whose id is named. So a server that says that
        it cannot just now is asked again.

        Raises:
            AirflowRefusedError: the token is not taken, or lacks the right.
            AirflowUnavailableError: there was no answer; the request may have arrived.
        """
        found = self._once(method, path, body)
        for wait_s in WAITS_S:
            if found[0] not in _OVERLOADED:
                break
            time.sleep(wait_s)
            found = self._once(method, path, body)
        return found

    def _once(self, method: str, path: str, body: object) -> tuple[int, object]:
        from http.client import HTTPException  # with all of `email` behind it, which few commands need

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
                "runs of it, or to pause it",
                host=self._host,
                status=status,
            )
        return status, _json(data)

    def unexpected(self, status: int, found: object) -> AirflowUnavailableError:
        """Give the error for an answer that is none."""
        detail: Any = found.get("detail", "") if isinstance(found, dict) else ""
        return AirflowUnavailableError(
            "the answer of Airflow's API cannot be used", host=self._host, status=status, detail=printable(str(detail))
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
