"""A stand-in of a Spark Connect server, in this process: sessions and their conf are real, and it computes nothing.

An epoch that writes no DataFrame runs through it as through a real one (tests/real/spark/test_connect.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Event
from typing import Any

import grpc
import pyarrow as pa
from pyspark.sql.connect import proto

from scripts.harness.wait import wait_until


@dataclass
class ConnectStandIn(proto.SparkConnectServiceServicer):
    """Keeps what it was asked."""

    version: str = "4.3.0"
    token: str | None = None
    address: str = "127.0.0.1:0"
    """One address alone: `localhost` may be two, whose second another process has."""
    port: int = 0
    shown: list[str] = field(default_factory=list)
    """Tokens, in order."""
    asked: list[tuple[str, str, str]] = field(default_factory=list)
    """Method, user and session, in order."""
    peers: set[str] = field(default_factory=set)
    """The other ends of the connections by which it was asked."""
    conf: dict[tuple[str, str], dict[str, str]] = field(default_factory=dict)
    """By user and session, what was set; it stays when the session is closed."""
    closed: set[tuple[str, str]] = field(default_factory=set)
    open: set[tuple[str, str]] = field(default_factory=set)
    refuses_release: bool = False
    holds: dict[str, tuple[Event, Event]] = field(default_factory=dict)
    """By a key of conf: set when it is being set, and what the answer then waits for."""

    def AnalyzePlan(self, request: Any, context: Any) -> Any:
        session = self._admit("AnalyzePlan", request, context)
        self.open.add(session)
        answer = proto.AnalyzePlanResponse(session_id=request.session_id)
        answer.spark_version.version = self.version
        return answer

    def ReleaseSession(self, request: Any, context: Any) -> Any:
        session = self._admit("ReleaseSession", request, context, closed=False)
        if self.refuses_release:
            context.abort(grpc.StatusCode.UNAVAILABLE, "it is busy")
        if session in self.open:
            self.open.discard(session)
            self.closed.add(session)
        return proto.ReleaseSessionResponse(session_id=request.session_id)

    def Config(self, request: Any, context: Any) -> Any:
        session = self._admit("Config", request, context)
        self.open.add(session)
        conf = self.conf.setdefault(session, {})
        operation = request.operation
        answer = proto.ConfigResponse(session_id=request.session_id)
        for pair in operation.set.pairs:
            if pair.key.startswith("spark.executor."):
                context.abort(grpc.StatusCode.INTERNAL, f"[CANNOT_MODIFY_CONFIG] Cannot modify {pair.key}")
            conf[pair.key] = pair.value
            if pair.key in self.holds:
                came, go = self.holds[pair.key]
                came.set()
                go.wait()
        for key in operation.unset.keys:
            conf.pop(key, None)
        for pair in operation.get_with_default.pairs:
            answer.pairs.add(key=pair.key, value=conf.get(pair.key, pair.value))
        for key in operation.get.keys:
            answer.pairs.add(key=key, value=conf.get(key, ""))
        return answer

    def ExecutePlan(self, request: Any, context: Any) -> Iterator[Any]:
        """Say yes to whether a view exists; computes nothing else."""
        session = self._admit("ExecutePlan", request, context)
        self.open.add(session)
        if request.plan.root.catalog.WhichOneof("cat_type") != "table_exists":
            context.abort(grpc.StatusCode.UNIMPLEMENTED, "it computes nothing")
        sink = pa.BufferOutputStream()
        rows = pa.table({"value": [True]})
        with pa.ipc.new_stream(sink, rows.schema) as stream:
            stream.write_table(rows)
        told = {"session_id": request.session_id, "operation_id": request.operation_id}
        batch = proto.ExecutePlanResponse.ArrowBatch(row_count=1, data=sink.getvalue().to_pybytes())
        yield proto.ExecutePlanResponse(**told, response_id="1", arrow_batch=batch)
        done = proto.ExecutePlanResponse.ResultComplete()
        yield proto.ExecutePlanResponse(**told, response_id="2", result_complete=done)

    def ReleaseExecute(self, request: Any, _context: Any) -> Any:
        return proto.ReleaseExecuteResponse(session_id=request.session_id, operation_id=request.operation_id)

    def _admit(self, method: str, request: Any, context: Any, *, closed: bool = True) -> tuple[str, str]:
        given = dict(context.invocation_metadata()).get("authorization")
        self.shown.extend([given] if given else [])
        if self.token is not None and given != f"Bearer {self.token}":
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "Invalid authentication token")
        session = (request.user_context.user_id, request.session_id)
        self.asked.append((method, *session))
        self.peers.add(context.peer())
        if closed and session in self.closed:
            context.abort(grpc.StatusCode.INTERNAL, "[INVALID_HANDLE.SESSION_CLOSED] The handle is invalid.")
        return session


@contextmanager
def connect_server(**options: Any) -> Iterator[ConnectStandIn]:
    """Run one, on a free port of loopback unless its address says otherwise.

    Args:
        **options: fields of `ConnectStandIn`.
    """
    made = ConnectStandIn(**options)
    server = grpc.server(ThreadPoolExecutor(2))
    proto.add_SparkConnectServiceServicer_to_server(made, server)
    secure = made.token is not None
    credentials = grpc.local_server_credentials()

    def port() -> int | None:
        try:
            return (
                server.add_secure_port(made.address, credentials) if secure else server.add_insecure_port(made.address)
            )
        except RuntimeError:
            return None  # a connection of another process has that number just now

    made.port = wait_until(port, 60, f"the address {made.address} to be free")
    server.start()
    try:
        yield made
    finally:
        stopped = server.stop(None)
        for _, go in made.holds.values():
            go.set()
        stopped.wait()
