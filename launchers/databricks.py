"""Runs of Databricks, one-time and of its jobs, over their operators and their hook.

The token is `idempotency_token`: a second submission with it gives the first run. It is the end of a one-time run's
name too, which the list of runs shows, and stands in the addresses among the parameters of a job's run, which has the
job's name. Airflow's own note of a run (`databricks_run_id`) outlives a clear, so it is never asked.

Databricks takes Spark conf with a new cluster alone, and no zip for Python: the driver's code comes as a wheel. A
program without an `Epoch` block needs neither, so it runs on any compute.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..checkpoint.errors import InvalidConfigError
from ..spark.programs.arguments import texts_in
from ..tasks.job_settings import is_rendered_later
from .launcher import DriverState, HandedOver, Launcher, as_s3, by_token, on_pages, tries_again

if TYPE_CHECKING:
    from airflow.providers.databricks.operators.databricks import (
        DatabricksRunNowOperator,
        DatabricksSubmitRunOperator,
    )
    from airflow.sdk import Context

ENDED = frozenset({"TERMINATED", "SKIPPED", "INTERNAL_ERROR"})
"""The states of a run that has ended; one that is TERMINATING may still write."""

LIST_RUNS, GET_JOB = ("GET", "2.2/jobs/runs/list"), ("GET", "2.2/jobs/get")
PAGE = 25
"""The longest page of the list."""
MAX_NAME = 4096
WITHOUT_BLOCK = (
    "give it one, or give the program places in its parameters, such as Output('clean'). Then it needs no block, and "
    "runs on an existing cluster, on serverless compute, as a notebook or a jar"
)
TRIES_AGAIN = tries_again("max_retries has Databricks start a failed driver", "remove it")
OF_ONE_TASK = frozenset({"environment_key", "libraries", "max_retries"})
"""Fields of a task, besides `…_task`, that a run in the form of one task has itself."""
LINES = 100

NOT_FOUND = 404
BAD_REQUEST = 400


class DatabricksLauncher(Launcher):
    """Starts one-time runs of one task."""

    service = "Databricks run"
    missing = "Databricks has no driver of this execution: it was not submitted, or has ended without acknowledging"
    takes_wheel = True
    asks_with = ("databricks_conn_id", "databricks_retry_limit", "databricks_retry_delay")

    _operator: DatabricksSubmitRunOperator

    @property
    def conf(self) -> object:
        """The author's `spark_conf`."""
        cluster = self._task().get("new_cluster")
        return cluster.get("spark_conf") if isinstance(cluster, Mapping) else None

    @property
    def arguments(self) -> object:
        """The texts in the description of the task's program, its parameters among them."""
        return [text for name, part in self._task().items() if name.endswith("_task") for text in texts_in(part)]

    def check(self) -> None:
        payload = self._payload()
        later = ("tasks", "new_cluster", "spark_python_task")
        if payload is not None and not any(is_rendered_later(payload.get(name)) for name in later):
            self._check_payload()

    def hand_over(self, handed: HandedOver) -> None:
        self._check_payload()
        payload, task = self._payload() or {}, self._task()
        if "tasks" not in payload and not {"new_cluster", "existing_cluster_id"} & payload.keys():
            # disable_auto_optimization is a field of the tasks of a run, and not of a run in the form of one task.
            task = {name: part for name, part in payload.items() if name.endswith("_task") or name in OF_ONE_TASK}
            task = {"task_key": self._operator.task_id.rpartition(".")[2], **task}
            payload = {**{name: part for name, part in payload.items() if name not in task}, "tasks": [task]}
        added: dict[str, Any] = {}
        cluster = task.get("new_cluster")
        if isinstance(cluster, Mapping):
            conf = {**handed.defaults, **(cluster.get("spark_conf") or {}), **handed.conf}
            added["new_cluster"] = {**cluster, "spark_conf": conf}
        elif "existing_cluster_id" not in task:
            added["disable_auto_optimization"] = True  # by which serverless compute tries a failed task again
        if handed.code:
            wheels = ({"whl": as_s3(each)} for each in handed.code)
            added["libraries"] = [*(task.get("libraries") or ()), *wheels]
        one = {**payload, "tasks": [{**task, **added}]} if "tasks" in payload else {**payload, **added}
        name = f"{payload['run_name']}-{handed.token}"[-MAX_NAME:]
        self._submit_only({**one, "run_name": name, "idempotency_token": handed.token})

    def run_instead(self, program: str, arguments: Sequence[str]) -> None:
        """See `Launcher`.

        Raises:
            InvalidConfigError: the task runs where no Python file does.
        """
        payload, task = self._payload() or {}, self._task()
        if not any(task.get(each) for each in ("new_cluster", "existing_cluster_id", "environment_key")):
            raise InvalidConfigError(
                "the task has no new_cluster, existing_cluster_id or environment_key, without which Databricks runs no "
                "Python file: a SQL warehouse cannot be asked, nor serverless compute without an environment",
                task=self._operator.task_id,
            )
        kept = {name: part for name, part in task.items() if not name.endswith("_task")}
        asks = {**kept, "spark_python_task": {"python_file": as_s3(program), "parameters": [*arguments]}}
        self._submit_only({**payload, "tasks": [asks]} if "tasks" in payload else asks)

    def _submit_only(self, payload: Mapping[str, Any]) -> None:
        """Have the operator submit this and nothing else: an argument would win over the same name in `json`."""
        for name in self._operator._get_named_json_parameters():
            setattr(self._operator, name, None)
        self._operator.json = {**payload}

    def fields(self) -> dict[str, Any]:
        """Return the fields, without the author's functions for retrying."""
        return {**super().fields(), "databricks_retry_args": None}

    def start(self, context: Context) -> str:
        """Submit by the operator's own method, and give its button what it needs, without waiting."""
        run = self._operator.submit_job(context)
        self._operator.get_job_result(run, context)
        return str(run)

    def find(self, tokens: Sequence[str]) -> dict[str, str]:
        """Return runs that have not ended."""
        if not tokens:
            return {}
        runs = (run for page in self._pages() for run in page)
        return by_token(tokens, ((str(run.get("run_name", "")), str(run["run_id"])) for run in runs))

    def listed(self, drivers: Collection[str]) -> dict[str, DriverState]:
        return on_pages(drivers, self._pages(), "run_id", _state_of)

    def _pages(self) -> Iterator[Sequence[dict[str, Any]]]:
        asked: dict[str, Any] = {"active_only": "true", "run_type": "SUBMIT_RUN", "limit": PAGE}
        while True:
            answer = self._operator._hook._do_api_call(LIST_RUNS, asked)
            yield answer.get("runs") or ()
            if not answer.get("next_page_token"):
                return
            asked["page_token"] = answer["next_page_token"]

    def state(self, driver: str) -> DriverState:
        from airflow.providers.databricks.exceptions import DatabricksApiError  # the DAG file has imported it

        try:
            run = self._operator._hook.get_run(int(driver))
        except DatabricksApiError as error:
            gone = error.http_status_code == BAD_REQUEST and "does not exist" in str(error)
            if error.http_status_code != NOT_FOUND and not gone:
                raise
            return DriverState("unknown to Databricks", lives=False)
        return _state_of(run)

    def cancel(self, driver: str) -> None:
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
            else "the run does not have exactly one task: a stage is one task"
            if not task
            else TRIES_AGAIN
            if str(task.get("max_retries") or 0) != "0"
            else None
            if not self.has_block
            else f"the run has no spark_python_task, and an Epoch block needs one: {WITHOUT_BLOCK}"
            if not isinstance(task.get("spark_python_task"), Mapping)
            else "the run has no new_cluster, and Databricks takes Spark conf, by which Cairn hands over to an Epoch "
            f"block, with no other: {WITHOUT_BLOCK}"
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


