"""The API client that tests speak with, against a server that answers as Airflow has."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from scripts.harness import airflow_api
from scripts.harness.airflow_api import AirflowApi, AirflowApiError

LOCKED = b'{"detail":{"reason":"Database error","statement":"hidden"}}'


@pytest.mark.parametrize(
    ("answers", "wait_s", "asks"),
    [([LOCKED], 300, 2), ([LOCKED] * 3, 300, 4), ([LOCKED] * 3, 0, 1), ([b"other"], 300, 1)],
)
def test_a_request_that_met_another_writer_is_sent_again(
    answers: list[bytes], wait_s: float, asks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(airflow_api, "DATABASE_TIMEOUT_S", wait_s)
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *args: object) -> None:
            pass

        def do_POST(self) -> None:
            asked.append(self.path)
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            status, body = (500, answers[len(asked) - 1]) if len(asked) <= len(answers) else (200, b"{}")
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        api = AirflowApi(f"http://127.0.0.1:{server.server_port}", "someone", "something")
        try:
            if asks > len(answers):
                api.trigger("one", "r1")
            else:
                with pytest.raises(AirflowApiError, match="500"):
                    api.trigger("one", "r1")
        finally:
            api.close()
            server.shutdown()
            thread.join()
    assert asked == ["/api/v2/dags/one/dagRuns"] * asks
