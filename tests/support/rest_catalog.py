"""A stand-in of a REST catalog with transactions: its routes answer from a catalog of pyiceberg on SQLite.

It commits a transaction table by table, under a lock, once all requirements hold. The real server of the Iceberg
project does the same.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from threading import Lock
from typing import Any

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
from pyiceberg.table import CommitTableRequest

from tests.support.loopback_server import LoopbackServer

_ENDPOINTS = (
    "GET /v1/{prefix}/namespaces",
    "GET /v1/{prefix}/namespaces/{namespace}",
    "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "POST /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "POST /v1/{prefix}/transactions/commit",
)


class RestCatalogServer(LoopbackServer):
    """The server.

    Args:
        catalog: what it answers from.
        transactions: whether it has them.
    """

    def __init__(self, catalog: SqlCatalog, *, transactions: bool = True) -> None:
        self.catalog = catalog
        self.endpoints: tuple[str, ...] = _ENDPOINTS if transactions else _ENDPOINTS[:-1]
        self.posted: list[str] = []
        """Paths of commits, in order."""
        self.before: Callable[[str], Any] = str
        """Called before a commit, with its path; what it raises is a connection that ends without an answer."""
        self.after: Callable[[str], Any] = str
        self._lock = Lock()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: Any) -> None:
                """Say nothing."""

            def do_GET(self) -> None:
                self._answer(*outer.get(self.path.partition("?")[0]))

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                try:
                    outer.before(self.path)
                    answer = outer.post(self.path, body)
                    outer.after(self.path)
                except ConnectionError:
                    self.close_connection = True
                    return
                self._answer(*answer)

            def _answer(self, status: int, body: Any) -> None:
                data = b"" if body is None else json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

        super().__init__(Handler)

    def get(self, path: str) -> tuple[int, Any]:
        parts = path.strip("/").split("/")[1:]
        if parts == ["config"]:
            return 200, {"defaults": {}, "overrides": {}, "endpoints": [*self.endpoints]}
        if len(parts) == 2:
            return 200, {"namespace": [parts[1]], "properties": {}}
        try:
            return 200, self._loaded(self.catalog.load_table((parts[1], parts[3])))
        except NoSuchTableError as error:
            return 404, {"error": {"message": str(error), "type": "NoSuchTableException", "code": 404}}

    def post(self, path: str, body: Any) -> tuple[int, Any]:
        self.posted.append(path)
        whole = path.endswith("/transactions/commit")
        requests = [CommitTableRequest.model_validate(each) for each in (body["table-changes"] if whole else [body])]
        with self._lock:
            tables = [
                self.catalog.load_table((*each.identifier.namespace.root, each.identifier.name)) for each in requests
            ]
            try:
                for table, each in zip(tables, requests, strict=True):
                    for requirement in each.requirements:
                        requirement.validate(table.metadata)
                for table, each in zip(tables, requests, strict=True):
                    self.catalog.commit_table(table, each.requirements, each.updates)
            except CommitFailedException as error:
                return 409, {"error": {"message": str(error), "type": "CommitFailedException", "code": 409}}
            return (204, None) if whole else (200, self._loaded(self.catalog.load_table(tables[0].name())))

    def _loaded(self, table: Any) -> Any:
        return {
            "metadata-location": table.metadata_location,
            "metadata": json.loads(table.metadata.model_dump_json()),
            "config": {},
        }
