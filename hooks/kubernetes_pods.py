"""A driver's pod on Kubernetes: found, followed to its end, and its log, where the Spark provider falls short.

The one place for what the provider (6.3) does not do, as docs/how-to/run-on-a-cluster.md lists it: it sees the name of
a pod only in the namespace `spark`, gives up when the API server is away, takes a pod that has vanished for a good end,
waits for ever for an image, deletes the pod with its log, and waits for an answer without a limit.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.hooks import spark_submit as provider

from ..spark.execution.failure_kinds import error_line
from ..storage.clock import system_sleep, system_time
from .driver_output import driver_output

if TYPE_CHECKING:
    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook

log = logging.getLogger("airflow_cairn")

TOKEN_LABEL = "airflow-cairn-token"
"""On Kubernetes, the label of a driver's pod, or of a SparkApplication, that holds the token of its execution."""

NOT_FOUND = "NotFound"
"""The state of a driver that the cluster does not know: the provider's word on Kubernetes, Cairn's on all clusters."""

ANSWER_S = 30.0
"""Seconds within which the API server must answer."""
UNANSWERED_S = 180.0
"""Seconds without the API server before a try gives up watching."""
FIRST_LOOK_S, LONGEST_LOOK_S = 1.0, 10.0
STUCK_S = 600.0
"""Seconds that a container may be seen to wait for things that Kubernetes does not bring by itself."""
_waits: dict[str, float] = {}
"""When this process first saw such a wait, by the pod's uid: Kubernetes tells no such time."""
DRIVER = "spark-kubernetes-driver"
"""Spark's name for the driver's container."""
OF_SPARK = ("-conf-map", "-hadoop-config", "-krb5-file")
"""The ends of the names of the ConfigMaps that `spark-submit` makes."""
LINES = 100
"""Lines of a driver's log that a task's log repeats."""
NO_START = frozenset(
    {
        *("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError"),
        *("CreateContainerConfigError", "CreateContainerError", "RunContainerError"),
    }
)
"""Why a container waits that does not start unless somebody puts something right."""
_GONE, _CHANGED = 404, 409


def labelled(hook: SparkSubmitHook, tokens: Iterable[str]) -> dict[str, str]:
    """Find the pods of drivers by their executions' tokens, ended ones too, with ids as the provider's operator has."""
    namespace = str(hook._connection["namespace"])
    selector = f"{TOKEN_LABEL} in ({','.join(tokens)}),spark-role=driver"
    found = _client().list_namespaced_pod(namespace, label_selector=selector, _request_timeout=ANSWER_S)
    return {str(pod.metadata.labels[TOKEN_LABEL]): f"{namespace}:{pod.metadata.name}" for pod in found.items}


def phase_of(driver: str) -> str:
    """Return the phase of a driver's pod, whatever a sidecar does; `NotFound` if it is not there."""
    namespace, _, name = driver.partition(":")
    pod = _unless_gone(_client().read_namespaced_pod, name, namespace)
    return NOT_FOUND if pod is None else _phase(pod)


def end(driver: str, seen: Any = None) -> bool:
    """Delete a driver's pod, if there is one; False, and it is left alone, if it has changed since it was `seen`."""
    namespace, _, name = driver.partition(":")
    same = {"uid": seen.metadata.uid, "resourceVersion": seen.metadata.resource_version} if seen else {}
    try:
        _client().delete_namespaced_pod(name, namespace, body={"preconditions": same}, _request_timeout=ANSWER_S)
    except Exception as error:
        status = getattr(error, "status", None)
        if status == _CHANGED and seen:
            return False
        if status != _GONE:
            raise
    return True


def end_unless_it_starts(driver: str, *, noted: bool) -> str:
    """End a driver whose pod waits for what will not come; returns why, empty for one that may start or has started.

    `noted` tells whether the end of its submission was seen. `spark-submit` makes the pod before the ConfigMap that the
    pod mounts: if it died between the two, the pod waits for ever.
    """
    namespace, _, name = driver.partition(":")
    client = _client()
    pod = _unless_gone(client.read_namespaced_pod, name, namespace)
    if pod is None:
        return ""  # the next look finds that it is gone
    why = waits_in_vain(pod)
    if not why and not noted and pod.status.phase == "Pending":
        mounted = [each.config_map.name for each in pod.spec.volumes or () if each.config_map]
        asked = (each for each in mounted if each.endswith(OF_SPARK))
        missing = [each for each in asked if _unless_gone(client.read_namespaced_config_map, each, namespace) is None]
        why = f"its submission died before it had made the ConfigMap {missing[0]}" if missing else ""
    if not why or not end(driver, pod):
        return ""
    log.warning("Driver pod %s is deleted, because it cannot start: %s", name, why)
    return why


def waits_in_vain(pod: Any) -> str:
    """Return why a driver does not start, if this process has seen that for too long; empty otherwise."""
    why, uid = _why_it_waits(pod), str(pod.metadata.uid)
    if not why:
        _waits.pop(uid, None)
        return ""
    return why if system_time() - _waits.setdefault(uid, system_time()) >= STUCK_S else ""


def last_lines(client: Any, name: str, namespace: str, pod: Any) -> list[str]:
    """Return the end of a driver's log; the pod, None without the right to look, says which container is the driver."""
    found = client.read_namespaced_pod_log(
        name,
        namespace,
        container=None if pod is None else _drivers_container(pod),
        tail_lines=LINES,
        _preload_content=False,  # else the client 36 gives the text of a Python literal, b'…'
        _request_timeout=ANSWER_S,
    )
    lines: list[str] = found.data.decode(errors="replace").splitlines()
    return lines


