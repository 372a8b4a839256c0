"""Airflow's public REST API, as far as tests and the demo speak it."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx

from .wait import wait_until

FINISHED = frozenset({"success", "failed"})
"""The states in which a DAG run ends."""
DATABASE_TIMEOUT_S = 300
"""Seconds for which a request is sent again that Airflow's database kept from being written down."""


@dataclass(frozen=True)
class TaskState:
    """One task instance as the API shows it."""

    task_id: str
    map_index: int
    state: str | None
    try_number: int
    raw: dict[str, Any]
    """Everything the API said, rendered fields included."""


class AirflowApi:
    """A client that logs in by itself, and again when its token has run out."""

    def __init__(self, base_url: str, username: str, password: str) -> None:
        self.base_url = base_url
        self._login = {"username": username, "password": password}
        # trust_env off: a proxy that the environment names is not meant for loopback.
        self._http = httpx.Client(base_url=base_url, timeout=60, trust_env=False)

    def close(self) -> None:
        self._http.close()

    def request(self, method: str, path: str, **options: Any) -> Any:
        """Send one request below `/api/v2` and give its JSON, None for an empty answer."""
        answer = self._send(method, path, **options)
        deadline = time.monotonic() + DATABASE_TIMEOUT_S
        while _was_not_written_down(answer) and time.monotonic() <= deadline:
            # What writes down the request waits for the one writer that SQLite has, and keeps the API server from going
            # on, which may be that writer: it fails after five seconds (measured; with a timeout of 30 seconds, after
            # 30). It comes before the request itself, of which nothing has been done.
            answer = self._send(method, path, **options)
        _checked(answer)
        return answer.json() if answer.content else None

    def _send(self, method: str, path: str, **options: Any) -> httpx.Response:
        answer = self._http.request(method, f"/api/v2{path}", **options)
        if answer.status_code == httpx.codes.UNAUTHORIZED:
            login = self._http.post("/auth/token", json=self._login)
            _checked(login)
            self._http.headers["Authorization"] = f"Bearer {login.json()['access_token']}"
            answer = self._http.request(method, f"/api/v2{path}", **options)
        return answer

    def health(self) -> dict[str, str | None]:
        answer = self._http.get("/api/v2/monitor/health")
        _checked(answer)
        return {name: facts["status"] for name, facts in answer.json().items() if facts}

    def wake_tasks_api(self, timeout: float) -> None:
        """Have the API server make the routes that tasks ask, which it otherwise does when the first task starts.

        That takes seconds of a processor. While the other components start, no task waits for it.
        """
        _checked(self._http.get("/execution/health", timeout=timeout))

    def dag_ids(self, tag: str | None = None) -> list[str]:
        """Give the ids of the DAGs that have been parsed, or of those with a tag."""
        return [dag["dag_id"] for dag in self._dags({"tags": tag} if tag else {})]

    def _dags(self, params: dict[str, Any]) -> list[dict[str, Any]]:
        """Give all that have been parsed: the API gives at most a hundred at a time, whatever limit it is asked for."""
        found: list[dict[str, Any]] = []
        while True:
            page = self.request("GET", "/dags", params={**params, "limit": 100, "offset": len(found)})
            found += page["dags"]
            if not page["dags"] or len(found) >= page["total_entries"]:
                return found

    def wait_for_dag_files(self, names: Collection[str], timeout: float = 300) -> None:
        """Wait until each of some DAG files has been parsed and has a DAG."""

        def parsed() -> bool:
            return set(names) <= {Path(dag["fileloc"]).name for dag in self._dags({})}

        def details() -> str:
            return "\n".join(self.import_errors())

        wait_until(parsed, timeout, f"the DAG files {sorted(names)} to be parsed", interval=0.5, details=details)

    def import_errors(self) -> list[str]:
        errors = self.request("GET", "/importErrors", params={"limit": 1000})["import_errors"]
        return [f"{error['filename']}: {error['stack_trace']}" for error in errors]

    def wait_for_dag(self, dag_id: str, timeout: float = 300) -> None:
        wait_until(
            lambda: dag_id in self.dag_ids(),
            timeout,
            f"the DAG {dag_id} to be parsed",
            interval=0.5,
            details=lambda: "\n".join(self.import_errors()),
        )

    def unpause(self, dag_id: str) -> None:
        """Let a DAG's runs and schedule run."""
        self.request("PATCH", f"/dags/{_quoted(dag_id)}", json={"is_paused": False})

    def pause(self, dag_id: str) -> None:
        self.request("PATCH", f"/dags/{_quoted(dag_id)}", json={"is_paused": True})

    def trigger(
        self,
        dag_id: str,
        run_id: str,
        *,
        logical_date: datetime | None = None,
        until: datetime | None = None,
        conf: Mapping[str, Any] | None = None,
    ) -> None:
        """Make a DAG run; with the pause lifted it starts. `until` ends an interval that begins at the logical date."""
        begin = logical_date.isoformat() if logical_date else None
        body = {"dag_run_id": run_id, "logical_date": begin, "conf": dict(conf or {})}
        if until:
            body |= {"data_interval_start": begin, "data_interval_end": until.isoformat()}
        self.request("POST", f"/dags/{_quoted(dag_id)}/dagRuns", json=body)

    def run(self, dag_id: str, run_id: str) -> dict[str, Any]:
        answer: dict[str, Any] = self.request("GET", _run(dag_id, run_id))
        return answer

    def run_state(self, dag_id: str, run_id: str) -> str:
        return str(self.run(dag_id, run_id)["state"])

    def runs(self, dag_id: str) -> list[dict[str, Any]]:
        params = {"limit": 1000, "order_by": "run_after"}
        answer: list[dict[str, Any]] = self.request("GET", f"/dags/{_quoted(dag_id)}/dagRuns", params=params)[
            "dag_runs"
        ]
        return answer

    def task_instances(self, dag_id: str, run_id: str) -> list[TaskState]:
        answer = self.request("GET", f"{_run(dag_id, run_id)}/taskInstances", params={"limit": 1000})
        return [_task_state(raw) for raw in answer["task_instances"]]

    def task(self, dag_id: str, run_id: str, task_id: str, *, map_index: int = -1) -> TaskState:
        return _task_state(self.request("GET", _task(dag_id, run_id, task_id, map_index)))

    def tries(self, dag_id: str, run_id: str, task_id: str) -> list[TaskState]:
        answer = self.request("GET", f"{_task(dag_id, run_id, task_id)}/tries")
        return [_task_state(raw) for raw in answer["task_instances"]]

    def rendered_fields(self, dag_id: str, run_id: str, task_id: str) -> dict[str, Any]:
        """Give the rendered template fields of a task, as the page shows them."""
        fields: dict[str, Any] = self.task(dag_id, run_id, task_id).raw["rendered_fields"]
        return fields

    def log(self, dag_id: str, run_id: str, task_id: str, try_number: int = 1, *, map_index: int = -1) -> str:
        """Give the log of one try of a task, one line an event."""
        path = f"{_task(dag_id, run_id, task_id)}/logs/{try_number}"
        params = {"full_content": True, "map_index": map_index}
        answer = self.request("GET", path, params=params, headers={"Accept": "application/json"})
        lines = [event if isinstance(event, str) else _log_line(event) for event in answer["content"]]
        return "\n".join(lines)

    def xcoms(self, dag_id: str, run_id: str, task_id: str, *, map_index: int = -1) -> dict[str, Any]:
        path = f"{_task(dag_id, run_id, task_id)}/xcomEntries"
        keys = self.request("GET", path, params={"map_index": map_index})["xcom_entries"]
        return {each["key"]: self.xcom(dag_id, run_id, task_id, each["key"], map_index=map_index) for each in keys}

    def xcom(self, dag_id: str, run_id: str, task_id: str, key: str = "return_value", *, map_index: int = -1) -> Any:
        path = f"{_task(dag_id, run_id, task_id)}/xcomEntries/{_quoted(key)}"
        return self.request("GET", path, params={"stringify": False, "map_index": map_index})["value"]

    def push_xcom(self, dag_id: str, run_id: str, task_id: str, key: str, value: Any) -> None:
        """Add an XCom to a task of a run, as a person may."""
        path = f"{_task(dag_id, run_id, task_id)}/xcomEntries"
        self.request("POST", path, json={"key": key, "value": value, "map_index": -1})

    def clear(
        self, dag_id: str, run_id: str, task_ids: Sequence[str | tuple[str, int]], *, downstream: bool = False
    ) -> None:
        """Clear tasks of one run whatever their state, so that they run again, and all after them with `downstream`."""
        body = {
            "dry_run": False,
            "dag_run_id": run_id,
            "task_ids": list(task_ids),
            "only_failed": False,
            "reset_dag_runs": True,
            "include_downstream": downstream,
        }
        self.request("POST", f"/dags/{_quoted(dag_id)}/clearTaskInstances", json=body)

    def wait_for_run(
        self, dag_id: str, run_id: str, *, states: Collection[str] = FINISHED, timeout: float = 600
    ) -> str:
        def reached() -> str | None:
            state = self.run_state(dag_id, run_id)
            return state if state in states else None

        what = f"the run {run_id} of {dag_id} to be in {sorted(states)}"
        return wait_until(reached, timeout, what, interval=1.0, details=lambda: self.explain(dag_id, run_id))

    def wait_for_task(
        self, dag_id: str, run_id: str, task_id: str, *, states: Collection[str], timeout: float = 600
    ) -> TaskState:
        def reached() -> TaskState | None:
            task = self.task(dag_id, run_id, task_id)
            return task if task.state in states else None

        what = f"the task {task_id} of {dag_id} {run_id} to be in {sorted(states)}"
        return wait_until(reached, timeout, what, interval=0.5, details=lambda: self.explain(dag_id, run_id))

    def explain(self, dag_id: str, run_id: str, lines: int = 60) -> str:
        """Give the states of a run's tasks and the end of the logs of those that did not succeed."""
        parts = [f"run {run_id}: {self.run_state(dag_id, run_id)}"]
        tasks = self.task_instances(dag_id, run_id)
        parts += [f"  {task.task_id}[{task.map_index}] {task.state} try {task.try_number}" for task in tasks]
        for task in tasks:
            if task.state not in {None, "success", "upstream_failed"} and task.try_number:
                log = self.log(dag_id, run_id, task.task_id, task.try_number, map_index=task.map_index)
                parts += [f"--- log of {task.task_id}, try {task.try_number} ---", *log.splitlines()[-lines:]]
        return "\n".join(parts)


