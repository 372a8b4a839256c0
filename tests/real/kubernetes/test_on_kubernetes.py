"""Faults on Kubernetes: a real API server with RBAC, a real Airflow, real `spark-submit` and drivers.

Not real: the node, on which a pod is a process, and the controller of SparkApplications (scripts/harness/kubernetes).
The rights are those of the page (docs/how-to/run-on-a-cluster.md). Drivers need no executors here (`local[1]`).
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil
import pyspark
import pytest
import yaml  # type: ignore[import-untyped]

from scripts.harness.airflow_home import AirflowHome
from scripts.harness.kubernetes.kubelet import Kubelet, Pod
from scripts.harness.kubernetes.server import AIRFLOW, CORE, RBAC, KubernetesApi, KubernetesServer
from scripts.harness.kubernetes.spark_operator import SparkOperator, applications
from scripts.harness.spark.start import OPTION, fast_conf, small_conf
from scripts.harness.wait import wait_until
from scripts.setup.base import ROOT
from scripts.setup.beside import ensure_launchers
from scripts.setup.java import ensure_java
from scripts.setup.venv import VENV
from tests.real.airflow.conftest import Gates
from tests.real.airflow.store import JobStore

pytestmark = [pytest.mark.e2e, pytest.mark.kubernetes, pytest.mark.timeout(3600)]

HERE = Path(__file__).parent
NAMESPACE = "lake"
TASK = "epoch.count"
RUN, POINT = "e1", "written"
PAGE = ROOT / "docs" / "how-to" / "run-on-a-cluster.md"
APPLICATION = ROOT / "tests" / "real" / "airflow" / "dags" / "applications" / "counting.py"
BARE_PYTHON = Path(sys.executable).resolve()
"""Below the virtual environment: it has neither this project nor PySpark, which is in the image."""
PROGRAM = APPLICATION.with_name("plain_counting.py")
LOSES = """#!/bin/sh
for word in "$@"; do
    case "$word" in spark.test.fault=*) fault=${{word#*=}} ;; esac
done
case "$fault" in
    *-submission_lost)
        if mkdir "$CAIRN_TEST_GATES/$fault" 2>/dev/null; then
            "{real}" "$@" 2>&1 | while read -r line; do
                case "$line" in *"Deployed Spark application"*) kill -9 $$ ;; esac
                echo "$line"
            done
        fi
        ;;
    *-submission_cut)
        if mkdir "$CAIRN_TEST_GATES/$fault" 2>/dev/null; then
            "{real}" "$@"
            kill -9 $$
        fi
        ;;
esac
exec "{real}" "$@"
"""
"""A `spark-submit` that is killed the first time, once it has made all, before anybody hears of it."""
IMPATIENT = """
from airflow_cairn.hooks import kubernetes_pods

kubernetes_pods.STUCK_S = 10.0
"""
"""Local settings by which tasks wait for an image for ten seconds."""


def dag_of(way: str, fault: str) -> str:
    """Name the DAG of a case."""
    return f"{way}-{fault}"


@dataclass
class Lab:
    """All that a test needs."""

    server: KubernetesServer
    api: KubernetesApi
    kubelet: Kubelet
    airflow: AirflowHome
    gates: Gates
    storage: str
    way: str = ""
    fault: str = ""

    @property
    def dag(self) -> str:
        return dag_of(self.way, self.fault)

    @property
    def name(self) -> str:
        """Prefix of the names of the stage's resources."""
        return self.dag.replace("_", "-")

    @property
    def pods(self) -> list[Pod]:
        """All pods of this stage's drivers, in order."""
        return [pod for pod in self.kubelet.pods if pod.name.startswith(f"{self.name}-")]

    @property
    def living(self) -> list[Pod]:
        return [pod for pod in self.pods if pod.lives()]

    @property
    def job(self) -> JobStore:
        return JobStore(self.storage, self.dag)

    def hold(self, attempt: int = 1) -> None:
        """Have the driver of an attempt wait once it has written."""
        self.gates.hold(self.dag, RUN, attempt, POINT)

    def let_go(self, attempt: int = 1) -> None:
        self.gates.release(self.dag, RUN, attempt, POINT)

    def the_driver(self) -> Pod:
        """Wait until the driver has written; gives its pod."""
        self.gates.wait_until_reached(self.dag, RUN, 1, POINT)
        (pod,) = self.living
        return pod

    def rows(self) -> list[int]:
        """Read what the newest checkpoint has counted."""
        found = self.job.table("all") if self.way.endswith("program") else self.job.state("count", "seen")
        return sorted(row["id"] for row in found)

    def log(self) -> str:
        folder = self.airflow.home / "logs" / f"dag_id={self.dag}" / f"run_id={RUN}"
        return "".join(log.read_text() for log in sorted(folder.rglob("*.log")))

    def wait_for_log(self, text: str) -> None:
        wait_until(lambda: text in self.log(), 300, f"{text!r} in the log of {self.dag}", details=self.log)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    root = tmp_path_factory.mktemp("kubernetes")
    for name in ("storage", "gates", "uploads", "bin"):
        (root / name).mkdir()
    spark_submit = root / "bin" / "spark-submit"
    spark_submit.write_text(LOSES.format(real=VENV / "bin" / "spark-submit"))
    spark_submit.chmod(0o755)
    java = {"JAVA_HOME": str(ensure_java()), "PATH": os.environ["PATH"], "HOME": str(root)}
    submits = {**java, "PATH": f"{VENV / 'bin'}:{java['PATH']}", **fast_submit()}
    spark_home = Path(pyspark.__file__).parent
    with (
        KubernetesServer(root / "server") as server,
        server.api() as api,
        Kubelet(server, root / "pods", env=java, spark_home=spark_home, python=BARE_PYTHON) as kubelet,
        SparkOperator(server, root / "uploads", submits),
    ):
        api.make_namespace(NAMESPACE, "spark")
        give_rights(api)
        airflow = made_airflow(root, server)
        with airflow:
            for way, fault in CASES:
                airflow.api.wait_for_dag(dag_of(way, fault))
                airflow.api.unpause(dag_of(way, fault))
            yield Lab(server, api, kubelet, airflow, Gates(root / "gates"), f"file://{root / 'storage'}")


