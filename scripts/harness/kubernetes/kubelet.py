"""A stand-in for a node of Kubernetes, its kubelet and the scheduler: pods of a real API server are processes here.

The image is not looked at, but for those that are missing. A pod's first container runs what the entry point of Spark's
image would run. ConfigMaps and empty folders are mounted: their paths in words, environment and properties become those
of folders here; other volumes are empty folders. Each pod has an address of its own in 127.77.0.0/16. What a deleted
pod owns goes with it, as by the garbage collector.
"""

from __future__ import annotations

import datetime
import http.server
import re
import ssl
import threading
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from ..ports import LOOPBACK
from ..processes import RealProcess
from .server import CORE, NOT_NOW, STATUS_PATCH, KubernetesServer, pod_path

NODE = "here"
LOOK_S = 0.25
OWNED = (
    *(f"{CORE}/{kind}" for kind in ("configmaps", "services", "secrets", "pods")),
    "/apis/networking.k8s.io/v1/networkpolicies",
)


@dataclass
class Pod:
    """A pod that this node has taken."""

    uid: str
    namespace: str
    name: str
    spec: dict[str, Any]
    address: str
    folder: Path
    began: str
    process: RealProcess | None = None
    reported: dict[str, Any] = field(default_factory=dict)
    """The status that the API server has."""
    reason: str = ""
    """Why the node ended it: `Evicted`."""
    lost: bool = False
    """Whether the node that it runs on is not heard any more."""
    ending: threading.Thread | None = None

    @property
    def path(self) -> str:
        return pod_path(self.namespace, self.name)

    @property
    def image(self) -> str:
        return str(self.spec["containers"][0].get("image", ""))

    def lives(self) -> bool:
        return self.process is not None and self.process.returncode is None

    def kill(self) -> None:
        if self.process is not None:
            self.process.stop(grace=0)


