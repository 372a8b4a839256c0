"""A stand-in for the controller of SparkApplications: submits each once, and writes its driver's pod into its status.

It knows the fields that the tests use, and no restart policy. It says what the real one says of a pod: SUBMITTED until
the pod runs, FAILED also for one that has vanished.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from ..processes import RealProcess
from .kubelet import LOOK_S
from .server import ADMIN, CORE, NOT_NOW, KubernetesApi, KubernetesServer, pod_path

GROUP, VERSION, PLURAL = "sparkoperator.k8s.io", "v1beta2", "sparkapplications"
DEFINITION = {
    "metadata": {
        "name": f"{PLURAL}.{GROUP}",
        "annotations": {"api-approved.kubernetes.io": "https://github.com/kubeflow/spark-operator/pull/1298"},
    },
    "spec": {
        "group": GROUP,
        "scope": "Namespaced",
        "names": {"kind": "SparkApplication", "plural": PLURAL, "singular": "sparkapplication"},
        "versions": [
            {
                "name": VERSION,
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}
LABEL = f"{GROUP}/app-name"
PHASES = {"Running": "RUNNING", "Succeeded": "COMPLETED", "Failed": "FAILED"}


@dataclass
class Submission:
    """One `spark-submit` of the controller."""

    process: RealProcess
    state: str = ""


class SparkOperator:
    """Looks at the SparkApplications four times a second; runs in a thread from `with` on."""

    def __init__(self, server: KubernetesServer, root: Path, env: Mapping[str, str]) -> None:
        self._server = server
        self._root = root
        self._env = {**env, "KUBECONFIG": str(server.kubeconfig(ADMIN))}
        self._api = server.api()
        self._submitted: dict[str, Submission] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="spark operator", daemon=True)

    def __enter__(self) -> Self:
        self._api.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", DEFINITION)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        for each in self._submitted.values():
            each.process.stop(grace=0)
        self._api.close()

    def _run(self) -> None:
        while not self._over.wait(LOOK_S):
            try:
                self._look()
            except NOT_NOW:
                continue  # the API server is away

    def _look(self) -> None:
        listed = applications(self._api)
        for each in listed:
            uid = each["metadata"]["uid"]
            if uid not in self._submitted:
                self._submitted[uid] = Submission(self._submit(each))
            self._tell(self._submitted[uid], each)
        known = {(each["metadata"]["namespace"], each["metadata"]["name"]) for each in listed}
        for pod in self._api.get(f"{CORE}/pods", labelSelector=LABEL)["items"]:
            meta = pod["metadata"]
            if (meta["namespace"], meta["labels"][LABEL]) not in known and "deletionTimestamp" not in meta:
                self._api.delete(pod_path(meta["namespace"], meta["name"]))

    def _submit(self, application: dict[str, Any]) -> RealProcess:
        meta, spec = application["metadata"], application["spec"]
        name, driver = meta["name"], spec["driver"]
        conf = {
            "spark.kubernetes.namespace": meta["namespace"],
            "spark.kubernetes.container.image": spec["image"],
            "spark.kubernetes.driver.pod.name": f"{name}-driver",
            "spark.kubernetes.submission.waitAppCompletion": "false",
            "spark.kubernetes.file.upload.path": f"file://{self._root}",
            f"spark.kubernetes.driver.label.{LABEL}": name,
            "spark.driver.memory": driver.get("memory", "512m"),
            **(
                {"spark.submit.pyFiles": ",".join(spec["deps"]["pyFiles"])}
                if spec.get("deps", {}).get("pyFiles")
                else {}
            ),
            **spec.get("sparkConf", {}),
        }
        words: list[str | Path] = ["spark-submit", "--master", f"k8s://{self._server.url}", "--deploy-mode", "cluster"]
        words += ["--name", name, *(word for item in conf.items() for word in ("--conf", "=".join(item)))]
        words += [spec["mainApplicationFile"], *spec.get("arguments", ())]
        return RealProcess(name, words, self._root / f"{name}.log", env=self._env)

    def _tell(self, submission: Submission, application: dict[str, Any]) -> None:
        """Write what has become of an application, if that is new."""
        meta, code = application["metadata"], submission.process.returncode
        if code is None or submission.state in ("COMPLETED", "FAILED"):
            return
        pod = f"{meta['name']}-driver"
        found = self._api.get(pod_path(meta["namespace"], pod)) if code == 0 else None
        state = PHASES.get(found["status"]["phase"], "SUBMITTED") if found is not None else "FAILED"
        if state == submission.state:
            return
        message = "" if state != "FAILED" else "driver pod not found" if found is None else "driver container failed"
        status = {"applicationState": {"state": state, "errorMessage": message}, "driverInfo": {"podName": pod}}
        path = f"/apis/{GROUP}/{VERSION}/namespaces/{meta['namespace']}/{PLURAL}/{meta['name']}/status"
        self._api.patch(path, {"status": status})
        submission.state = state


def applications(api: KubernetesApi) -> list[dict[str, Any]]:
    """Give all SparkApplications; none before Kubernetes knows the kind."""
    listed = api.get(f"/apis/{GROUP}/{VERSION}/{PLURAL}")
    found: list[dict[str, Any]] = listed["items"] if listed is not None else []
    return found
