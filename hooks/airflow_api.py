"""Airflow's REST API, as far as Cairn needs it: reads tasks, clears some of one run, starts a run, pauses a DAG."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import cached_property
from types import TracebackType
from typing import Any
from urllib.parse import quote, urlsplit

import httpx
from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowSecretsBackendAccessDenied
from airflow.sdk.log import mask_secret

from ..checkpoint.errors import AirflowApiError, AirflowApiRefusedError, InvalidConfigError
from ..storage.errors import CairnError
from ..storage.records import dataclass
from .airflow_api_access import ApiAccess, access_of
from .task_refs import ENDED_RUN, TaskRef, clear_body, failed_body

AIRFLOW_API_CONN_ID = "cairn_airflow_api"
TIMEOUT_S = 30.0
"""Seconds for each step of a request: a busy API server takes seconds to answer."""
WAITS_S = (0.5, 2.0, 5.0)
"""Seconds between the tries of a request that may be sent again."""

_LOGIN = "/auth/token"
_OVERLOADED = frozenset({429, 500, 502, 503, 504})


@dataclass(frozen=True, slots=True)
class TaskFacts:
    """One task instance as the API shows it."""

    id: str
    """Airflow gives a task instance another id for each try, and with each clear."""
    state: str | None
    """None: the task is to run but is not scheduled yet."""


class AirflowApiHook(BaseHook):
    """Calls Airflow's own API with the rights of an Airflow connection.

    The hook requests a token for the first request, and a new one when the API no longer accepts it. It keeps the token
    in memory only. Use the hook as a context manager, or close it.

    Each request may raise `AirflowApiRefusedError` (the API refuses login, token or rights), `AirflowApiError` (another
    answer than expected, or nothing of that name), `AirflowNotFoundException` (the connection is not defined) and
    `InvalidConfigError` (the connection cannot be used).

    Args:
        airflow_api_conn_id: the connection; see the how-to about clearing.
        sleep: waits, in seconds; for tests.
        waits_s: seconds between the tries of a request that may be sent again; empty: only one try.
        timeout_s: seconds for each step of a request.
    """

    conn_name_attr = "airflow_api_conn_id"
    default_conn_name = AIRFLOW_API_CONN_ID
    hook_name = "Airflow REST API (Cairn)"

    def __init__(
        self,
        airflow_api_conn_id: str = AIRFLOW_API_CONN_ID,
        *,
        sleep: Callable[[float], None] = time.sleep,
        waits_s: Sequence[float] = WAITS_S,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        super().__init__()
        self.airflow_api_conn_id = airflow_api_conn_id
        self._sleep = sleep
        self._waits_s = tuple(waits_s)
        self._timeout_s = timeout_s
        self._token: str | None = None

    def __repr__(self) -> str:
        """Name the connection, never its contents."""
        return f"AirflowApiHook(airflow_api_conn_id={self.airflow_api_conn_id!r})"

    def __enter__(self) -> AirflowApiHook:
        """Return the hook; sends nothing yet."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @cached_property
    def access(self) -> ApiAccess:
        """The API's address and credentials, from the connection.

        Raises:
            AirflowNotFoundException: the connection is not defined, or cannot be fetched here.
            AirflowApiRefusedError: this task may not read the connection.
            InvalidConfigError: the connection cannot be used.
        """
        try:
            return access_of(self.get_connection(self.airflow_api_conn_id))
        except AirflowSecretsBackendAccessDenied as error:
            raise AirflowApiRefusedError(
                f"this task may not read the connection to Airflow's API: {error}",
                airflow_api_conn_id=self.airflow_api_conn_id,
            ) from error

    @cached_property
    def _http(self) -> httpx.Client:
        # No redirects: a 307 would forward the body, and the body of a token request holds the password.
        return httpx.Client(
            base_url=self.access.base_url, timeout=self._timeout_s, verify=self.access.trust(), follow_redirects=False
        )

    def close(self) -> None:
        """Close the connections, if any were made."""
        client = self.__dict__.pop("_http", None)
        if client is not None:
            client.close()

    def task_facts(self, dag_id: str, run_id: str, task: TaskRef) -> TaskFacts | None:
        """Return the state of a task instance.

        Args:
            dag_id: the DAG's id.
            run_id: the DAG run's id.
            task: the task of the run.

        Returns:
            Its facts now; None if the run has no such task instance.

        Raises:
            AirflowApiError: the API did not answer as it should.
        """
        answer = self._send("GET", _path_of(dag_id, run_id, task), repeat=True)
        if answer.status_code == httpx.codes.NOT_FOUND:
            return None
        found = self._json(answer)
        if not isinstance(found.get("id"), str):
            raise self._unexpected(answer)
        return TaskFacts(found["id"], found.get("state"))

    def rewrite_note(self, dag_id: str, run_id: str, task: TaskRef | None, rewrite: Callable[[str], str]) -> None:
        """Change the note of a run, or of one of its tasks; sends nothing if the note stays the same.

        The API has no compare-and-swap: a user's change between the two requests, milliseconds apart, is lost.

        Args:
            dag_id: the DAG's id.
            run_id: the DAG run's id.
            task: the task of the run; None: the run's own note.
            rewrite: returns the new note for the existing one, which is empty if there is none.
        """
        path = _path_of(dag_id, run_id, task)
        before = self._json(self._send("GET", path, repeat=True)).get("note") or ""
        note = rewrite(before)
        if note != before:
            self._json(self._send("PATCH", f"{path}?update_mask=note", {"note": note}, repeat=True))

    def clear(self, dag_id: str, run_id: str, tasks: list[TaskRef], note: str) -> None:
        """Clear tasks of one run, whatever their state, in one transaction; see `clear_body`.

        The request is not repeated if its answer was lost: it may have cleared. A caller that wants to try again
        compares first.

        Args:
            dag_id: the DAG's id.
            run_id: the DAG run's id.
            tasks: at least one.
            note: the note that the page shows at each of them.

        Raises:
            AirflowApiError: the tasks may have been cleared nevertheless.
            InvalidConfigError: the body would reach too far.
        """
        body = clear_body(run_id, tasks, note)
        self._json(self._send("POST", f"/dags/{_quoted(dag_id)}/clearTaskInstances", body, repeat=False))

    def clear_failed(
        self, dag_id: str, run_id: str, tasks: list[TaskRef], note: str, *, dry_run: bool
    ) -> tuple[TaskRef, ...]:
        """Clear the failed tasks among some tasks of one run, and those behind them; see `failed_body`.

        Args:
            dag_id: the DAG's id.
            run_id: the DAG run's id.
            tasks: at least one.
            note: the note that the page shows at each of them.
            dry_run: only report which tasks would be cleared.

        Returns:
            The cleared tasks, or those that would be cleared, in order.

        Raises:
            AirflowApiError: the tasks may have been cleared nevertheless.
            InvalidConfigError: the body would reach too far.
        """
        path = f"/dags/{_quoted(dag_id)}/clearTaskInstances"
        answer = self._send("POST", path, failed_body(run_id, tasks, note, dry_run=dry_run), repeat=dry_run)
        found = self._json(answer).get("task_instances")
        if not isinstance(found, list):
            raise self._unexpected(answer)
        return tuple(sorted(TaskRef(each["task_id"], each.get("map_index", -1)) for each in found))

    def pause(self, dag_id: str) -> None:
        """Pause a DAG; a paused one stays paused."""
        path = f"/dags/{_quoted(dag_id)}?update_mask=is_paused"
        self._json(self._send("PATCH", path, {"is_paused": True}, repeat=True))

    def check_login(self) -> None:
        """Check that the API accepts the connection, and that its user may read DAGs."""
        self._json(self._send("GET", "/dags?limit=1", repeat=True))

    def component_states(self) -> dict[str, str | None]:
        """Return the state of each of Airflow's processes by its name, such as `triggerer`: `healthy` if it runs."""
        found = self._json(self._send("GET", "/monitor/health", repeat=True))
        return {name: each.get("status") for name, each in found.items() if isinstance(each, dict)}

    def is_paused(self, dag_id: str) -> bool | None:
        """Return whether a DAG is paused; None if Airflow has no such DAG."""
        answer = self._dag(dag_id)
        return None if answer.status_code == httpx.codes.NOT_FOUND else bool(self._json(answer).get("is_paused"))

    def check_runs(self, dag_id: str) -> None:
        """Check that a run of a DAG would start.

        Raises:
            InvalidConfigError: the DAG is paused.
        """
        if self._json(self._dag(dag_id)).get("is_paused"):
            raise InvalidConfigError("the DAG is paused, so a run of it would not start: unpause it", dag=dag_id)

    def start_run(self, dag_id: str, run_id: str, now_ms: int) -> bool:
        """Create a run of a DAG; True if this call created it, False if it existed.

        Args:
            dag_id: the DAG's id.
            run_id: the run's id; Airflow takes an id once, so the request may be sent again.
            now_ms: the time, milliseconds since 1970 UTC.
        """
        runs = f"/dags/{_quoted(dag_id)}/dagRuns"
        now = datetime.fromtimestamp(now_ms / 1000, UTC).isoformat()
        answer = self._send("POST", runs, {"dag_run_id": run_id, "logical_date": now}, repeat=True)
        if answer.status_code != httpx.codes.CONFLICT:
            self._json(answer)
            return True
        # The answer is the same if another run has this logical date: look for the run itself.
        self._json(self._run(dag_id, run_id))
        return False

    def is_over(self, dag_id: str, run_id: str) -> bool:
        """Return whether a DAG run has ended; False if it does not exist."""
        return self.run_state(dag_id, run_id) in ENDED_RUN

    def run_state(self, dag_id: str, run_id: str) -> str | None:
        """Return the state of a DAG run; None if it does not exist.

        Raises:
            AirflowApiError: the API did not answer as it should.
        """
        answer = self._run(dag_id, run_id)
        if answer.status_code == httpx.codes.NOT_FOUND:
            return None
        state = self._json(answer).get("state")
        if not isinstance(state, str):
            raise self._unexpected(answer)
        return state

    def _dag(self, dag_id: str) -> httpx.Response:
        return self._send("GET", f"/dags/{_quoted(dag_id)}", repeat=True)

    def _run(self, dag_id: str, run_id: str) -> httpx.Response:
        return self._send("GET", _path_of(dag_id, run_id), repeat=True)

    def _send(self, method: str, path: str, body: Any = None, *, repeat: bool) -> httpx.Response:
        fresh = self._token is None
        answer = self._once(method, path, body, repeat=repeat)
        if _refuses_token(answer) and not fresh and self.access.token is None:
            # The token has expired, or the server signs with another key. The request was refused before anything was
            # done, so any request may be sent again.
            self._token = None
            answer = self._once(method, path, body, repeat=repeat)
        if _refuses_token(answer):
            raise self._refused(
                answer, "Airflow's API does not take the token: give the connection a valid one, or login and password"
            )
        if answer.status_code == httpx.codes.FORBIDDEN:
            raise self._refused(
                answer,
                "the connection's user may not do this: it needs the right to read and edit task instances and runs of "
                "the DAG, and to stop a job the right to edit the DAG and to make runs of it (role User)",
            )
        return answer

    def _once(self, method: str, path: str, body: Any, *, repeat: bool) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self._valid_token()}"}
        return self._try(method, f"/api/v2{path}", body, headers, repeat=repeat)

    def _valid_token(self) -> str:
        if self._token is None:
            self._token = self.access.token or self._new_token()
        return self._token

    def _new_token(self) -> str:
        who = {"username": self.access.login, "password": self.access.password}
        answer = self._try("POST", _LOGIN, who, {}, repeat=True)
        if answer.status_code in (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN):
            raise self._refused(answer, "Airflow's API does not take the connection's login and password")
        token = self._json(answer).get("access_token")
        if not isinstance(token, str) or not token.isascii() or not token.isprintable():
            raise self._unexpected(answer)
        mask_secret(token)
        return token

    def _try(self, method: str, path: str, body: Any, headers: dict[str, str], *, repeat: bool) -> httpx.Response:
        """Send a request; repeat it if that is safe: if no connection was made, or if it changes nothing."""
        waits = list(self._waits_s)
        while True:
            try:
                answer = self._http.request(method, path, json=body, headers=headers)
            except (httpx.ConnectError, httpx.ConnectTimeout) as error:
                failure: CairnError = self._unreachable(error)
            except httpx.HTTPError as error:
                failure = self._unreachable(error)
                if not repeat:
                    # `from None`: the chain would show the request with its headers to any code that prints traces.
                    raise failure from None
            else:
                if not repeat or answer.status_code not in _OVERLOADED:
                    return answer
                failure = self._unexpected(answer)
            if not waits:
                raise failure
            self._sleep(waits.pop(0))

    def _json(self, answer: httpx.Response) -> dict[str, Any]:
        if not answer.is_success:
            raise self._unexpected(answer)
        try:
            found = answer.json()
        except ValueError:
            raise self._unexpected(answer) from None
        if not isinstance(found, dict):
            raise self._unexpected(answer)
        return found

    def _unreachable(self, error: httpx.HTTPError) -> AirflowApiError:
        return AirflowApiError(
            f"Airflow's API cannot be reached ({type(error).__name__}: {error}); check the connection's address, and "
            "that this machine may reach it",
            airflow_api_conn_id=self.airflow_api_conn_id,
            url=self.access.base_url,
        )

    def _refused(self, answer: httpx.Response, why: str) -> AirflowApiRefusedError:
        return AirflowApiRefusedError(why, **self._facts(answer))

    def _unexpected(self, answer: httpx.Response) -> AirflowApiError:
        if answer.has_redirect_location:
            return AirflowApiError(
                "Airflow's API sends requests on to another address, and Cairn follows no redirect: the login would go "
                "there too. Set the connection's host to the address that the API server answers at",
                redirect=_without_login(answer),
                **self._facts(answer),
            )
        return AirflowApiError(
            "Airflow's API gave an unexpected answer; check that the connection's address is that of the API "
            "server, and look into the server's log",
            **self._facts(answer),
        )

    def _facts(self, answer: httpx.Response) -> dict[str, Any]:
        facts = {
            "airflow_api_conn_id": self.airflow_api_conn_id,
            "request": f"{answer.request.method} {answer.request.url}",
            "status": answer.status_code,
        }
        # The answer to a login may hold a token, or repeat the password that was sent.
        return facts if answer.request.url.path.endswith(_LOGIN) else facts | {"answer": detail_of(answer)}


