"""Stands in for a cluster in cluster mode: where drivers are submitted, asked after and ended, in three dialects.

The endpoints are real HTTP on loopback, as a standalone master and YARN's ResourceManager have them; `spark-submit` is
a real process that talks to them. Kubernetes is reached through the provider's client, which is replaced as a whole.
"""

from __future__ import annotations

import json
import sys
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.support.api_stand_in import Answer, Asked, Serving

NAMESPACE = "lake"
"""On Kubernetes; the provider itself understands no other than `spark`."""
TOKEN = "spark.kubernetes.driver.label.airflow-cairn-token"

WORDS = {
    "standalone": {
        "RUNNING": "RUNNING",
        "DONE": "FINISHED",
        **{each: each for each in ("FAILED", "KILLED", "UNKNOWN")},
    },
    "yarn": {"RUNNING": "RUNNING", "DONE": "FINISHED", "FAILED": "FAILED", "KILLED": "KILLED"},
    "kubernetes": {
        "RUNNING": "Running",
        "DONE": "Succeeded",
        "FAILED": "Failed",
        "KILLED": "Failed",
        "UNKNOWN": "Unknown",
    },
}


class ApiException(Exception):  # noqa: N818 - the name is the Kubernetes client's
    """Error of the Kubernetes client."""

    def __init__(self, status: int) -> None:
        super().__init__(f"({status})")
        self.status = status


@dataclass
class ClusterStandIn(Serving):
    """Keeps drivers.

    Args:
        mode: `standalone`, `yarn` or `kubernetes`.
        act: called for a driver each time somebody looks at it, before the answer: driver, its conf, how often before.
    """

    mode: str
    act: Callable[[str, dict[str, str], int], str] = lambda driver, conf, looks: "RUNNING"
    events: list[str] = field(default_factory=list)
    """Submissions and kills, in order."""
    states: dict[str, str] = field(default_factory=dict)
    down: bool = False
    waits: str | None = None
    """Why the container of a pod on Kubernetes does not run: empty without a reason; None: it runs."""
    cut: bool = False
    """Whether a submission died before it had made the ConfigMap of its pod."""
    changes: int = 0
    """Number of changes of a pod between the look at it and its deletion."""
    refuses_delete: bool = False
    searched: list[str] = field(default_factory=list)
    """The namespaces in which pods were searched."""
    sidecar: str | None = None
    """The container of two that lacks its image: `main`, `sidecar` or `init`; None: a pod has one container."""
    outlives: bool = False
    """Whether a sidecar goes on when the driver has ended."""
    confs: dict[str, dict[str, str]] = field(default_factory=dict)
    looks: dict[str, int] = field(default_factory=dict)

    @property
    def submitted(self) -> int:
        """Number of submissions."""
        return sum(event.startswith("submit") for event in self.events)

    def connection(self) -> str:
        """Give the Spark connection to it, as JSON."""
        port = self.url.rsplit(":", 1)[1]
        host, extra = {
            "standalone": ("spark://127.0.0.1:1,127.0.0.1:2", {"rest-port": port}),
            "yarn": ("yarn", {"yarn_resourcemanager_webapp_address": self.url}),
            "kubernetes": ("k8s://https://127.0.0.1:1", {"namespace": NAMESPACE}),
        }[self.mode]
        return json.dumps({"conn_type": "spark", "host": host, "extra": {"deploy-mode": "cluster", **extra}})

    def options(self) -> dict[str, Any]:
        """Give the operator's options with which the provider follows a driver in this mode."""
        more: dict[str, Any] = {
            "yarn": {"yarn_track_via_rm_api": True},
            "kubernetes": {"track_driver_via_k8s_api": True},
        }
        return {"status_poll_interval": 0, **more.get(self.mode, {})}

    def kube_client(self) -> Any:
        """Give what the provider imports as `kube_client`."""
        client = SimpleNamespace(
            api_client=SimpleNamespace(
                rest_client=SimpleNamespace(pool_manager=SimpleNamespace(connection_pool_kw={}))
            ),
            read_namespaced_pod=self._pod,
            delete_namespaced_pod=self._delete_pod,
            list_namespaced_pod=self._pods,
            read_namespaced_pod_log=self._log,
            read_namespaced_config_map=self._config_map,
        )
        return SimpleNamespace(ApiException=ApiException, get_kube_client=lambda: client)

    def _pod(self, name: str, namespace: str, **_: object) -> Any:
        state = self._look(name)
        if self.down or state is None or namespace != NAMESPACE:
            raise ApiException(500 if self.down else 404)
        phase = "Pending" if self.waits is not None and state == "Running" else "Running" if self.outlives else state

        def container(name: str) -> Any:
            lacks = self.waits is not None and self.sidecar in (None, name)
            held = self.waits is not None and (self.sidecar, name) == ("init", "main")
            over = SimpleNamespace(exit_code=int(state == "Failed"), reason=state) if state != "Running" else None
            waiting = SimpleNamespace(reason=self.waits or "ContainerCreating", message="no such image")
            return SimpleNamespace(
                name="spark-kubernetes-driver" if name == "main" else name,
                state=SimpleNamespace(
                    waiting=waiting if lacks else None,
                    running=None if lacks or held or over else SimpleNamespace(),
                    terminated=over if name == "main" else None,
                ),
            )

        maps = (f"{name}-conf-map", "overrides")
        return SimpleNamespace(
            metadata=SimpleNamespace(name=name, uid=f"{self.url}/{name}", resource_version="1"),
            spec=SimpleNamespace(
                volumes=[SimpleNamespace(config_map=SimpleNamespace(name=each)) for each in maps]
                + [SimpleNamespace(config_map=None)],
                containers=[container(each) for each in (("sidecar", "main") if self.sidecar else ("main",))],
            ),
            status=SimpleNamespace(
                phase=phase,
                reason=None,
                container_statuses=[container(each) for each in ("main", *(["sidecar"] if self.sidecar else []))],
                init_container_statuses=[container("init")] if self.sidecar else None,
            ),
        )

    def _pods(self, namespace: str, *, label_selector: str, **_: object) -> Any:
        if self.down:
            raise ApiException(500)
        self.searched.append(namespace)
        wanted = label_selector.partition("(")[2].partition(")")[0].split(",")
        items = [
            SimpleNamespace(metadata=SimpleNamespace(name=driver, labels={TOKEN.rpartition(".")[2]: conf[TOKEN]}))
            for driver, conf in self.confs.items()
            if conf.get(TOKEN) in wanted and driver in self.states and namespace == NAMESPACE
        ]
        return SimpleNamespace(items=items)

    def _config_map(self, name: str, _namespace: str, **_: object) -> Any:
        if self.cut or not name.endswith("-conf-map"):
            raise ApiException(404)
        return SimpleNamespace()

    def _log(self, _name: str, _namespace: str, *, container: str, **_: object) -> Any:
        if container != "spark-kubernetes-driver":
            raise ApiException(400)
        return SimpleNamespace(data=b"Traceback (most recent call last):\nValueError: the day is broken")

    def _delete_pod(self, name: str, namespace: str, *, body: dict[str, Any], **_: object) -> None:
        assert namespace == NAMESPACE
        if self.down or self.refuses_delete:
            raise ConnectionError("refused")
        if body["preconditions"] and self.changes:
            self.changes -= 1
            raise ApiException(409)
        # A pod that has succeeded is tidied up.
        self.outlives = False
        if self.states[name] == "RUNNING":
            self._kill(name)

    def _look(self, driver: str) -> str | None:
        if self.down or driver not in self.states:
            return None
        if self.states[driver] == "RUNNING":
            self.looks[driver] = self.looks.get(driver, 0) + 1
            self.states[driver] = self.act(driver, self.confs[driver], self.looks[driver] - 1)
        return WORDS[self.mode][self.states[driver]]

    def _kill(self, driver: str) -> None:
        self.events.append(f"kill {driver}")
        self.states[driver] = "KILLED"

    def _answer(self, asked: Asked) -> Answer:
        parts = asked.path.strip("/").split("/")
        if parts == ["submit"]:
            number = len(self.states) + 1
            driver = {
                "standalone": f"driver-20010101000000-{number:04d}",
                "yarn": f"application_1_{number:04d}",
                "kubernetes": f"routes-{number}-driver",
            }[self.mode]
            self.states[driver], self.confs[driver] = "RUNNING", asked.body
            self.events.append(f"submit {driver}")
            return 200, {"driver": driver}
        if self.down:
            return 500, {}
        driver = parts[4] if "apps" in parts else parts[-1]
        if "kill" in parts or asked.method == "PUT":
            self._kill(driver)
            return 200, {"success": True}
        state = self._look(driver)
        if self.mode == "yarn":
            final = {"FINISHED": "SUCCEEDED", "RUNNING": "UNDEFINED"}.get(state or "", state)
            return (404, {}) if state is None else (200, {"app": {"state": state, "finalStatus": final}})
        return 200, {"success": False} if state is None else {"success": True, "driverState": state}


