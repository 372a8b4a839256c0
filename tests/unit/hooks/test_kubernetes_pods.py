"""An API server that accepts and says nothing: each question ends once its own time is over."""

import json
import socket
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.apache.spark.hooks import spark_submit as provider

from airflow_cairn.hooks import kubernetes_pods

pytestmark = [pytest.mark.large, pytest.mark.usefixtures("launcher_providers")]

POD = "lake:routes-driver"
HOOK: Any = SimpleNamespace(
    _connection={"namespace": "lake"}, _kubernetes_driver_pod="routes-driver", _run_post_submit_commands=lambda: None
)


@pytest.fixture
def silent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:
        server.setblocking(False)
        cluster = {"server": f"http://127.0.0.1:{server.getsockname()[1]}"}
        config = {
            "current-context": "it",
            "clusters": [{"name": "it", "cluster": cluster}],
            "users": [{"name": "it", "user": {}}],
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
        }
        (tmp_path / "config").write_text(json.dumps(config))
        settings = {"in_cluster": "False", "enable_tcp_keepalive": "True", "config_file": str(tmp_path / "config")}
        more = {
            "verify_ssl": "True",
            "ssl_ca_cert": "",
            "tcp_keep_idle": "9",
            "tcp_keep_intvl": "9",
            "tcp_keep_cnt": "9",
        }
        for name, value in {**settings, **more}.items():
            monkeypatch.setenv(f"AIRFLOW__KUBERNETES_EXECUTOR__{name.upper()}", value)
        # Another test's, which a client of the provider's has left as the process's default.
        monkeypatch.setattr(import_module("kubernetes.client").Configuration, "_default", None)
        real = import_module("airflow.providers.cncf.kubernetes.kube_client")
        monkeypatch.setattr(provider, "kube_client", real, raising=False)
        monkeypatch.setattr(kubernetes_pods, "ANSWER_S", 0.1)
        monkeypatch.setattr(kubernetes_pods, "UNANSWERED_S", 0.15)
        monkeypatch.setattr(kubernetes_pods, "system_sleep", lambda _seconds: None)
        yield server


def asked(server: socket.socket) -> int:
    """Number of connections since the last look."""
    count = 0
    while True:
        try:
            server.accept()[0].close()
        except BlockingIOError:
            return count
        count += 1


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("question", "times"),
    [
        pytest.param(lambda: kubernetes_pods.labelled(HOOK, ["x"]), 1, id="labelled"),
        pytest.param(lambda: kubernetes_pods.phase_of(POD), 1, id="phase_of"),
        pytest.param(lambda: kubernetes_pods.end(POD), 1, id="end"),
        pytest.param(lambda: kubernetes_pods.end_unless_it_starts(POD, noted=False), 1, id="end_unless_it_starts"),
        pytest.param(lambda: kubernetes_pods.follow(HOOK), 2, id="follow"),
    ],
)
def test_a_question_ends(silent: socket.socket, question: Callable[[], object], times: int) -> None:
    with pytest.raises(Exception, match="timed out"):
        question()
    assert asked(silent) == times


def test_short_silences_do_not_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def pod(phase: str) -> Any:
        return SimpleNamespace(
            metadata=SimpleNamespace(uid="u1"),
            spec=SimpleNamespace(containers=[SimpleNamespace(name="spark-kubernetes-driver")]),
            status=SimpleNamespace(phase=phase, container_statuses=(), init_container_statuses=()),
        )

    answers = [OSError("away"), pod("Running"), OSError("away"), pod("Succeeded")]
    now_s = [0.0]

    def read(*_: object, **__: object) -> Any:
        answer = answers.pop(0)
        if isinstance(answer, OSError):
            raise answer
        return answer

    def sleep(_seconds: float) -> None:
        now_s[0] += kubernetes_pods.UNANSWERED_S * 0.6

    api = SimpleNamespace(
        read_namespaced_pod=read,
        read_namespaced_pod_log=lambda *_, **__: SimpleNamespace(data=b""),
        delete_namespaced_pod=lambda *_, **__: None,
    )
    monkeypatch.setattr(kubernetes_pods, "_client", lambda: api)
    monkeypatch.setattr(kubernetes_pods, "system_sleep", sleep)
    monkeypatch.setattr(kubernetes_pods, "system_time", lambda: now_s[0])
    assert kubernetes_pods.follow(HOOK) == "Succeeded"