def _refuses_token(answer: httpx.Response) -> bool:
    """Return whether the token is refused: Airflow answers 401 for an expired token, 403 for an unreadable one."""
    if answer.status_code == httpx.codes.FORBIDDEN:
        return "token" in detail_of(answer).lower()
    return answer.status_code == httpx.codes.UNAUTHORIZED


def _without_login(answer: httpx.Response) -> str:
    """Return the address of a redirect, without the parts that do not belong in a log."""
    where = urlsplit(answer.headers.get("Location", ""))
    return f"{where.scheme}://{where.hostname}:{where.port}{where.path}"[:200] if where.hostname else where.path[:200]


def detail_of(answer: httpx.Response) -> str:
    """Return the server's text about a failure, in one line."""
    try:
        said = answer.json()
    except ValueError:
        said = answer.text
    detail = said.get("detail", said) if isinstance(said, dict) else said
    return " ".join(str(detail).split())[:300]


def _path_of(dag_id: str, run_id: str, task: TaskRef | None = None) -> str:
    path = f"/dags/{_quoted(dag_id)}/dagRuns/{_quoted(run_id)}"
    if task is None:
        return path
    path += f"/taskInstances/{_quoted(task.task_id)}"
    return path if task.map_index < 0 else f"{path}/{task.map_index}"


def _quoted(part: str) -> str:
    return quote(part, safe="")
