"""SparkApplications on Kubernetes, over `SparkKubernetesOperator` and its hook.

The token is the end of the resource's name, which is unique in Kubernetes, and a label, by which Kubernetes lists. The
operator's own search (`reattach_on_restart`) goes by run and task and knows no try, and the operator waits for a
driver's start before it returns. So the resource is created here, from the body that the provider builds.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowException

from ..checkpoint.errors import InvalidConfigError
from ..hooks.kubernetes_pods import TOKEN_LABEL, last_lines, waits_in_vain
from .launcher import ANSWER_S, DriverState, HandedOver, Launcher, tries_again

if TYPE_CHECKING:
    from airflow.providers.cncf.kubernetes.operators.spark_kubernetes import SparkKubernetesOperator
    from airflow.sdk import Context

ENDED = frozenset({"COMPLETED", "FAILED"})
"""The states of an application that has ended; the controller may still submit after a SUBMISSION_FAILED."""
STARTING = frozenset({"NEW", "SUBMITTED", "PENDING"})
"""The states of an application whose driver may wait for an image, which the controller does not tell."""

GROUP, VERSION, PLURAL = "sparkoperator.k8s.io", "v1beta2", "sparkapplications"
MAX_NAME = 56
"""Most characters of a name: the controller appends to it for labels and for names of other resources."""
FORBIDDEN, NOT_FOUND = 403, 404
WITHIN = {"_request_timeout": ANSWER_S}


class SparkKubernetesLauncher(Launcher):
    """Creates SparkApplications."""

    service = "SparkApplication"
    missing = "Kubernetes has no SparkApplication of this execution: it was not created, or was deleted after its end"
    asks_with = ("kubernetes_conn_id", "namespace", "in_cluster", "config_file", "cluster_context")

    _operator: SparkKubernetesOperator

    @property
    def conf(self) -> object:
        """The author's `sparkConf`."""
        return self._spec().get("sparkConf")

    @property
    def arguments(self) -> object:
        return self._spec().get("arguments")

    def check(self) -> None:
        if self._body() is not None:
            self._check_spec()

    def hand_over(self, handed: HandedOver) -> None:
        self._check_spec()
        operator, body = self._operator, copy.deepcopy(self._body() or {})
        spark = body["spark"]
        spec, labels = spark["spec"], (spark.setdefault("metadata", {}).get("labels") or {})
        spec["sparkConf"] = {**handed.defaults, **(spec.get("sparkConf") or {}), **handed.conf}
        dependencies = spec.get("deps") or {}
        files = [*(dependencies.get("pyFiles") or ()), *handed.code]
        spec["deps"] = {**dependencies, **({"pyFiles": files} if files else {})}
        spark["metadata"]["labels"] = {**labels, TOKEN_LABEL: handed.token}
        name = str(operator.name or spark["metadata"].get("name") or operator.task_id)
        operator.application_file, operator.template_spec = None, body
        operator.name = operator._set_name(f"{name[: MAX_NAME - len(handed.token) - 1]}-{handed.token}")

    def run_instead(self, program: str, arguments: Sequence[str]) -> None:
        self._check_spec()
        body = copy.deepcopy(self._body() or {})
        spec = body["spark"]["spec"]
        spec.pop("mainClass", None)
        spec |= {"type": "Python", "pythonVersion": "3", "mainApplicationFile": program, "arguments": [*arguments]}
        operator = self._operator
        operator.application_file, operator.template_spec, operator.code_path = None, body, None

    def fields(self) -> dict[str, Any]:
        """Return the fields, with the part of the template that says where the cluster is."""
        given = (self._body() or {}).get("kubernetes") or {}
        where = {name: given[name] for name in ("in_cluster", "kube_config_file", "cluster_context") if name in given}
        return {
            **super().fields(),
            "application_file": None,
            "template_spec": {"kubernetes": where, "spark": {}},
        }

    def start(self, context: Context) -> str:  # noqa: ARG002 - see `Launcher`
        """Create the resource, without waiting for its driver."""
        from airflow.providers.cncf.kubernetes.operators.custom_object_launcher import CustomObjectLauncher

        operator = self._operator
        body = CustomObjectLauncher(
            operator.name, operator.namespace, operator.client, self._resources, operator.template_body
        ).body
        for field, value in (("image", operator.image), ("mainApplicationFile", operator.code_path)):
            if value:
                body["spec"][field] = value
        self._resources.create_namespaced_custom_object(GROUP, VERSION, operator.namespace, PLURAL, body, **WITHIN)
        return str(operator.name)

    def find(self, tokens: Sequence[str]) -> dict[str, str]:
        """Return the applications that Kubernetes has, ended ones too."""
        if not tokens:
            return {}
        return {each["metadata"]["labels"][TOKEN_LABEL]: str(each["metadata"]["name"]) for each in self._of(tokens)}

    def _of(self, tokens: Iterable[str]) -> list[dict[str, Any]]:
        listed: dict[str, list[dict[str, Any]]] = self._resources.list_namespaced_custom_object(
            GROUP,
            VERSION,
            self._operator.namespace,
            PLURAL,
            label_selector=f"{TOKEN_LABEL} in ({','.join(tokens)})",
            **WITHIN,
        )
        return listed["items"]

    def state(self, driver: str) -> DriverState:
        """See `Launcher`; deletes an application whose driver's pod waits in vain, and reports that as its state."""
        status = self._status(driver)
        if status is None:
            return DriverState("unknown to Kubernetes", lives=False)
        found = _state_of(status)
        why = self._waits_in_vain(status) if found.word in STARTING else ""
        if why:
            self.cancel(driver)
            return DriverState(f"{found.word}, and deleted before it started: {why}", lives=False, may_have_run=False)
        return found

    def listed(self, drivers: Collection[str]) -> dict[str, DriverState]:
        found = self._of(driver.rpartition("-")[2] for driver in drivers)
        states = {str(each["metadata"]["name"]): _state_of(each.get("status") or {}) for each in found}
        return {name: state for name, state in states.items() if state.word not in STARTING}

    def cancel(self, driver: str) -> None:
        """Delete the application; its controller ends the pods."""
        from kubernetes.client import ApiException

        try:
            self._resources.delete_namespaced_custom_object(
                GROUP, VERSION, self._operator.namespace, PLURAL, driver, **WITHIN
            )
        except ApiException as error:
            if error.status != NOT_FOUND:
                raise

    def logs(self, driver: str) -> Iterable[str]:
        """Return the last lines of the driver's pod."""
        pod = ((self._status(driver) or {}).get("driverInfo") or {}).get("podName")
        return last_lines(self._operator.client, pod, self._operator.namespace, self._pod(pod)) if pod else ()

    def leave(self, driver: str) -> None:
        """Delete an application that has ended, as the operator does."""
        if self._operator.delete_on_termination:
            self.cancel(driver)

    def _status(self, driver: str) -> Mapping[str, Any] | None:
        """Return the status that the controller gives an application; None if there is none of this name."""
        from kubernetes.client import ApiException

        try:
            found: Mapping[str, Any] = self._resources.get_namespaced_custom_object(
                GROUP, VERSION, self._operator.namespace, PLURAL, driver, **WITHIN
            )
        except ApiException as error:
            if error.status != NOT_FOUND:
                raise
            return None
        return found.get("status") or {}

    def _waits_in_vain(self, status: Mapping[str, Any]) -> str:
        """Return why the driver's pod has not started for too long; empty without the right to look."""
        name = (status.get("driverInfo") or {}).get("podName")
        pod = self._pod(name) if name else None
        return waits_in_vain(pod) if pod is not None else ""

    def _pod(self, name: str) -> Any:
        """Read a driver's pod; None if it is not there, or without the right to look."""
        from kubernetes.client import ApiException

        try:
            return self._operator.client.read_namespaced_pod(name, self._operator.namespace, **WITHIN)
        except ApiException as error:
            if error.status not in (NOT_FOUND, FORBIDDEN):
                raise
            return None

    def _check_spec(self) -> None:
        spec = self._spec()
        policy = spec.get("restartPolicy") or {}
        restart = policy.get("type", "Never") if isinstance(policy, Mapping) else policy
        why = (
            "the application has no spec of type Python. The application_file or template_spec has to be a "
            "SparkApplication; with an Epoch block its type is Python, without one it has places in its arguments"
            if spec.get("type") != "Python" and (self.has_block or "type" not in spec)
            else tries_again(
                f"restartPolicy is {restart}: the controller would start a failed driver", "set it to Never"
            )
            if restart != "Never"
            else None
        )
        if why is not None:
            raise InvalidConfigError(why, task=self._operator.task_id)

    def _body(self) -> dict[str, Any] | None:
        """Return the template's body; None while it is known only as a template or the name of a file."""
        try:
            body: dict[str, Any] = self._operator.template_body
        except (TypeError, AirflowException):
            return None
        return body if isinstance(body, dict) else None

    def _spec(self) -> Mapping[str, Any]:
        spark = (self._body() or {}).get("spark")
        spec = spark.get("spec") if isinstance(spark, Mapping) else None
        return spec if isinstance(spec, Mapping) else {}

    @property
    def _resources(self) -> Any:
        return self._operator.hook.custom_object_client


def _state_of(status: Mapping[str, Any]) -> DriverState:
    state = status.get("applicationState") or {}
    word, why = str(state.get("state") or "NEW"), str(state.get("errorMessage") or "")
    return DriverState.of(word, why, ENDED, "COMPLETED")
