"""`RestoreLatestCheckpointOperator`: settles pending checkpoints and reports where the job would start from."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from ..checkpoint.extensions.contracts import CheckpointListener, MasterHook, check_hooks, check_listeners
from ..checkpoint.extensions.master_hooks import close_all
from ..checkpoint.validation import check_spelling
from ..hooks.versions import RetryPolicy, policy_option
from ..tasks.extensions import master_hooks_of, tell_listeners
from ..tasks.job_settings import check_storage_and_job, naming, rendered_settings
from .failure.retry_policy import FAIL_FAST

if TYPE_CHECKING:
    from airflow.sdk import Context

log = logging.getLogger("airflow_cairn")


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
            log.info("Job %s: no completed checkpoint, the next epoch starts empty", settings.job)
        else:
            log.info("Job %s: the next epoch starts from checkpoint %d", settings.job, choice.pointer.checkpoint)
        return {
            "job": settings.job,
            "storage": str(settings.storage),
            "checkpoint": choice.pointer.checkpoint if choice.pointer else None,
            "damages": [str(damage) for damage in choice.damages],
        }