def _drivers_container(pod: Any) -> str:
    """Return the name of the container that is the driver, as Spark chooses it."""
    names = [str(each.name) for each in pod.spec.containers]
    return DRIVER if DRIVER in names else names[0]


def follow(hook: SparkSubmitHook) -> str | None:
    """Wait for the end of a driver, pass on the end of its log, and delete its pod if it has ended well.

    A sidecar that goes on after the driver is ended with the pod.

    Returns:
        `Succeeded`; None if the pod is gone, so that its end is not known.

    Raises:
        RuntimeError: the pod has failed, or waits for what will not come and was deleted.
        Exception: the client's, once the API server has not answered for three minutes.
    """
    try:
        return _followed(hook)
    finally:
        hook._run_post_submit_commands()


def _followed(hook: SparkSubmitHook) -> str | None:
    name, namespace = str(hook._kubernetes_driver_pod), str(hook._connection["namespace"])
    driver, client = f"{namespace}:{name}", _client()
    pause, unanswered_since, said = FIRST_LOOK_S, None, ""
    while True:
        asked = system_time()
        try:
            pod = _unless_gone(client.read_namespaced_pod, name, namespace)
            if pod is None:
                log.info("Driver pod %s is not there any more", name)
                return None
            phase = _phase(pod)
            if phase == "Unknown":
                raise RuntimeError(f"the node of pod {name} does not say what became of it")
            unanswered_since = None
        except Exception as error:
            unanswered_since = asked if unanswered_since is None else unanswered_since
            if system_time() - unanswered_since >= UNANSWERED_S:
                raise
            log.warning("Driver pod %s: no answer about its state: %s", name, error_line(error))
        else:
            why = _why_it_waits(pod) if phase == "Pending" else ""
            if (says := f"{phase} {why}".strip()) != said:
                said = says
                log.info("Driver pod %s is %s", name, says)
            if phase in ("Succeeded", "Failed"):
                break
            if phase == "Pending" and (stuck := waits_in_vain(pod)) and _tidied(driver, pod):
                raise RuntimeError(f"driver pod {name} did not start: {stuck}")
        system_sleep(pause)
        pause = min(pause * 1.5, LONGEST_LOOK_S)
    cause = _pass_on_log(client, pod, name, namespace)
    if phase == "Succeeded" or pod.status.phase == "Running":  # a sidecar would run for ever
        _tidied(driver)
    if phase == "Failed":
        raise RuntimeError(f"driver pod {name} failed ({_how_it_ended(pod)}){f': {cause}' if cause else ''}")
    return phase


def _tidied(driver: str, seen: Any = None) -> bool:
    """Delete a pod as `end` does, where an error changes nothing: it is only logged."""
    try:
        return end(driver, seen)
    except Exception as error:  # noqa: BLE001 - what is known of the driver stays true
        log.warning("Driver pod %s could not be deleted: %s", driver.partition(":")[2], error_line(error))
        return True


def _pass_on_log(client: Any, pod: Any, name: str, namespace: str) -> str:
    """Write the end of a driver's log into the task's; returns the line that says why it failed."""
    try:
        lines = last_lines(client, name, namespace, pod)
    except Exception as error:  # noqa: BLE001 - the driver has ended, and its log is only for people
        log.warning("The log of driver pod %s could not be read: %s", name, error_line(error))
        lines = []
    with driver_output() as output:
        for line in lines:
            output.line(line)
        return output.cause({})


def _drivers_states(pod: Any) -> list[Any]:
    """Return the state of the driver's container, as Kubernetes has it; empty before there is one."""
    main = _drivers_container(pod)
    return [each for each in pod.status.container_statuses or () if each.name == main and each.state]


def _phase(pod: Any) -> str:
    """Return the pod's phase; where a sidecar outlives the driver, how the driver has ended."""
    phase = str(pod.status.phase or "Pending")
    ended = [each.state.terminated for each in _drivers_states(pod) if each.state.terminated]
    if phase == "Running" and ended:
        return "Failed" if ended[0].exit_code else "Succeeded"
    return phase


def _why_it_waits(pod: Any) -> str:
    """Return why the driver does not start, if Kubernetes gives a reason; a sidecar's does not count."""
    own = _drivers_states(pod)
    if any(each.state.running or each.state.terminated for each in own):
        return ""
    for each in (*own, *(pod.status.init_container_statuses or ())):
        waiting = each.state and each.state.waiting
        if waiting and waiting.reason in NO_START:
            return _said(waiting)
    return ""


def _how_it_ended(pod: Any) -> str:
    if pod.status.reason:
        return _said(pod.status)
    ended = [
        each.state.terminated for each in pod.status.container_statuses or () if each.state and each.state.terminated
    ]
    return ", ".join(f"exit code: {each.exit_code}, {each.reason}" for each in ended) or "no reason given"


def _said(it: Any) -> str:
    return " ".join(f"{it.reason}: {it.message or 'no message'}".split())[:300]


def _client() -> Any:
    client = provider.kube_client.get_kube_client()  # type: ignore[attr-defined]  # as the provider has imported it
    # By itself urllib3 asks ten times more, so that an answer may take eleven times its limit.
    client.api_client.rest_client.pool_manager.connection_pool_kw["retries"] = False
    return client


def _unless_gone(read: Callable[..., Any], name: str, namespace: str) -> Any:
    try:
        return read(name, namespace, _request_timeout=ANSWER_S)
    except Exception as error:
        if getattr(error, "status", None) != _GONE:
            raise
        return None
