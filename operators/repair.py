"""Operators for repair DAGs: one runs `cairn doctor`, the other restores before stages are cleared."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, get_args

from airflow.sdk import BaseOperator

from ..checkpoint import system_runtime
from ..checkpoint.errors import CheckpointError, InvalidConfigError
from ..checkpoint.extensions.contracts import CheckpointListener, MasterHook, check_hooks, check_listeners
from ..checkpoint.extensions.master_hooks import close_all
from ..checkpoint.health.examine import examine_storage
from ..checkpoint.health.findings import Severity
from ..checkpoint.validation import check_choice, check_span, check_spelling
from ..hooks.airflow_api import AIRFLOW_API_CONN_ID
from ..hooks.storage import CheckpointStorageHook
from ..hooks.versions import RetryPolicy, policy_option
from ..tables.declared import Declared, check_tables
from ..tasks.extensions import master_hooks_of, tell_listeners
from ..tasks.health.examine import examine_worker
from ..tasks.job_settings import check_storage_and_job, naming, rendered_settings
from .failure.retry_policy import FAIL_FAST

if TYPE_CHECKING:
    from airflow.sdk import Context

    from ..tasks.health.facts import ClusterFacts, NoAnswer

log = logging.getLogger("airflow_cairn")

FailOn = Literal["error", "warning", "never"]
_FAIL_ON = get_args(FailOn)


class CairnDoctorOperator(BaseOperator):
    """Runs the checks of `cairn doctor` with the connections, the Spark and the Airflow of this task.

    Args:
        storage: storage URI (templated).
        job: the only job to check (templated); None: all.
        aws_conn_id: Airflow connection of type `aws` for an `s3://` storage; None: boto3's own chain.
        airflow_api_conn_id: the connection to Airflow's API. If it is None, or is not defined, no check asks the API.
        spark_conf: conf that the stages get besides the site's defaults, such as `spark.jars.packages`.
        dag_to_check: a DAG that must exist and not be paused; needs the connection (templated).
        max_age: maximum age of the latest completed checkpoint of each job; None: any age.
        read_only: write nothing to the storage; skips the checks of write access and of conditional writes.
        cluster: check the Spark, Java and Python of the cluster too, by a small application that runs there for at most
            five minutes, or 20 on a service and in deploy mode `cluster`.
        spark_conn_id: with `cluster`: the Spark connection of the stages, of type `spark` or `spark_connect`;
            `spark_default` by default.
        stage: with `cluster`, in place of a connection: the task id of a stage of this DAG. The application starts as
            the stage does. On a service, and in deploy mode `cluster`, the driver looks at the storage too.
        tables: the `tables` of a group, each checked with its connection.
        fail_on: `"error"`, `"warning"` or `"never"`: the lowest severity of a finding that fails the task, with
            `CheckpointError` (`unhealthy`).
        **kwargs: arguments of every operator.

    Raises:
        InvalidConfigError: no storage is given, `spark_conn_id` or `stage` is given without `cluster`, both are given,
            `fail_on` has another value, or `tables` holds something else.
        UnsupportedStorageError: the storage's scheme is not supported.
    """

    template_fields: Sequence[str] = ("storage", "job", "dag_to_check")
    ui_color = "#e3d5bd"

    def __init__(
        self,
        *,
        storage: str | None = None,
        job: str | None = None,
        aws_conn_id: str | None = None,
        airflow_api_conn_id: str | None = AIRFLOW_API_CONN_ID,
        spark_conf: Mapping[str, str] | None = None,
        dag_to_check: str | None = None,
        max_age: timedelta | None = None,
        read_only: bool = False,
        cluster: bool = False,
        spark_conn_id: str | None = None,
        stage: str | None = None,
        tables: Mapping[str, Declared] | None = None,
        fail_on: FailOn = "error",
        **kwargs: Any,
    ) -> None:
        check_spelling(type(self), kwargs, task=kwargs.get("task_id"))
        super().__init__(**kwargs)
        check_choice("fail_on", fail_on, _FAIL_ON, task=self.task_id)
        if max_age is not None:
            check_span("max_age", max_age, task=self.task_id)
        if spark_conn_id is not None and not cluster:
            raise InvalidConfigError(
                "spark_conn_id names the cluster that cluster=True asks; give cluster=True too", task=self.task_id
            )
        if stage is not None and (not cluster or spark_conn_id is not None):
            raise InvalidConfigError(
                "stage names the stage by which cluster=True asks; give cluster=True and no spark_conn_id",
                task=self.task_id,
            )
        if not storage:
            raise InvalidConfigError("no storage is given: write storage='s3://bucket/prefix'", task=self.task_id)
        if "{{" not in storage:
            CheckpointStorageHook(storage, aws_conn_id)
        self.storage = storage
        self.job = job
        self.aws_conn_id = aws_conn_id
        self.airflow_api_conn_id = airflow_api_conn_id
        self.spark_conf = dict(spark_conf or {})
        self.dag_to_check = dag_to_check
        self.max_age = max_age
        self.read_only = read_only
        self.cluster = cluster
        self.spark_conn_id = spark_conn_id or "spark_default"
        self.stage = stage
        self.tables = check_tables(tables)
        self.fail_on = fail_on

    def execute(self, context: Context) -> dict[str, Any]:
        """Run every check.

        Returns:
            The JSON document that `cairn doctor --json` prints.

        Raises:
            CheckpointError: a finding is at least as severe as `fail_on`.
            NoCheckpointError: the storage has no such job.
            InvalidConfigError: the DAG has no such stage.
        """
        ask = partial(self._ask, context) if self.stage is not None or not self.read_only else None
        hook = CheckpointStorageHook(self.storage, self.aws_conn_id)
        found = examine_storage(
            hook.open_store(),
            system_runtime(),
            self.job,
            write=not self.read_only,
            max_age_ms=self.max_age // timedelta(milliseconds=1) if self.max_age else None,
            before_jobs=True,
        )
        found.add(
            examine_worker(
                s3=hook.is_s3,
                spark_conf=self.spark_conf,
                airflow_api_conn_id=self.airflow_api_conn_id,
                dag_id=self.dag_to_check,
                cluster=(self.stage or self.spark_conn_id) if self.cluster else None,
                ask=ask,
            )
        )
        if self.tables:
            from ..hooks.table_access import examined  # most DAG files have no tables

            found.add(examined(self.tables, write=not self.read_only))
        for each in found.sorted():
            log.info(
                "Finding %s %s: %s: %s. Why it matters: %s. To mend it: %s",
                each.severity.upper(),
                each.name,
                each.subject,
                each.what,
                each.why,
                each.mend,
            )
        for name, reason in found.skipped.items():
            log.info("The check %s was skipped: %s", name, reason)
        for hint in found.hints:
            log.info("Hint: %s", hint)
        bad = [each for each in found.sorted() if self.fail_on == "warning" or each.severity is Severity.ERROR]
        if bad and self.fail_on != "never":
            raise CheckpointError(
                "the doctor has found "
                + ", ".join(f"{each.name} ({each.subject})" for each in bad)
                + "; the log says what mends each",
                code="unhealthy",
                storage=self.storage,
            )
        return found.as_json()

    def _ask(self, context: Context) -> ClusterFacts | NoAnswer:
        from .stage.trial import ask_by_connection, ask_by_stage, stage_in

        if self.stage is not None:
            return ask_by_stage(stage_in(self.dag, self.stage), self.spark_conf, context)
        return ask_by_connection(
            self.spark_conn_id, self.spark_conf, storage=self.storage, aws_conn_id=self.aws_conn_id
        )


class RestoreLatestCheckpointOperator(BaseOperator):
    """Aborts pending checkpoints and finds the newest intact completed checkpoint (semantics R1, R2, R5).

    Every epoch restores by itself. This task is for repair DAGs: run it before a user clears stages, or to check that
    the job has a checkpoint to restore.

    Args:
        storage: storage URI (templated).
        job: the job's name (templated); the DAG's id by default.
        aws_conn_id: Airflow connection of type `aws` for an `s3://` storage; None: boto3's own chain.
        required: fail with `NoCheckpointError` if the job has no completed checkpoint.
        master_hooks: the job's master hooks; they are restored too, or reset if there is no checkpoint. Hooks of
            installed packages are added.
        listeners: the job's listeners; they are notified of aborted checkpoints. Listeners of installed packages are
            added.
        allow_non_restored_state: drop state that no master hook claims (semantics T7).
        retry_policy: fails the task at once if no retry would cure the error (semantics F4).
        **kwargs: arguments of every operator.

    Raises:
        InvalidConfigError: no storage is given, or `master_hooks` or `listeners` holds an object of another type.
        InvalidKeyError: the job's name is outside the grammar (semantics W1).
        UnsupportedStorageError: the storage's scheme is not supported.
    """

    template_fields: Sequence[str] = ("storage", "job")
    ui_color = "#e3d5bd"

    def __init__(
        self,
        *,
        storage: str | None = None,
        job: str | None = None,
        aws_conn_id: str | None = None,
        required: bool = False,
        master_hooks: Sequence[MasterHook] | None = None,
        listeners: Sequence[CheckpointListener] | None = None,
        allow_non_restored_state: bool = False,
        retry_policy: RetryPolicy | None = FAIL_FAST,
        **kwargs: Any,
    ) -> None:
        check_spelling(type(self), kwargs, task=kwargs.get("task_id"))
        super().__init__(**policy_option(retry_policy), **kwargs)
        self.storage = storage
        self.job = job or (self.dag.dag_id if self.has_dag() else None)
        self.aws_conn_id = aws_conn_id
        self.required = required
        with naming(task=self.task_id):
            self.master_hooks = check_hooks(master_hooks, 1)
            self.listeners = check_listeners(listeners)
        self.allow_non_restored_state = allow_non_restored_state
        check_storage_and_job(self.storage, self.job, task=self.task_id)

    def execute(self, context: Context) -> dict[str, Any]:  # noqa: ARG002 - Airflow's signature
        """Settle pending checkpoints, and find the checkpoint to restore.

        Returns:
            Job, storage, the checkpoint to restore (None: the job starts empty), and the damages of newer checkpoints.

        Raises:
            NoCheckpointError: `required` is set and the job has none, or every retained one is damaged.
            InvalidStateError: the checkpoint holds state that no master hook claims, and that is not allowed.
            CallbackError: a master hook failed or was too slow; or a listener failed; its notice is kept.
            ForbiddenError: the store refuses the connection's credentials.
            UnreachableError: the bucket does not exist.
        """
        settings = rendered_settings(self)
        hooks = master_hooks_of(settings.job, self.master_hooks, 1)
        allowed = self.allow_non_restored_state
        try:
            with settings.naming_connection():
                coordinator = settings.coordinator(waits=True)
                choice = coordinator.restore_latest(required=self.required)
                coordinator.restore_hooks(choice, hooks, allow_non_restored_state=allowed)
                tell_listeners(coordinator, self.listeners)
        finally:
            close_all(hooks)
        for damage in choice.damages:
            log.warning("Not restored, because it is damaged: %s", damage)
        if choice.pointer is None:
            log.info("Job %s has no completed checkpoint: the next epoch starts empty", settings.job)
        else:
            log.info("The next epoch of job %s starts from checkpoint %d", settings.job, choice.pointer.checkpoint)
        return {
            "job": settings.job,
            "storage": str(settings.storage),
            "checkpoint": choice.pointer.checkpoint if choice.pointer else None,
            "damages": [str(damage) for damage in choice.damages],
        }