class DatabricksJobLauncher(DatabricksLauncher):
    """Starts runs of a job of one task, whose program has no `Epoch` block: a run brings no conf and no library."""

    service = "Databricks job run"

    _operator: DatabricksRunNowOperator

    @property
    def conf(self) -> object:
        """None: the job has its own."""
        return None

    @property
    def arguments(self) -> object:
        """The texts in the run's parameters."""
        payload = self._payload() or {}
        return [text for name, part in payload.items() if "param" in name for text in texts_in(part)]

    def hand_over(self, handed: HandedOver) -> None:
        """Put the token into the run.

        Raises:
            InvalidConfigError: the rendered run, or the job, cannot be a stage.
        """
        self._check_payload()
        settings = self._operator._hook._do_api_call(GET_JOB, {"job_id": self._job()})["settings"]
        tasks: Sequence[Any] = settings.get("tasks") or ()
        task = tasks[0] if len(tasks) == 1 else {}
        serverless = "environment_key" in task and not task.get("disable_auto_optimization")
        why = (
            "the job does not have exactly one task: a stage is one task"
            if len(tasks) != 1
            else TRIES_AGAIN
            if task.get("max_retries")
            else "disable_auto_optimization of the job's task has to be true: serverless compute would start a failed "
            "program again by itself"
            if serverless
            else None
        )
        if why is not None:
            raise InvalidConfigError(why, task=self._operator.task_id, job=str(settings.get("name", "")))
        self._operator.idempotency_token = handed.token

    def run_instead(self, program: str, arguments: Sequence[str]) -> None:  # noqa: ARG002 - see `Launcher`
        """Refuse.

        Raises:
            InvalidConfigError: always.
        """
        raise InvalidConfigError(
            "a job of Databricks runs its own program, and so cannot be asked about its cluster: name a stage of "
            "DatabricksSubmitRunOperator on such a cluster",
            task=self._operator.task_id,
        )

    def listed(self, drivers: Collection[str]) -> dict[str, DriverState]:  # noqa: ARG002 - see `Launcher`
        """List nothing: the job's list needs the job's id, which the triggerer is not given."""
        return {}

    def others(self, token: str, replaced: Sequence[str]) -> Iterable[str]:  # noqa: ARG002 - see `Tracker`
        """See `Tracker`: looks at runs that have not ended alone, because the job's history may be long."""
        return self._found(replaced, {"active_only": "true"}).values()

    def find(self, tokens: Sequence[str]) -> dict[str, str]:
        """Return the job's runs, ended ones too: their outputs' addresses have the token in them."""
        return self._found(tokens, {})

    def _found(self, tokens: Sequence[str], among: Mapping[str, str]) -> dict[str, str]:
        found: dict[str, str] = {}
        asked: dict[str, Any] = {"job_id": self._job(), "limit": PAGE, **among} if tokens else {}
        while asked:
            answer = self._operator._hook._do_api_call(LIST_RUNS, asked)
            for run in answer.get("runs") or ():
                texts = list(texts_in([run.get("overriding_parameters"), run.get("job_parameters")]))
                of_it = (token for token in tokens if any(f"/{token}/" in text for text in texts))
                found |= {token: str(run["run_id"]) for token in of_it if token not in found}
            if len(found) == len(tokens) or not answer.get("next_page_token"):
                break
            asked["page_token"] = answer["next_page_token"]
        return found

    def _check_payload(self) -> None:
        operator, payload = self._operator, self._payload() or {}
        taken = next((each for each in ("repair_run", "cancel_previous_runs") if getattr(operator, each)), None)
        why = (
            "idempotency_token is set by Cairn, which gives each attempt another: remove it"
            if "idempotency_token" in payload or operator.idempotency_token is not None
            else f"{taken} acts on the runs of other attempts and epochs: remove it"
            if taken
            else "a run of a job takes no Spark conf, by which Cairn hands over to an Epoch block: give the program "
            "places in its parameters, python_params=['--out', Output('clean')], and take the block out"
            if self.has_block
            else "a run of a job is found by the address that it writes to, and this one gets none: give its "
            "parameters Output('routes'), and have the program write at least a row there"
            if not self.writes
            else "the stage names no job: give it job_id or job_name"
            if not (payload.get("job_id") or payload.get("job_name"))
            else None
        )
        if why is not None:
            raise InvalidConfigError(why, task=operator.task_id)

    def _job(self) -> Any:
        payload = self._payload() or {}
        found = payload.get("job_id") or self._operator._hook.find_job_id_by_name(payload.get("job_name", ""))
        if found is None:
            raise InvalidConfigError(
                "Databricks has no such job", task=self._operator.task_id, job=payload.get("job_name")
            )
        return found


def _state_of(run: Mapping[str, Any]) -> DriverState:
    state = run["state"]
    words = [str(state[each]) for each in ("life_cycle_state", "result_state", "state_message") if state.get(each)]
    ended, well = words[0] in ENDED, state.get("result_state") == "SUCCESS"
    return DriverState(": ".join(words) if ended else words[0], not ended, well, str(run.get("run_page_url") or ""))
