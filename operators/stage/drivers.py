"""A stage's drivers on the cluster, over its tries: found again, taken over, or ended (semantics F3, F5, A2).

Airflow keeps a task's state by run, task and map index, through tries and clears. One entry in it names the driver that
was submitted last, and its execution. The entry is written once the driver's id is known. If a worker dies before that,
the driver is found on Kubernetes, whose pods have the token of their execution as a label. Elsewhere no task owns it:
the next try fails over, and an acknowledgement of that driver is discarded.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import requests
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk.exceptions import AirflowException

from ...checkpoint.errors import UnreachableError
from ...hooks import kubernetes_pods
from ...hooks.kubernetes_pods import NOT_FOUND
from ...spark.execution.failure_kinds import error_line
from .outcome import NO_MEMORY

if TYPE_CHECKING:
    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
    from airflow.sdk import Context
    from pydantic import JsonValue

    from ...checkpoint.documents.attempt import Handover
    from ...launchers.launcher import DriverState, Tracker

log = logging.getLogger("airflow_cairn")

LAST_DRIVER = "cairn_driver"
"""The key of that entry. Its value holds the execution's token and the driver's id."""

HTTP_SECONDS = 30.0
"""Seconds within which a master must answer; the provider's value."""


UNKNOWN_TO_YARN = "returned HTTP 404 for application"
"""The provider's message when the ResourceManager has forgotten an application, or never knew it."""


UNKNOWN = "UNKNOWN"
"""The state of a driver that a standalone master, or Kubernetes, cannot tell at the moment."""

PENDING = "PENDING"
"""The state of a driver on Kubernetes whose container does not run yet."""


def is_tracked(hook: SparkSubmitHook) -> bool:
    """Return whether `spark-submit` ends while the driver runs on, and the provider tracks the driver by its id.

    True for standalone in cluster mode, YARN with `yarn_track_via_rm_api`, and Kubernetes with
    `track_driver_via_k8s_api`, both in cluster mode.
    """
    return bool(
        hook._should_track_driver_status
        or hook._should_track_driver_via_k8s_api()
        or hook._should_track_yarn_application_via_rm_api()
    )


def point_at(hook: SparkSubmitHook, driver: str) -> None:
    """Point a hook that has submitted nothing at another hook's driver, to follow or end it.

    Args:
        hook: the provider's hook.
        driver: the driver's id, as the provider's operator keeps it: on Kubernetes `namespace:pod`.
    """
    if hook._should_track_driver_status:
        hook._driver_id = driver
    elif hook._is_kubernetes:
        hook._connection["namespace"], _, hook._kubernetes_driver_pod = driver.partition(":")
    else:
        hook._yarn_application_id = driver


class DurableSubmit(SparkSubmitOperator):
    """The provider's operator, with drivers that each belong to one execution of a stage."""

    _token = ""

    def keep_drivers_of(self, token: str) -> None:
        """Use this execution's own provider keys, so that the provider never takes over another execution's driver."""
        self.external_id_key = f"spark_job_{token}"
        self._K8S_DRIVER_STATUS_KEY = f"k8s_driver_status_{token}"
        self._token = token

    def _get_hook(self) -> SparkSubmitHook:
        """Return the provider's hook."""
        try:
            return super()._get_hook()
        except NameError as error:
            # The provider fails with a NameError if its Kubernetes client could not be imported.
            if error.name != "kube_client":
                raise
            raise AirflowException(
                f"the connection {self._conn_id} leads to Kubernetes, and its package is not installed: install "
                "apache-airflow-providers-cncf-kubernetes on the workers"
            ) from error

    def submit_job(self, context: Context) -> str | None:
        """Submit, and record at once which driver belongs to which execution."""
        driver: str | None = super().submit_job(context)
        store = context.get("task_state_store")
        if store is not None and driver is not None:
            try:
                store.set(LAST_DRIVER, {"token": self._token, "driver": driver})
            except Exception:
                # No later try could find this driver.
                log.warning("Driver %s is ended at once, because Airflow did not store that it was submitted", driver)
                self.on_kill()
                raise
        return driver

    def poll_until_complete(self, external_id: JsonValue, context: Context) -> None:
        """Wait for a driver's end as the provider does; on Kubernetes, note whether its pod vanished."""
        hook = self._hook
        assert hook is not None
        # The provider does not pass on what this returns.
        hook._poll_k8s_driver_via_api = self._follow_pod  # type: ignore[method-assign]
        try:
            super().poll_until_complete(external_id, context)
        finally:
            del hook._poll_k8s_driver_via_api

    def on_kill(self) -> None:
        """End the driver as the provider does; on Kubernetes also a driver whose pod's name is not known yet."""
        hook = self._hook
        if hook is not None and hook._is_kubernetes:
            # The provider's method waits for an answer without a limit.
            hook._delete_driver_pod = self._end_pods  # type: ignore[method-assign]
        super().on_kill()
        if hook is not None and hook._should_track_driver_via_k8s_api() and not hook._kubernetes_driver_pod:
            self._end_pods()

    def _end_pods(self) -> None:
        """Delete the driver's pod, or all with the execution's label where its name is not known; errors are logged."""
        hook = self._hook
        assert hook is not None
        pod = hook._kubernetes_driver_pod
        try:
            known = [f"{hook._connection['namespace']}:{pod}"] if pod else []
            for driver in known or (kubernetes_pods.labelled(hook, [self._token]).values() if self._token else ()):
                log.info("Driver %s is asked to end", driver)
                kubernetes_pods.end(driver)
        except Exception as error:  # noqa: BLE001 - the task ends anyway
            log.warning("What was submitted could not be ended, so a driver may be left: %s", error_line(error))

    def _follow_pod(self) -> str | None:
        assert self._hook is not None
        phase = kubernetes_pods.follow(self._hook)
        self.pod_vanished = phase is None
        return phase

    def get_job_status(self, external_id: JsonValue, context: Context) -> str:
        """Ask the cluster for a driver's state, in its own words; `NotFound` if it does not know the driver."""
        if self._hook is not None and self._hook._is_kubernetes:
            store = context.get("task_state_store")
            kept = store.get(self._K8S_DRIVER_STATUS_KEY) if store is not None else None
            return kubernetes_pods.phase_of(str(external_id)) if kept is None else str(kept)
        try:
            return str(super().get_job_status(external_id, context))
        except RuntimeError as error:
            if UNKNOWN_TO_YARN not in str(error):
                raise
            return NOT_FOUND

    def _fetch_driver_status(  # type: ignore[override]  # the provider's method is retried; a try has its own retries
        self, url: str, external_id: str
    ) -> str:
        """Ask a standalone master; a driver that it does not know is gone, which the provider treats as an error."""
        response = requests.get(url, timeout=HTTP_SECONDS)
        response.raise_for_status()
        answer = response.json()
        if answer.get("success"):
            return str(answer["driverState"])
        if answer.get("message"):
            # The master is recovering or on standby: another master may know.
            raise RuntimeError(f"the Spark master does not know yet about {external_id}: {answer['message']}")
        return NOT_FOUND