class AirflowApiError(AssertionError):
    """The API refused a request. The text holds method, path, status and answer."""

    def __init__(self, answer: httpx.Response) -> None:
        self.status = answer.status_code
        super().__init__(f"{answer.request.method} {answer.request.url}: {answer.status_code} {answer.text[:2000]}")


def _was_not_written_down(answer: httpx.Response) -> bool:
    return answer.status_code == httpx.codes.INTERNAL_SERVER_ERROR and "Database error" in answer.text


def _checked(answer: httpx.Response) -> None:
    if answer.status_code >= httpx.codes.BAD_REQUEST:
        raise AirflowApiError(answer)


def _quoted(part: str) -> str:
    return quote(part, safe="")


def _run(dag_id: str, run_id: str) -> str:
    return f"/dags/{_quoted(dag_id)}/dagRuns/{_quoted(run_id)}"


def _task(dag_id: str, run_id: str, task_id: str, map_index: int = -1) -> str:
    path = f"{_run(dag_id, run_id)}/taskInstances/{_quoted(task_id)}"
    return path if map_index < 0 else f"{path}/{map_index}"


def _task_state(raw: dict[str, Any]) -> TaskState:
    return TaskState(raw["task_id"], raw["map_index"], raw["state"], raw["try_number"], raw)


def _log_line(event: dict[str, Any]) -> str:
    facts = {name: value for name, value in event.items() if name not in {"timestamp", "event", "level", "logger"}}
    more = "".join(f" {name}={value}" for name, value in facts.items())
    return f"{event.get('timestamp', '')} {event.get('level', '')} {event.get('event', '')}{more}"
