"""`savepoint_dag`: a DAG that takes savepoints of a job on a schedule and keeps the newest (semantics P1, P3)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.sdk import DAG

from ...checkpoint.documents.layout import check_job
from ...checkpoint.errors import InvalidConfigError
from ...checkpoint.validation import check_spelling
from .operators import DisposeSavepointOperator, SavepointOperator

TAKE = "take_savepoint"
DISPOSE = "dispose_of_old_ones"


def savepoint_dag(
    job: str,
    schedule: Any,
    target: str | None = None,
    *,
    storage: str | None = None,
    keep: int | None = 7,
    max_age: timedelta | None = None,
    aws_conn_id: str | None = None,
    target_aws_conn_id: str | None = None,
    dag_id: str | None = None,
    **dag_options: Any,
) -> DAG:
    """Make a DAG with two tasks: one takes a savepoint, the other disposes of old ones.

    The job may be idle, and pausing this DAG does not pause the job. The DAG counts and deletes only
    savepoints that it has taken itself. Assign the result to a name at the top level of a DAG file.

    Args:
        job: the job's name.
        schedule: the DAG's schedule, such as `"@daily"`.
        target: URI of the folder below which each savepoint gets its own.
        storage: URI of the job's storage.
        keep: number of newest savepoints to keep; at least 1. None: any number.
        max_age: keep savepoints up to this age; more than zero. None: any age.
        aws_conn_id: Airflow connection of type `aws`, for `s3://` storage and target; None: boto3's own chain.
        target_aws_conn_id: another connection for the target; None: the same.
        dag_id: the DAG's id; `<job>-savepoints` by default.
        **dag_options: further arguments of `DAG`. By default the DAG does not catch up, and has one run at a time.

    Raises:
        InvalidConfigError: an option is misspelt or out of its bounds, or no storage is given.
        InvalidKeyError: the job's name is outside the grammar (semantics W1).
        RefusedError: the target lies in the job's own folder, or is the storage's root.
        UnsupportedStorageError: the storage's or the target's scheme is not supported.
    """
    check_spelling(savepoint_dag, dag_options, DAG, dag=dag_id or f"{job}-savepoints")
    if not storage:
        raise InvalidConfigError("no storage is given: write storage='s3://bucket/prefix'", job=job)
    options = {"catchup": False, "max_active_runs": 1, **dag_options}
    with DAG(dag_id or f"{check_job(job)}-savepoints", schedule=schedule, **options) as dag:
        take = SavepointOperator(
            task_id=TAKE,
            storage=storage,
            job=job,
            target=target,
            aws_conn_id=aws_conn_id,
            target_aws_conn_id=target_aws_conn_id,
        )
        if keep is not None or max_age is not None:
            take >> DisposeSavepointOperator(
                task_id=DISPOSE,
                storage=storage,
                job=job,
                keep=keep,
                max_age=max_age,
                target=target,
                series=f"{dag.dag_id}/{TAKE}/",
                aws_conn_id=aws_conn_id,
                target_aws_conn_id=target_aws_conn_id,
            )
    return dag