class SubmittedDrivers:
    """Drivers that spark-submit has left on a cluster, as Airflow's entry and the provider know them; a `Tracker`."""

    missing: str = (
        "the try before ended before it had noted which driver it submitted, or Airflow's note of it "
        f"({LAST_DRIVER} in the task's state) was removed"
    )

    def __init__(self, operator: DurableSubmit, context: Context) -> None:
        self._operator = operator
        self._context = context
        self._store = context.get("task_state_store")
        self._hook: SparkSubmitHook | None = None

    def tracks(self) -> bool:
        """Return whether a driver submitted now may live on without its task, and can be found again."""
        if self._store is None:
            return False
        try:
            return is_tracked(self._plain_hook())
        except (AirflowException, RuntimeError, ValueError):
            return False  # submitting meets the same error and reports it as the stage's

    def find(self, tokens: Sequence[str]) -> dict[str, str]:
        """Return the last submitted driver, if one of these executions owns it; on Kubernetes, the drivers of all.

        Raises:
            Exception: the Kubernetes client's.
        """
        last = self._last()
        found = dict([last]) if last is not None and last[0] in tokens else {}
        others = [token for token in tokens if token not in found]
        if others and self._on_kubernetes():
            found |= kubernetes_pods.labelled(self._plain_hook(), others)
            self.missing = (
                f"{type(self).missing}; and no pod has its label: it was deleted, or the connection names another "
                "namespace now"
            )
        return found

    def others(self, token: str, replaced: Sequence[str]) -> Iterable[str]:
        """Return the known drivers of other executions; see `find`."""
        last = self._last()
        known = [] if last is None else [last[0]]
        return self.find([each for each in dict.fromkeys((*known, *replaced)) if each != token]).values()

    def state(self, driver: str) -> DriverState:
        """Ask the cluster through the provider.

        Raises:
            AirflowException: the Spark connection names no cluster.
        """
        from ...launchers.launcher import DriverState

        if not is_tracked(self._plain_hook()):
            # The provider treats a connection that it cannot read as YARN in client mode.
            raise AirflowException(
                f"Spark connection {self._operator._conn_id} cannot be read, or no longer has cluster mode"
            )
        last = self._last()
        token = last[0] if last is not None and last[1] == driver else ""
        self._operator.keep_drivers_of(token)
        before, self._operator._hook = self._operator._hook, self._plain_hook()
        try:
            status: str = self._operator.get_job_status(driver, self._context)
            if status.upper() == PENDING and self._on_kubernetes():
                why = kubernetes_pods.end_unless_it_starts(driver, noted=bool(token))
                if why:
                    return DriverState(f"deleted before it started: {why}", lives=False, may_have_run=False)
            # Kubernetes reports this for a pod on an unreachable node, and the provider treats it as an end.
            lives = self._operator.is_job_active(status) or status.upper() == UNKNOWN
            return DriverState(status, lives, self._operator.is_job_succeeded(status))
        finally:
            self._operator._hook = before

    def cancel(self, driver: str) -> None:
        """End a driver through the provider, on Kubernetes by its pod."""
        if self._on_kubernetes():
            kubernetes_pods.end(driver)
            return
        hook = self._plain_hook()
        point_at(hook, driver)
        hook._post_submit_commands = []  # they belong to the end of this try's own submission
        hook.on_kill()

    def _last(self) -> tuple[str, str] | None:
        """Return the execution whose driver was submitted last, and the driver."""
        found: JsonValue = self._store.get(LAST_DRIVER) if self._store is not None else None
        if not isinstance(found, dict):
            return None
        token, driver = found.get("token"), found.get("driver")
        return (token, driver) if isinstance(token, str) and isinstance(driver, str) else None

    def _on_kubernetes(self) -> bool:
        hook = self._plain_hook()
        return is_tracked(hook) and bool(hook._is_kubernetes)

    def _plain_hook(self) -> SparkSubmitHook:
        """Return the hook as the provider builds it; built once."""
        if self._hook is None:
            self._hook = self._operator._get_hook()
        return self._hook