def fast_submit() -> dict[str, str]:
    """Give the environment of a `spark-submit` that starts from the archive of classes."""
    return {"SPARK_SUBMIT_OPTS": fast_conf()[OPTION], "SPARK_LOCAL_IP": "127.0.0.1"}


def give_rights(api: KubernetesApi) -> None:
    """Make the role that the page gives, and bind it to the user of Airflow's workers and to the drivers."""
    (text,) = (block.partition("```")[0] for block in PAGE.read_text().split("```yaml\n")[1:])
    for body in yaml.safe_load_all(text):
        kind = f"{body['kind'].lower()}s"
        assert body["metadata"]["namespace"] == NAMESPACE
        api.create(f"{RBAC}/namespaces/{NAMESPACE}/{kind}", body)


def made_airflow(root: Path, server: KubernetesServer) -> AirflowHome:
    conf = {
        **small_conf(),
        "spark.kubernetes.driver.master": "local[1]",
        "spark.driver.memory": "512m",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "1",
    }
    on_cluster = {"deploy-mode": "cluster", "namespace": NAMESPACE}
    env = {
        "PATH": f"{root / 'bin'}:{VENV / 'bin'}:{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(ensure_launchers())])),
        **fast_submit(),
        "KUBECONFIG": str(server.kubeconfig(AIRFLOW)),
        "AIRFLOW__KUBERNETES_EXECUTOR__IN_CLUSTER": "False",
        "CAIRN_TEST_STORAGE": f"file://{root / 'storage'}",
        "CAIRN_TEST_GATES": str(root / "gates"),
        "CAIRN_TEST_UPLOADS": str(root / "uploads"),
        "CAIRN_TEST_APPLICATION": str(APPLICATION),
        "CAIRN_TEST_PROGRAM": str(PROGRAM),
        "CAIRN_TEST_DAGS": ",".join(dag_of(way, fault) for way, fault in CASES),
        "CAIRN_TEST_SPARK_CONF": json.dumps(conf),
        "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps(
            {"conn_type": "spark", "host": f"k8s://{server.url}", "extra": on_cluster}
        ),
        "AIRFLOW_CONN_KUBERNETES_DEFAULT": json.dumps(
            {"conn_type": "kubernetes", "extra": {"kube_config_path": str(server.kubeconfig(AIRFLOW))}}
        ),
    }
    home = AirflowHome(root / "airflow", env=env, heartbeat_timeout=20, parallelism=8)
    with (home.home / "config" / "airflow_local_settings.py").open("a") as settings:
        settings.write(IMPATIENT)
    shutil.copytree(HERE / "dags", home.dags_folder, dirs_exist_ok=True)
    return home


def nothing(lab: Lab) -> None:
    lab.the_driver()
    lab.let_go()


def kill(lab: Lab) -> None:
    lab.the_driver().kill()


def evict(lab: Lab) -> None:
    lab.kubelet.evict(lab.the_driver())


