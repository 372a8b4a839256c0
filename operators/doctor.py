"""`CairnDoctorOperator`: checks a storage, and the worker that the task runs on, as `cairn doctor` does."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, get_args

from airflow.sdk import BaseOperator

from ..checkpoint import system_runtime
from ..checkpoint.errors import CheckpointError, InvalidConfigError
from ..checkpoint.health.examine import examine_storage
from ..checkpoint.health.findings import Severity
from ..checkpoint.validation import check_choice, check_span, check_spelling
from ..hooks.airflow_api import AIRFLOW_API_CONN_ID
from ..hooks.storage import CheckpointStorageHook
from ..tables.declared import Declared, check_tables
from ..tasks.health.examine import examine_worker

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
        cluster: check the Spark, Java and Python of the cluster too, with a small application that runs there for at
            most five minutes, of a service or in deploy mode `cluster` 20.
        spark_conn_id: with `cluster`: the Spark connection of the stages, of type `spark` or `spark_connect`;
            `spark_default` by default.
        stage: with `cluster`, in place of a connection: the task id of a stage of this DAG. The application starts as
            the stage does. On a service, and in deploy mode `cluster`, the driver looks at the storage too.
        tables: those of a group, to check each with its connection.
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
            log.info("Not checked: %s: %s", name, reason)
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