class StageDrivers:
    """The knowledge of one try about the drivers of the tries before it; implements the domain's `Drivers`."""

    def __init__(self, tracker: Tracker, *, durable: bool) -> None:
        self._tracker = tracker
        self._durable = durable

    def outlive(self) -> bool:
        """Return whether a driver submitted now may live on without its task, and can be found again."""
        return self._durable and self._tracker.tracks()

    def driver_loss_reason(self, handover: Handover, seen: str = "") -> str | None:
        """Return why the driver of an execution cannot be waited for; None while it lives.

        Args:
            handover: of the execution.
            seen: what this try failed with; empty if it has not.

        Raises:
            UnreachableError: Airflow or the cluster did not answer, or the Spark connection names no cluster.
        """
        if not self._durable:
            return "the try before ended without acknowledging"
        driver = "unknown"
        try:
            found = self._tracker.find([handover.token]).get(handover.token)
            if found is None:
                return self._tracker.missing
            driver = found
            state = self._tracker.state(driver)
        except Exception as error:  # the class depends on the provider and the deploy mode
            raise UnreachableError(
                "the cluster does not say what became of the driver, so nothing was decided: the next try asks again. "
                "Where the driver is known to be dead and the cluster will not answer any more, set durable=False, and "
                f"the next try opens a new attempt. {error_line(error)}"
                + (f". Before that this try failed: {seen}" if seen else ""),
                code="driver_unknown",
                job=handover.job,
                checkpoint=handover.checkpoint,
                stage=handover.stage,
                driver=driver,
            ) from error
        if state.lives:
            log.info("Driver %s lives (%s); this try waits for it and submits nothing", driver, state.word)
            return None
        if handover.program is not None and state.succeeded:
            log.info("Driver %s has ended well (%s); this try acknowledges and submits nothing", driver, state.word)
            return None
        killed = f"; if it was killed, {NO_MEMORY}" if state.may_have_run else ""
        return f"its driver {driver} is gone ({state.word}) and has not acknowledged{killed}"

    def check_lost(self, handover: Handover, error: Exception, cause: str = "") -> None:
        """Check, after watching a driver failed, that the driver is gone: unknown is not gone (semantics F2).

        Args:
            handover: of the execution.
            error: what this try failed with.
            cause: the line of the driver's output that says why; empty if there is none.

        Raises:
            UnreachableError: the driver lives, or the cluster does not say; the next try waits for it, or finds it
                gone.
        """
        seen = cause or error_line(error)
        if not handover.durable or self.driver_loss_reason(handover, seen) is not None:
            return
        raise UnreachableError(
            "this try lost sight of its driver, which lives or may live: nothing was decided, and the next try asks "
            f"again. {seen}",
            code="driver_unknown",
            job=handover.job,
            checkpoint=handover.checkpoint,
            stage=handover.stage,
        ) from error

    def driver_of(self, token: str) -> str:
        """Return the driver of an execution that this try has taken over.

        Raises:
            AirflowException: the driver is not found any more.
        """
        found = self._tracker.find([token]).get(token)
        if found is None:
            raise AirflowException(f"{self._tracker.missing}. The next try submits another one")
        return found

    def has_ended_well(self, driver: str) -> bool:
        """Return whether the cluster says that a driver has ended well."""
        return self._tracker.state(driver).succeeded

    def end_those_before(self, token: str, replaced: Sequence[str]) -> None:
        """End the drivers of other executions that still run (semantics F3). Errors are only logged.

        Their acknowledgements would be discarded anyway (A2): ending them saves work and room on the cluster.

        Args:
            token: of the execution that is about to be submitted.
            replaced: tokens of executions that it has replaced.
        """
        driver = ""
        try:
            for driver in self._tracker.others(token, replaced) if self._tracker.tracks() else ():
                state = self._tracker.state(driver)
                if state.lives:
                    self._tracker.cancel(driver)
                    log.info(
                        "Driver %s of an earlier attempt was %s, and the cluster is asked to end it", driver, state.word
                    )
        except Exception as error:
            log.exception(
                "Driver %s of an earlier attempt could not be ended (%s). What it acknowledges is discarded, but it "
                "uses the cluster until it ends: kill it manually",
                driver or "unknown",
                error,  # noqa: TRY401 - the page folds the trace away
            )