def drain(lab: Lab) -> None:
    """As `kubectl drain` does."""
    pod = lab.the_driver()
    about = {"name": pod.name, "namespace": pod.namespace}
    lab.api.create(f"{pod.path}/eviction", {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": about})


def lose_node(lab: Lab) -> None:
    """The node goes on, and with it the driver, which acknowledges when all is over."""
    lab.hold(2)
    lab.kubelet.lose(lab.the_driver())
    lab.gates.wait_until_reached(lab.dag, RUN, 2, POINT)
    lab.let_go(2)
    lab.airflow.api.wait_for_run(lab.dag, RUN)
    lab.let_go()


def lack_image(lab: Lab) -> None:
    image = f"spark:{lab.name}"
    lab.kubelet.missing_images.append(image)
    try:
        lab.wait_for_log("ImagePullBackOff")
        wait_until(lambda: ended(lab, 1), 300, "the first attempt to end", details=lab.log)
    finally:
        lab.kubelet.missing_images.remove(image)


def take_api_away(lab: Lab) -> None:
    """The driver ends while nobody can see it."""
    pod = lab.the_driver()
    lab.server.leave()
    try:
        lab.wait_for_log("no answer about its state")
        lab.let_go()
        wait_until(lambda: not pod.lives(), 120, "the driver to end")
    finally:
        lab.server.come_back()


def kill_worker(lab: Lab) -> None:
    lab.the_driver()
    lab.wait_for_log("was submitted" if lab.way == "operator" else "is Running")
    kill_task(lab)
    wait_until(lambda: len(lab.airflow.api.tries(lab.dag, RUN, TASK)) == 2, 300, "the retry")
    lab.wait_for_log("which an earlier try submitted")
    lab.let_go()


def lose_submission(lab: Lab) -> None:
    """The client dies once its request was accepted, before it has said so."""
    if not lab.way.startswith("submit"):
        wait_until(lambda: accepted(lab), 300, "the application", interval=0.01)
        kill_task(lab)
    lab.wait_for_log("which an earlier try submitted")
    lab.the_driver()
    lab.let_go()


def accepted(lab: Lab) -> bool:
    return any(each["metadata"]["name"].startswith(f"{lab.name}-") for each in applications(lab.api))


def cut_submission(lab: Lab) -> None:
    """The client dies when it has made the pod, and not yet what the pod mounts."""
    lab.kubelet.pause()
    try:
        (pod,) = wait_until(lambda: listed(lab, f"{lab.name}-"), 300, "the pod", interval=0.01)
        mounted = next(each["configMap"]["name"] for each in pod["spec"]["volumes"] if "configMap" in each)
        path = f"{CORE}/namespaces/{NAMESPACE}/configmaps/{mounted}"
        wait_until(lambda: lab.api.get(path), 60, "the ConfigMap", interval=0.01)
        lab.api.delete(path)
        name = pod["metadata"]["name"]
        wait_until(lambda: not listed(lab, name), 300, "the pod to be deleted", details=lab.log)
    finally:
        lab.kubelet.go_on()


def listed(lab: Lab, begin: str) -> list[dict[str, Any]]:
    pods: list[dict[str, Any]] = lab.api.get(f"{CORE}/namespaces/{NAMESPACE}/pods")["items"]
    return [each for each in pods if each["metadata"]["name"].startswith(begin)]


def mark_failed(lab: Lab) -> None:
    lab.the_driver()
    path = f"/dags/{lab.dag}/dagRuns/{RUN}/taskInstances/{TASK}"
    lab.airflow.api.request("PATCH", path, json={"new_state": "failed"})
    wait_until(lambda: not lab.living, 120, "the driver to be ended", details=lab.log)


def clear(lab: Lab) -> None:
    """The driver has written, and waits; then the task is cleared."""
    pod = lab.the_driver()
    if lab.way.startswith("deferred"):
        lab.airflow.api.wait_for_task(lab.dag, RUN, TASK, states={"deferred"})
    lab.airflow.api.clear(lab.dag, RUN, [TASK])
    wait_until(lambda: not pod.lives(), 300, "the driver of the cleared task to be ended", details=lab.log)


def kill_triggerer(lab: Lab) -> None:
    lab.the_driver()
    lab.airflow.api.wait_for_task(lab.dag, RUN, TASK, states={"deferred"})
    lab.airflow.kill_component("triggerer")
    lab.let_go()
    lab.airflow.start_component("triggerer")


def ended(lab: Lab, checkpoint: int) -> bool:
    return lab.job.coordinator.head().ended_by_id(checkpoint) is not None


def kill_task(lab: Lab) -> None:
    """Kill the process of the task and the supervisor above it at once; neither can tell anybody."""
    task = psutil.Process(lab.airflow.api.task(lab.dag, RUN, TASK).raw["pid"])
    supervisor = task.parent()
    assert supervisor is not None
    for victim in (supervisor, task):
        victim.send_signal(signal.SIGKILL)


COMPLETED = [(1, 1, "COMPLETED")]
AGAIN = [(1, 1, "JOB_FAILOVER_REGION"), (2, 2, "COMPLETED")]
Fault = tuple[Callable[[Lab], None], list[tuple[int, int, str]], int]
FAULTS: dict[str, Fault] = {
    "none": (nothing, COMPLETED, 1),
    "killed": (kill, AGAIN, 2),
    "evicted": (evict, AGAIN, 2),
    "drained": (drain, AGAIN, 2),
    "node_lost": (lose_node, AGAIN, 2),
    "image_missing": (lack_image, AGAIN, 2),
    "worker_killed": (kill_worker, COMPLETED, 1),
    "submission_lost": (lose_submission, COMPLETED, 1),
    "submission_cut": (cut_submission, AGAIN, 1),
    "marked_failed": (mark_failed, [], 1),
    "cleared": (clear, AGAIN, 2),
    "triggerer_killed": (kill_triggerer, COMPLETED, 1),
    "api_away": (take_api_away, COMPLETED, 1),
}
"""Faults, each with its act, the ends of the checkpoints, and the number of pods that a node took."""
WAYS = {
    "submit": set(FAULTS) - {"triggerer_killed"},
    "operator": set(FAULTS) - {"triggerer_killed", "submission_cut"},
    "deferred": {"none", "killed", "node_lost", "marked_failed", "cleared", "triggerer_killed", "api_away"},
    "submit_program": {"none", "killed", "worker_killed", "submission_lost", "cleared"},
    "deferred_program": {"none", "node_lost", "evicted", "marked_failed"},
}
"""Ways to submit a stage, each with its faults. Programs have no `Epoch` block."""
CASES = [(way, fault) for fault in FAULTS for way, faults in WAYS.items() if fault in faults]
ALONE = "api_away"
"""Fault that strikes all cases: it comes last."""


@pytest.fixture(scope="module")
def struck(lab: Lab, request: pytest.FixtureRequest) -> Iterator[dict[tuple[str, str], Future[None]]]:
    """The selected cases, four at a time: they wait more than they work."""
    chosen = [item.callspec.params for item in request.session.items if isinstance(item, pytest.Function)]
    cases = [(str(each["way"]), str(each["fault"])) for each in chosen if each.get("fault") not in (None, ALONE)]
    with ThreadPoolExecutor(4) as pool:
        yield {(way, fault): pool.submit(check, replace(lab, way=way, fault=fault)) for way, fault in cases}


@pytest.mark.parametrize(("way", "fault"), CASES, ids=["-".join(case) for case in CASES])
def test_a_fault_of_the_driver(lab: Lab, struck: dict[tuple[str, str], Future[None]], way: str, fault: str) -> None:
    """semantics F2, F3, F5, A2: the rows count once, no driver is left, and no more were made than needed."""
    if fault == ALONE:
        wait(struck.values())
        check(replace(lab, way=way, fault=fault))
    else:
        struck[way, fault].result()


def check(lab: Lab) -> None:
    strike, outcomes, made = FAULTS[lab.fault]
    lab.hold()
    lab.airflow.api.trigger(lab.dag, RUN)
    strike(lab)
    lab.airflow.api.wait_for_run(lab.dag, RUN)
    wait_until(lambda: not lab.living and not still_running(lab), 120, "no driver to be left", details=lab.log)
    assert lab.airflow.api.run_state(lab.dag, RUN) == ("success" if outcomes else "failed"), lab.log()
    assert len(lab.pods) == made, lab.log()
    if outcomes:
        assert lab.job.outcomes() == outcomes
        assert lab.rows() == [*range(1000, 1100)]
        assert lab.way.endswith("program") or lab.job.value("count", "epochs") == 1
        assert lab.job.unreferenced() == []
    if lab.fault == "none":
        again(lab)


def again(lab: Lab) -> None:
    """A second epoch, on top of the first."""
    lab.airflow.api.trigger(lab.dag, "e2")
    lab.airflow.api.wait_for_run(lab.dag, "e2")
    assert lab.rows() == [*range(1000, 1100), *range(2000, 2100)]


def still_running(lab: Lab) -> list[str]:
    """Give the pods of which Kubernetes says that they have not ended."""
    found = (each for pod in lab.pods for each in listed(lab, pod.name))
    return [each["metadata"]["name"] for each in found if each["status"]["phase"] not in ("Succeeded", "Failed")]
