"""One-time runs of Databricks, over `DatabricksSubmitRunOperator` and its hook.

The token is `idempotency_token`: a second submission with it gives the first run. It is the end of the run's name too,
which the list of runs shows. Airflow's own note of a run (`databricks_run_id`) outlives a clear, so it is never asked.

Databricks takes Spark conf with a new cluster alone, and no zip for Python: the driver's code comes as a wheel.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...checkpoint.errors import InvalidConfigError
from .addresses import as_s3, by_token
from .launcher import DriverState, HandedOver, Launcher

if TYPE_CHECKING:
    from airflow.providers.databricks.operators.databricks import DatabricksSubmitRunOperator
    from airflow.sdk import Context

ENDED = frozenset({"TERMINATED", "SKIPPED", "INTERNAL_ERROR"})
"""The states of a run that has ended; one that is TERMINATING may still write."""

LIST_RUNS = ("GET", "2.2/jobs/runs/list")
PAGE = 25
"""The longest page of the list."""
MAX_NAME = 4096
LINES = 100

NOT_FOUND = 404
BAD_REQUEST = 400


class DatabricksLauncher(Launcher):
    """Starts one-time runs of one task."""

    service = "Databricks run"
    missing = "Databricks has no driver of it: it was not submitted, or has ended without acknowledging"
    takes_wheel = True

    _operator: DatabricksSubmitRunOperator

    @property
    def conf(self) -> object:
        """The author's `spark_conf`."""
        cluster = self._task().get("new_cluster")
        return cluster.get("spark_conf") if isinstance(cluster, Mapping) else None

    @property
    def arguments(self) -> object:
        """The parameters of the Python file."""
        task = self._task().get("spark_python_task")
        return task.get("parameters") if isinstance(task, Mapping) else None

    def check(self) -> None:
        """Check the author's options.

        Raises:
            InvalidConfigError: see `Launcher`.
        """
        if self._payload() is not None:
            self._check_payload()

    def hand_over(self, handed: HandedOver) -> None:
        """Put the handover into the run.

        Raises:
            InvalidConfigError: the rendered run cannot be a stage.
        """
        self._check_payload()
        operator, payload, task = self._operator, self._payload() or {}, self._task()
        cluster = task["new_cluster"]
        added = {
            "new_cluster": {
                **cluster,
                "spark_conf": {**handed.defaults, **(cluster.get("spark_conf") or {}), **handed.conf},
            },
            "libraries": [*(task.get("libraries") or ()), {"whl": as_s3(handed.code_uri)}],
        }
        one = {**payload, "tasks": [{**task, **added}]} if "tasks" in payload else {**payload, **added}
        for name in operator._get_named_json_parameters():
            setattr(operator, name, None)  # they would win over the same name in `json`
        operator.json = {
            **one,
            "run_name": f"{payload['run_name']}-{handed.token}"[-MAX_NAME:],
            "idempotency_token": handed.token,
        }

    def start(self, context: Context) -> str:
        """Submit by the operator's own method, and give its button what it needs, without waiting."""
        run = self._operator.submit_job(context)
        self._operator.get_job_result(run, context)
        return str(run)

    def find(self, tokens: Sequence[str]) -> dict[str, str]:
        """Return runs that have not ended."""
        found: dict[str, str] = {}
        asked: dict[str, Any] = {"active_only": "true", "run_type": "SUBMIT_RUN", "limit": PAGE}
        while tokens:
            answer = self._operator._hook._do_api_call(LIST_RUNS, asked)
            runs = answer.get("runs") or ()
            found |= by_token(tokens, ((str(run.get("run_name", "")), str(run["run_id"])) for run in runs))
            if not answer.get("next_page_token"):
                break
            asked["page_token"] = answer["next_page_token"]
        return found

    def state(self, driver: str) -> DriverState:
        """See `Launcher`."""
        from airflow.providers.databricks.exceptions import DatabricksApiError  # the DAG file has imported it

        try:
            run = self._operator._hook.get_run(int(driver))
        except DatabricksApiError as error:
            gone = error.http_status_code == BAD_REQUEST and "does not exist" in str(error)
            if error.http_status_code != NOT_FOUND and not gone:
                raise
            return DriverState("unknown to Databricks", lives=False)
        state = run["state"]
        words = [str(state[each]) for each in ("life_cycle_state", "result_state", "state_message") if state.get(each)]
        ended, well = words[0] in ENDED, state.get("result_state") == "SUCCESS"
        return DriverState(": ".join(words) if ended else words[0], not ended, well, str(run.get("run_page_url") or ""))

    def cancel(self, driver: str) -> None:
        """See `Launcher`."""
        self._operator._hook.cancel_run(int(driver))

    def logs(self, driver: str) -> Iterable[str]:
        """Return the last lines of the Python file's output, and its error."""
        hook = self._operator._hook
        (task,) = hook.get_run(int(driver))["tasks"]
        output = hook.get_run_output(task["run_id"])
        lines = str(output.get("logs") or "").splitlines()[-LINES:]
        return [*lines, *str(output.get("error_trace") or output.get("error") or "").splitlines()]

    def _check_payload(self) -> None:
        payload, task = self._payload() or {}, self._task()
        taken = "idempotency_token" in payload or self._operator.idempotency_token is not None
        why = (
            "idempotency_token is set by Cairn, which gives each attempt another: remove it"
            if taken
            else "the run has no spark_python_task: a stage is one PySpark file, and a run has one task"
            if not isinstance(task.get("spark_python_task"), Mapping)
            else "the run has no new_cluster, and Databricks takes Spark conf, by which Cairn hands over, with no other"
            if not isinstance(task.get("new_cluster"), Mapping)
            else None
        )
        if why is not None:
            raise InvalidConfigError(why, task=self._operator.task_id)

    def _payload(self) -> dict[str, Any] | None:
        """Return the run as the operator would submit it; None while it is known only as a template."""
        from airflow.providers.databricks.exceptions import DatabricksOperatorPayloadError

        try:
            payload: dict[str, Any] = self._operator._get_merged_json()
        except DatabricksOperatorPayloadError:
            return None
        return payload

    def _task(self) -> Mapping[str, Any]:
        """Return the run's one task; empty if there is another number of them."""
        payload = self._payload() or {}
        tasks = payload.get("tasks", [payload])
        return tasks[0] if isinstance(tasks, list) and len(tasks) == 1 and isinstance(tasks[0], Mapping) else {}
