"""Stands in for Airflow's API server where its answers must be chosen: a real HTTP server on loopback.

What a real one does with what is asked here is tested on a real one, in tests/real/airflow/test_clearing.py.
"""

from __future__ import annotations

import json
import ssl
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from urllib.parse import unquote

Answer = tuple[int, Any] | None
"""Status, and JSON or bytes; None: the connection is cut without an answer."""


@dataclass(frozen=True)
class Asked:
    """One request as it arrived."""

    method: str
    path: str
    token: str | None
    body: Any
    operation: str = ""
    """The operation of an API that has one address for all (AWS JSON)."""


@dataclass
class ApiStandIn:
    """Answers what the test wants.

    Args:
        answer: called for each request, in order of arrival.
        tls: serves https with it.
        location: of its redirects.
    """

    answer: Callable[[Asked], Answer]
    tls: ssl.SSLContext | None = None
    location: str = ""
    """Target of a redirect."""
    asked: list[Asked] = field(default_factory=list)

    def __enter__(self) -> ApiStandIn:
        stand_in = self

        class Handler(BaseHTTPRequestHandler):
            def _any(self) -> None:
                size = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(size)) if size else None
                bearer = self.headers.get("Authorization")
                operation = (self.headers.get("X-Amz-Target") or "").rpartition(".")[2]
                asked = Asked(self.command, self.path, bearer and bearer.removeprefix("Bearer "), body, operation)
                stand_in.asked.append(asked)
                answer = stand_in.answer(asked)
                if answer is None:
                    self.close_connection = True
                    return
                data = answer[1] if isinstance(answer[1], bytes) else json.dumps(answer[1]).encode()
                self.send_response(answer[0])
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                if stand_in.location:
                    self.send_header("Location", stand_in.location)
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _any  # noqa: N815 - what BaseHTTPRequestHandler calls them

            def log_message(self, *_: Any) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        if self.tls is not None:
            self._server.socket = self.tls.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def port(self) -> int:
        return self._server.server_port

    @property
    def url(self) -> str:
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}"


class Serving(ABC):
    """A stand-in that serves while its block is open."""

    def __enter__(self) -> Self:
        self._server = ApiStandIn(self._answer).__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.__exit__(None, None, None)

    @property
    def url(self) -> str:
        return self._server.url

    @property
    def asked(self) -> list[Asked]:
        """The requests so far."""
        return self._server.asked

    @abstractmethod
    def _answer(self, asked: Asked) -> Answer:
        """Answer a request."""


@dataclass
class OneRun:
    """Answers as Airflow does for one DAG run: a task instance gets another id with each clear."""

    ids: dict[str, str]
    """By task."""
    states: dict[str, str | None] = field(default_factory=dict)
    """By task; `success` where none is given."""
    cleared: list[dict[str, Any]] = field(default_factory=list)
    """The bodies of the clears, in order."""
    refuses: int | None = None
    """The status that it answers every request with."""
    notes: dict[str, str] = field(default_factory=dict)
    """By task; the run's own by `""`."""
    noted: list[str] = field(default_factory=list)
    """The paths of the requests that changed a note."""

    def __call__(self, asked: Asked) -> Answer:
        """Answer one request."""
        if self.refuses is not None:
            return self.refuses, {"detail": "no"}
        _, _, task = unquote(asked.path.partition("?")[0]).partition("/taskInstances/")
        if asked.method == "PATCH":
            self.noted.append(asked.path)
            self.notes[task] = asked.body["note"]
            return 200, {}
        if asked.method == "GET":
            if not task:
                return 200, {"state": "running", "note": self.notes.get("")}
            if task not in self.ids:
                return 404, {"detail": "not found"}
            return 200, {"id": self.ids[task], "state": self.states.get(task, "success"), "note": self.notes.get(task)}
        self.cleared.append(asked.body)
        for task in asked.body["task_ids"]:
            self.ids[task], self.states[task] = f"{self.ids[task]}+", None
        return 200, {"task_instances": []}

    @property
    def tasks(self) -> list[list[str]]:
        """Ids of the tasks in each clear."""
        return [body["task_ids"] for body in self.cleared]


def connect(connections: Callable[[str, str], None], api: ApiStandIn) -> None:
    """Define the connection to Airflow's own API as one that leads to a stand-in."""
    connections("cairn_airflow_api", json.dumps({"conn_type": "http", "host": api.url, "password": "ready-made-7431"}))


@contextmanager
def airflow_api(answer: Callable[[Asked], Answer], connections: Callable[[str, str], None]) -> Iterator[ApiStandIn]:
    """Serve answers as Airflow's own API, to which the connection leads."""
    with ApiStandIn(answer) as api:
        connect(connections, api)
        yield api