class Kubelet:
    """Looks at the pods four times a second, and does what a node does; runs in a thread from `with` on.

    Each pod has `env` besides its own; `spark_home` and `python` are the image's.
    """

    def __init__(
        self, server: KubernetesServer, root: Path, *, env: Mapping[str, str], spark_home: Path, python: Path
    ) -> None:
        self._server = server
        self._root = root
        self._env = {**env, "SPARK_HOME": str(spark_home), "PYSPARK_PYTHON": str(python)}
        self._api = server.api()
        self._over = threading.Event()
        self._goes_on = threading.Event()
        self._goes_on.set()
        self._thread = threading.Thread(target=self._run, name="kubelet", daemon=True)
        self._logs = _log_server(self, server)
        self.pods: list[Pod] = []
        """All that ran here, ended ones too."""
        self.missing_images: list[str] = []
        """Images that cannot be pulled."""

    def __enter__(self) -> Self:
        self._register()
        threading.Thread(target=self._logs.serve_forever, daemon=True).start()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._logs.shutdown()
        self._logs.server_close()
        for pod in self.pods:
            if pod.ending is not None:
                pod.ending.join()
            pod.kill()
        self._api.close()

    def living(self) -> list[Pod]:
        """Give the pods whose processes run, those of a lost node too."""
        return [pod for pod in self.pods if pod.lives()]

    def evict(self, pod: Pod) -> None:
        """End a pod as a node does that is short of memory: the pod stays, as failed."""
        pod.reason = "Evicted"
        pod.kill()

    def lose(self, pod: Pod) -> None:
        """Cut a pod's node off for ever, until the collector of pods removes the pod; its processes run on."""
        pod.lost = True
        self._api.delete(pod.path, {"gracePeriodSeconds": 0, "preconditions": {"uid": pod.uid}})

    def pause(self) -> None:
        self._goes_on.clear()

    def go_on(self) -> None:
        self._goes_on.set()

    def log_of(self, namespace: str, name: str) -> Path | None:
        logs = [pod.folder / "log" for pod in self.pods if (pod.namespace, pod.name) == (namespace, name)]
        return logs[-1] if logs and logs[-1].exists() else None

    def _run(self) -> None:
        while not self._over.wait(LOOK_S):
            try:
                if self._goes_on.is_set():
                    self._look()
            except NOT_NOW:
                continue  # the API server is away: pods run on

    def _look(self) -> None:
        listed = {each["metadata"]["uid"]: each for each in self._api.get(f"{CORE}/pods")["items"]}
        known = {pod.uid: pod for pod in self.pods}
        for uid, found in listed.items():
            pod, deleted = known.get(uid), "deletionTimestamp" in found["metadata"]
            if pod is None and not deleted:
                pod = self._take(found)
            if pod is None:
                self._remove(found)
            elif deleted:
                self._end(pod, found)
            elif not pod.lost:
                self._go_on(pod)
        for pod in self.pods:
            if pod.uid not in listed and not pod.reported.get("collected"):
                if not pod.lost:
                    pod.kill()
                self._collect(pod.uid)
                pod.reported["collected"] = True

    def _take(self, found: dict[str, Any]) -> Pod:
        meta = found["metadata"]
        number = len(self.pods)
        pod = Pod(
            meta["uid"],
            meta["namespace"],
            meta["name"],
            found["spec"],
            f"127.77.{number // 250}.{number % 250 + 1}",
            self._root / meta["uid"],
            _now(),
        )
        target = {"metadata": {"name": pod.name}, "target": {"kind": "Node", "name": NODE}}
        self._api.create(f"{pod.path}/binding", target)
        self.pods.append(pod)
        return pod

    def _go_on(self, pod: Pod) -> None:
        if pod.process is None:
            if pod.image in self.missing_images:
                why = {"reason": "ImagePullBackOff", "message": f'Back-off pulling image "{pod.image}"'}
                self._report(pod, "Pending", {"waiting": why})
                return
            if not self._start(pod):
                self._report(pod, "Pending", {"waiting": {"reason": "ContainerCreating"}})
                return
        assert pod.process is not None
        code = pod.process.returncode
        if code is None:
            self._report(pod, "Running", {"running": {"startedAt": pod.began}})
            return
        code = 128 - code if code < 0 else code
        ended = {"exitCode": code, "reason": "Completed" if code == 0 else "Error", "startedAt": pod.began}
        self._report(pod, "Succeeded" if code == 0 else "Failed", {"terminated": {**ended, "finishedAt": _now()}})

    def _report(self, pod: Pod, phase: str, state: dict[str, Any]) -> None:
        if pod.reported.get("phase") == phase and pod.reported.get("why") == state.get("waiting"):
            return
        container = pod.spec["containers"][0]
        ready = phase == "Running"
        status: dict[str, Any] = {
            "phase": phase,
            "hostIP": LOOPBACK,
            "podIP": pod.address,
            "startTime": pod.began,
            "conditions": [{"type": kind, "status": str(ready)} for kind in ("Ready", "ContainersReady")],
            "containerStatuses": [
                {
                    "name": container["name"],
                    "image": pod.image,
                    "imageID": "",
                    "restartCount": 0,
                    "ready": ready,
                    "started": ready,
                    "state": state,
                }
            ],
        }
        if pod.reason:
            # A kubelet writes it so: an evicted pod has no word of its container.
            status |= {"phase": "Failed", "reason": pod.reason, "message": "The node was low on resource: memory."}
            del status["containerStatuses"]
        self._api.patch(f"{pod.path}/status", {"status": status}, STATUS_PATCH)
        pod.reported |= {"phase": phase, "why": state.get("waiting")}

    def _start(self, pod: Pod) -> bool:
        """Start a pod's process; False while what it mounts is not there yet."""
        container, moved = pod.spec["containers"][0], dict[str, str]()
        folders: dict[str, Path] = {}
        for volume in pod.spec.get("volumes", ()):
            folders[volume["name"]] = folder = pod.folder / volume["name"]
            folder.mkdir(parents=True, exist_ok=True)
            if "configMap" in volume:
                found = self._api.get(f"{CORE}/namespaces/{pod.namespace}/configmaps/{volume['configMap']['name']}")
                if found is None:
                    return False
                for name, text in found["data"].items():
                    (folder / name).write_text(text)
        for mount in container.get("volumeMounts", ()):
            moved[mount["mountPath"].rstrip("/")] = str(folders[mount["name"]])

        def here(text: str) -> str:
            for inside, outside in moved.items():
                text = re.sub(re.escape(inside) + r"(?=$|[/,:;'\"\s])", outside, text)
            return text

        for file in pod.folder.glob("*/*.properties"):
            # There are no names for services: the driver's is the pod's own address.
            service = re.compile(r"[a-z0-9-]+-driver-svc\.[a-z0-9-]+\.svc")
            file.write_text(here(service.sub(pod.address, file.read_text())))
        own = {entry["name"]: here(_value(pod, entry)) for entry in container.get("env", ())}
        words = [here(word) for word in (*container.get("command", ()), *container.get("args", ()))]
        if words[:1] == ["driver"]:
            bound = own.get("SPARK_DRIVER_BIND_ADDRESS", pod.address)
            submit = (f"{self._env['SPARK_HOME']}/bin/spark-submit", "--deploy-mode", "client")
            words = [*submit, "--conf", f"spark.driver.bindAddress={bound}", *words[1:]]
        work = pod.folder / "work"
        work.mkdir(exist_ok=True)
        env = {**self._env, **own, "SPARK_LOCAL_IP": pod.address, "HOSTNAME": pod.name}
        pod.process = RealProcess(pod.name, words, pod.folder / "log", env=env, cwd=work)
        return True

    def _end(self, pod: Pod, found: dict[str, Any]) -> None:
        if pod.ending is None and not pod.lost:
            grace = min(float(found["metadata"].get("deletionGracePeriodSeconds") or 0), 3.0)
            pod.ending = threading.Thread(target=_stop, args=(pod, grace), daemon=True)
            pod.ending.start()
        if pod.ending is not None and not pod.ending.is_alive():
            self._remove(found)

    def _remove(self, found: dict[str, Any]) -> None:
        meta = found["metadata"]
        path = pod_path(meta["namespace"], meta["name"])
        self._api.delete(path, {"gracePeriodSeconds": 0, "preconditions": {"uid": meta["uid"]}})

    def _collect(self, owner: str) -> None:
        for kind in OWNED:
            base, _, plural = kind.rpartition("/")
            for each in self._api.get(kind)["items"]:
                meta = each["metadata"]
                if any(reference["uid"] == owner for reference in meta.get("ownerReferences", ())):
                    self._api.delete(f"{base}/namespaces/{meta['namespace']}/{plural}/{meta['name']}")

    def _register(self) -> None:
        self._api.create(f"{CORE}/nodes", {"metadata": {"name": NODE}})
        status = {
            "addresses": [{"type": "InternalIP", "address": LOOPBACK}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": self._logs.server_address[1]}},
            "conditions": [{"type": "Ready", "status": "True"}],
        }
        self._api.patch(f"{CORE}/nodes/{NODE}/status", {"status": status}, STATUS_PATCH)


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _stop(pod: Pod, grace: float) -> None:
    if pod.process is not None:
        pod.process.stop(grace)


def _value(pod: Pod, entry: dict[str, Any]) -> str:
    if "value" in entry:
        return str(entry["value"])
    path = str(((entry.get("valueFrom") or {}).get("fieldRef") or {}).get("fieldPath"))
    return {"status.podIP": pod.address, "metadata.name": pod.name, "metadata.namespace": pod.namespace}.get(path, "")


def _log_server(kubelet: Kubelet, server: KubernetesServer) -> http.server.ThreadingHTTPServer:
    """Make what the API server asks for the log of a pod: `/containerLogs/NAMESPACE/POD/CONTAINER?tailLines=N`."""

    class Logs(http.server.BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            """Say nothing."""

        def do_GET(self) -> None:
            url = urllib.parse.urlsplit(self.path)
            _, namespace, name, *_rest = url.path.strip("/").split("/")
            log = kubelet.log_of(namespace, name)
            lines = log.read_bytes().splitlines(keepends=True) if log is not None else []
            last = int(urllib.parse.parse_qs(url.query).get("tailLines", ["0"])[0])
            body = b"".join(lines[-last:])
            self.send_response(200)
            self.send_header("Content-Type", "text/plain")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    made = http.server.ThreadingHTTPServer((LOOPBACK, 0), Logs)
    made.daemon_threads = True
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(server.certificate, server.key)
    made.socket = context.wrap_socket(made.socket, server_side=True, do_handshake_on_connect=False)
    return made