LINES = {
    "standalone": "INFO ClientEndpoint: Driver successfully submitted as {}",
    "yarn": "INFO YarnClientImpl: Submitted application {}",
    # Spark prints no line "pod name: …" where it does not wait for the application's end.
    "kubernetes": "INFO LoggingPodStatusWatcherImpl: Deployed Spark application routes with application ID spark-1a "
    f"and submission ID {NAMESPACE}:{{}} into Kubernetes",
}


def spark_submit(mode: str, url: str) -> int:
    """Do what `spark-submit` does in cluster mode; gives the exit status.

    Args:
        mode: the stand-in's.
        url: where it listens.
    """
    words = sys.argv[1:]

    def ask(path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        with urllib.request.urlopen(urllib.request.Request(url + path, data)) as answer:
            return json.load(answer)

    if "--status" in words:
        found = ask(f"/v1/submissions/status/{words[-1]}")
        print('  "submissionId" : "x",', f'  "driverState" : "{found.get("driverState")}",', sep="\n")
    elif "--kill" in words:
        ask(f"/v1/submissions/kill/{words[-1]}", {})
    else:
        pairs = [words[at + 1] for at, word in enumerate(words) if word == "--conf"]
        conf = dict(pair.split("=", 1) for pair in pairs)
        if "spark.test.fails" in conf:
            print("Exception in thread main java.lang.IllegalStateException: no such master")
            return 1
        line = LINES[mode].format(ask("/submit", {**conf, "words": json.dumps(words)})["driver"])
        print("" if "spark.test.quiet" in conf else line)
    return 0


def install_spark_submit(folder: Path, mode: str, url: str) -> None:
    """Put a `spark-submit` into a folder that belongs on the PATH."""
    folder.mkdir()
    binary = folder / "spark-submit"
    root = Path(__file__).parents[2]
    binary.write_text(
        f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {str(root)!r})\n"
        f"from {__name__} import spark_submit\nsys.exit(spark_submit({mode!r}, {url!r}))\n"
    )
    binary.chmod(0o755)
