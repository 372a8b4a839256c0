"""`SavepointOperator` and `DisposeSavepointOperator`: savepoints from any DAG (semantics P1, P3)."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.sdk import DAG, BaseOperator
from airflow.sdk.exceptions import AirflowRescheduleException

from ...checkpoint import system_runtime
from ...checkpoint.answers import FilesProgress
from ...checkpoint.documents import layout
from ...checkpoint.documents.attempt import run_text
from ...checkpoint.documents.entries import SavepointEntry
from ...checkpoint.documents.layout import check_job
from ...checkpoint.errors import CheckpointFailedError, InvalidConfigError, NoSavepointError
from ...checkpoint.reasons import Reason, Status, cause_first
from ...checkpoint.savepoints import disposal
from ...checkpoint.savepoints.disposal import HistoryRule
from ...checkpoint.savepoints.savepoint_format import open_named, savepoint_folder
from ...checkpoint.savepoints.savepoint_request import DEFAULT_TIMEOUT, SavepointRequest
from ...checkpoint.validation import check_seconds, check_spelling
from ...hooks.storage import CheckpointStorageHook
from ...hooks.versions import RetryPolicy, policy_option
from ...storage.names import check_storage_uri, shorten
from ...storage.port import ObjectStore
from ...tasks import metrics
from ...tasks.job_settings import (
    check_savepoint_target,
    check_storage_and_job,
    check_target_named,
    is_rendered_later,
    naming,
    naming_connections,
    rendered_settings,
)
from ...triggers.polling import why_failed
from ...triggers.savepoint import SavepointTrigger
from ..failure.retry_policy import FAIL_FAST

if TYPE_CHECKING:
    from airflow.sdk import Context

    from ...checkpoint import Coordinator

log = logging.getLogger("airflow_cairn")

_TENTHS = 10
"""Number of log lines about the progress of copying."""


class SavepointOperator(BaseOperator):
    """Takes a savepoint of a job (semantics P1, T4), from any DAG.

    For an idle job the task makes the savepoint at once, without Spark. If an epoch is in progress, or tables and
    two-phase sinks have still to commit what its checkpoint counts, the task waits for that without a worker slot. In a
    run of the job's own DAG it must not come before the task that completes the checkpoint: it would wait for its own
    run.

    A task instance has one savepoint, over all its tries: a try goes on where the one before stopped. After a failed
    savepoint the next try takes a new one.

    Args:
        storage: URI of the job's storage (templated).
        job: the job's name (templated).
        target: URI of a folder outside of the job's, in which the savepoint gets its own (templated); required.
        request_id: a repeated request with the same id returns the same savepoint (templated); None: one id for each
            task instance, `<dag_id>/<task_id>/<run_id>`, with the map index of a mapped task.
        aws_conn_id: Airflow connection of type `aws`, for `s3://` storage and target; None: boto3's own chain.
        target_aws_conn_id: another connection for the target; None: the same.
        timeout: a savepoint that is not complete after this time has failed; more than zero.
        parallel: number of files copied at once; at least 1.
        deferrable: wait for a running epoch in the triggerer; with False the task is rescheduled.
        poll_interval: seconds (or a timedelta) between two looks; more than 0.
        retries: tries after the first.
        retry_policy: fails the task at once if no retry would cure the error (semantics F4).
        **kwargs: arguments of every operator.

    Raises:
        InvalidConfigError: no storage, job or target is given, or an option is out of its bounds.
        InvalidKeyError: the job's name is outside the grammar (semantics W1), or the request id is invalid.
        RefusedError: the target lies in the job's own folder, or is the storage's root.
        UnsupportedStorageError: the storage's or the target's scheme is not supported.
    """

    template_fields: Sequence[str] = ("storage", "job", "target", "request_id")
    ui_color = "#e3d5bd"

    def __init__(
        self,
        *,
        storage: str | None = None,
        job: str | None = None,
        target: str | None = None,
        request_id: str | None = None,
        aws_conn_id: str | None = None,
        target_aws_conn_id: str | None = None,
        timeout: timedelta = DEFAULT_TIMEOUT,
        parallel: int = 8,
        deferrable: bool = True,
        poll_interval: timedelta | float = 5.0,
        retries: int = 2,
        retry_policy: RetryPolicy | None = FAIL_FAST,
        **kwargs: Any,
    ) -> None:
        check_spelling(type(self), kwargs, task=kwargs.get("task_id"))
        super().__init__(retries=retries, **policy_option(retry_policy), **kwargs)
        self.storage = storage
        self.job = job
        self.target = target
        self.request_id = request_id
        self.aws_conn_id = aws_conn_id
        self.target_aws_conn_id = target_aws_conn_id
        self.timeout = timeout
        self.parallel = parallel
        self.deferrable = deferrable
        check_storage_and_job(storage, job, task=self.task_id)
        with naming(task=self.task_id):
            self.poll_interval = check_seconds("poll_interval", poll_interval)
            known = None if is_rendered_later(request_id) else request_id
            SavepointRequest(None, known or "x", timeout, parallel)
        check_target_named(target, task=self.task_id)
        check_savepoint_target(target, storage, job, task=self.task_id)

    def execute(self, context: Context) -> dict[str, Any]:
        """Take the savepoint, or go on with it.

        Returns:
            The savepoint's folder (`savepoint`), its id, the job, its checkpoint and epoch, and the number of files and
            bytes.

        Raises:
            CheckpointFailedError: the savepoint failed.
            TaskDeferred: an epoch is in progress; the task goes on in the triggerer.
            AirflowRescheduleException: an epoch is in progress, and the task is not `deferrable`.
            RefusedError: the job refused the savepoint; nothing was opened.
            NoCheckpointError: the job has completed no checkpoint yet.
            ForbiddenError: a store refuses the connection's credentials.
        """
        return self._take(context, renew=True)

    def execute_complete(self, context: Context, event: dict[str, Any]) -> dict[str, Any]:
        """Ask again when the trigger reports that it is time.

        Args:
            context: Airflow's task context.
            event: the trigger's event.

        Returns:
            As `execute`.

        Raises:
            CheckpointFailedError: the trigger could not go on; also the errors of `execute`.
        """
        why = why_failed(event, "the epoch that the savepoint is to hold")
        if why is not None:
            raise CheckpointFailedError(why, code="savepoint_failed", job=self.job, kind=event.get("kind"))
        return self._take(context, renew=False)

    def request_for(self, context: Context, *, renew: bool) -> SavepointRequest:
        """Return the savepoint request for the job.

        Args:
            context: Airflow's task context.
            renew: whether a new request follows a failed one.
        """
        request_id = self.request_id or request_of(context["ti"])
        check_target_named(self.target, task=self.task_id)
        return SavepointRequest(self.target, request_id, self.timeout, self.parallel, renew)

    def _take(self, context: Context, *, renew: bool) -> dict[str, Any]:
        settings = rendered_settings(self)
        request = self.request_for(context, renew=renew)
        with naming_connections(**_conn_ids(self)):
            entry = settings.coordinator(waits=True).savepoint(request, self._opened, _Tenths(log.info))
        if not entry.ended:
            self._wait(entry, settings.coordinator())
        if entry.status is Status.FAILED:
            raise failed(entry, settings.job)
        log.info(
            "Savepoint %d of job %s: %s, %d files, %d bytes, up to epoch %s",
            entry.id,
            settings.job,
            entry.uri,
            entry.files,
            entry.size_bytes,
            run_text(layout.run_id_of(entry.epoch), entry.window),
        )
        if entry.owing:
            log.info("The savepoint holds what these stages have still to read: %s", ", ".join(entry.owing))
        return {
            "savepoint": entry.uri,
            "id": entry.id,
            "job": settings.job,
            "checkpoint": entry.source.checkpoint if entry.source else None,
            "epoch": entry.epoch,
            "files": entry.files,
            "size_bytes": entry.size_bytes,
        }

    def _opened(self, uri: str) -> ObjectStore:
        return CheckpointStorageHook(uri, self.target_aws_conn_id or self.aws_conn_id).open_store(waits=True)

    def _wait(self, entry: SavepointEntry, coordinator: Coordinator, recheck_interval: float = 0.0) -> NoReturn:
        log.info("The savepoint %s waits for %s", entry.uri, coordinator.awaited_by(entry))
        if not self.deferrable:
            raise AirflowRescheduleException(datetime.now(UTC) + timedelta(seconds=self.poll_interval))
        assert self.storage is not None
        assert self.job is not None
        trigger = SavepointTrigger(
            self.storage,
            self.job,
            entry.epoch,
            entry.request,
            self.aws_conn_id,
            self.poll_interval,
            recheck_interval,
        )
        self.defer(trigger=trigger, method_name="execute_complete")
        raise AssertionError("defer() does not return")


def failed(entry: SavepointEntry, job: str) -> CheckpointFailedError:
    """Return the error for a savepoint that has failed."""
    # IO_EXCEPTION means a damaged checkpoint, or a target folder with other files in it (`Savepoints.take`).
    return CheckpointFailedError(
        f"the savepoint failed: {cause_first(entry.detail, entry.reason)}",
        code="savepoint_impossible" if entry.reason is Reason.IO_EXCEPTION else "savepoint_failed",
        job=job,
        savepoint=entry.uri,
    )


def _conn_ids(task: SavepointOperator | DisposeSavepointOperator) -> dict[str, str | None]:
    """Return the connections with which a task reaches stores, by argument name."""
    named = {"aws_conn_id": task.aws_conn_id, "target_aws_conn_id": task.target_aws_conn_id}
    return {name: conn_id for name, conn_id in named.items() if conn_id is not None or name == "aws_conn_id"}


def request_of(ti: Any) -> str:
    """Return the request id of a task instance: the same in each of its tries."""
    mapped = "" if ti.map_index is None or ti.map_index < 0 else f"[{ti.map_index}]"
    return f"{ti.dag_id}/{ti.task_id}{mapped}/{ti.run_id}"


class _Tenths:
    """Logs the progress of copying, each tenth once."""

    def __init__(self, log: Any) -> None:
        self._log = log
        self._said = 0

    def __call__(self, progress: FilesProgress) -> None:
        tenth = progress.files_done * _TENTHS // progress.files
        if tenth > self._said:
            self._said = tenth
            self._log("copied %d of %d files, %d bytes", progress.files_done, progress.files, progress.bytes_done)


class DisposeSavepointOperator(BaseOperator):
    """Disposes of savepoints: a named one, or the old or surplus ones of a job (semantics P3).

    A savepoint that is still needed is not deleted. If it is the named one, the task fails with the reason; in a job's
    history it is left out, with a warning that gives the reason.

    Args:
        storage: URI of the storage; its jobs are asked whether they need a savepoint (templated).
        savepoint: the folder of the savepoint to dispose of (templated).
        force: dispose of it even if it is needed; the log says what is lost. Only with `savepoint`.
        job: the job whose old savepoints to dispose of (templated); not with `savepoint`.
        keep: number of newest savepoints to keep; at least 1.
        max_age: keep savepoints up to this age, and the newest in any case; more than zero.
        target: required with `job`: URI of the folder in which its savepoints were made (templated). Savepoints
            elsewhere stay.
        series: consider only savepoints whose request id has this prefix (templated); empty: all of the job's.
        aws_conn_id: Airflow connection of type `aws`, for storage and savepoints; None: boto3's own chain.
        target_aws_conn_id: another connection for the savepoints; None: the same.
        retry_policy: fails the task at once if no retry would cure the error (semantics F4).
        **kwargs: arguments of every operator.

    Raises:
        InvalidConfigError: the options do not say what to dispose of, no storage is given, or one is out of bounds.
        InvalidKeyError: the job's name is outside the grammar (semantics W1).
        UnsupportedStorageError: the storage's or the savepoint's scheme is not supported.
    """

    template_fields: Sequence[str] = ("storage", "job", "savepoint", "target", "series")
    ui_color = "#e3d5bd"

    def __init__(
        self,
        *,
        storage: str | None = None,
        savepoint: str | None = None,
        force: bool = False,
        job: str | None = None,
        keep: int | None = None,
        max_age: timedelta | None = None,
        target: str | None = None,
        series: str = "",
        aws_conn_id: str | None = None,
        target_aws_conn_id: str | None = None,
        retry_policy: RetryPolicy | None = FAIL_FAST,
        **kwargs: Any,
    ) -> None:
        check_spelling(type(self), kwargs, task=kwargs.get("task_id"))
        super().__init__(**policy_option(retry_policy), **kwargs)
        self.storage = storage
        self.savepoint = savepoint
        self.force = force
        self.job = job
        self.keep = keep
        self.max_age = max_age
        self.target = target
        self.series = series
        self.aws_conn_id = aws_conn_id
        self.target_aws_conn_id = target_aws_conn_id
        history = any(each is not None for each in (job, keep, max_age, target)) or bool(series)
        if (savepoint is None) is not history:
            raise InvalidConfigError(
                "give either the savepoint to dispose of, or the job whose history to cut, with keep or max_age",
                task=self.task_id,
            )
        if history and ((keep is None and max_age is None) or force):
            raise InvalidConfigError("force is for one savepoint; keep and max_age cut a history", task=self.task_id)
        check_storage_and_job(storage, "any" if savepoint is not None else job, task=self.task_id)
        if history:
            check_target_named(target, task=self.task_id)
            check_savepoint_target(target, storage, job, task=self.task_id)
        if not isinstance(force, bool):
            raise InvalidConfigError("force must be True or False", task=self.task_id, force=shorten(force))
        with naming(task=self.task_id):
            self._rule()
        if savepoint is not None and not is_rendered_later(savepoint):
            with naming(task=self.task_id, savepoint=shorten(savepoint)):
                savepoint_folder(savepoint)

    def execute(self, context: Context) -> dict[str, Any]:
        """Dispose of the savepoints.

        Returns:
            `disposed`: the deleted folders; `kept`: the savepoints that are still needed, each with the reason.

        Raises:
            RefusedError: the named savepoint is still needed.
            NoSavepointError: the savepoint does not exist, and no earlier try can have deleted it.
            CheckpointFailedError: a file could not be deleted.
            ForbiddenError: a store refuses the connection's credentials.
        """
        assert self.storage is not None
        store = CheckpointStorageHook(self.storage, self.aws_conn_id).open_store(waits=True)
        with naming_connections(**_conn_ids(self)):
            if self.savepoint is None:
                assert self.job is not None
                rule, runtime, target = self._rule(), system_runtime(), check_storage_uri(self.target)
                found = disposal.prune(
                    store, self.job, rule, target, self._opened, runtime, series=self.series, after_swap=metrics.report
                )
                disposed, kept = list(found.disposed), dict(found.kept)
            else:
                disposed, kept = self._one(store, self.savepoint, context), {}
        for uri, why in kept.items():
            log.warning("The savepoint %s was kept: %s", uri, why)
        left = [f"{each.uri}: {failure.key}: {failure.reason}" for each in disposed for failure in each.failures]
        if left:
            raise CheckpointFailedError(
                f"not everything could be deleted; the next try goes on with it: {left[0]}", code="savepoint_failed"
            )
        for each in disposed:
            log.info("Deleted: %s, %d files, %d bytes", each.uri, each.files, each.size_bytes)
            for why in each.against:
                log.warning("Disposed although %s", why)
        return {"disposed": [each.uri for each in disposed], "kept": kept}

    def _one(self, store: ObjectStore, uri: str, context: Context) -> list[disposal.Disposal]:
        try:
            folder = open_named(uri, self._opened)
            return [
                disposal.dispose(
                    store, folder, system_runtime(), self._opened, force=self.force, after_swap=metrics.report
                )
            ]
        except NoSavepointError:
            if context["ti"].try_number <= 1:
                raise
            log.info("There is no savepoint any more: %s", uri)
            return []

    def _opened(self, uri: str) -> ObjectStore:
        return CheckpointStorageHook(uri, self.target_aws_conn_id or self.aws_conn_id).open_store(waits=True)

    def _rule(self) -> HistoryRule:
        return HistoryRule(self.keep, self.max_age)


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
