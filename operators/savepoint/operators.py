"""`SavepointOperator` and `DisposeSavepointOperator`: savepoints from any DAG (semantics P1, P3)."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowRescheduleException

from ...checkpoint import system_runtime
from ...checkpoint.answers import FilesProgress
from ...checkpoint.documents import layout
from ...checkpoint.documents.entries import SavepointEntry
from ...checkpoint.documents.run_window import run_text
from ...checkpoint.errors import CheckpointError, InvalidConfigError, NoSavepointError
from ...checkpoint.reasons import Reason, Status
from ...checkpoint.savepoints import disposal
from ...checkpoint.savepoints.disposal import HistoryRule
from ...checkpoint.savepoints.savepoint_request import DEFAULT_TIMEOUT, SavepointRequest
from ...checkpoint.savepoints.savepoint_uri import open_named, savepoint_folder
from ...checkpoint.validation import check_spelling
from ...hooks.storage import CheckpointStorageHook
from ...hooks.versions.retry_policies import RetryPolicy, policy_option
from ...storage.errors import ErrorKind
from ...storage.names import shorten
from ...storage.port import ObjectStore
from ...storage.uris import check_storage_uri
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
from ..stage.curable import WHERE_A_RETRY_MAY_CURE
from ..trigger.checks import check_poll_interval

if TYPE_CHECKING:
    from airflow.sdk import Context

    from ...checkpoint import Coordinator

log = logging.getLogger("airflow_cairn")

_TENTHS = 10
"""How often the log says how far the copying is."""


class SavepointFailedError(CheckpointError):
    """The savepoint was not made; the text says why (semantics P1)."""

    kind = ErrorKind.CONFLICT


class SavepointUnmakableError(SavepointFailedError):
    """The savepoint cannot be made of what the job has: a file of its checkpoint is damaged (semantics P1)."""

    retry_cures = False


class SavepointOperator(BaseOperator):
    """Takes a savepoint of a job (semantics P1, T4); in a DAG of its own, or in any other.

    Of an idle job it is made here and now, without Spark. While an epoch is under way it waits for that, outside of any
    worker slot. In a run of the job's own DAG it must not stand before what completes the checkpoint: it would wait for
    its own run.

    A task instance has one savepoint, however often it is tried: a try goes on where the one before stopped. One that
    has failed is followed by another by the next try.

    Args:
        storage: URI of the storage that the job is in (templated).
        job: the job's name (templated).
        target: URI of the folder below which the savepoint gets its own (templated).
        request_id: the same one gives the same savepoint (templated); None: one for each task
            instance, of the form `<dag_id>/<task_id>/<run_id>`.
        aws_conn_id: Airflow connection of type `aws`, for `s3://` storage and target; None for boto3's own chain.
        target_aws_conn_id: another one for the target; None: the same.
        timeout: after this long a savepoint that is not complete has failed; more than zero.
        parallel: files that are copied at once; at least 1.
        deferrable: wait for a running epoch in the triggerer; with False the task is rescheduled.
        poll_interval: seconds (or a timedelta) between two looks; more than 0.
        retries: tries after the first.
        retry_policy: fails the task at once where no retry would cure the error (semantics F4).
        **kwargs: what every operator takes.

    Raises:
        InvalidConfigError: no storage, job or target is given, or an option is out of its bounds.
        InvalidNameError: the job's name is outside the grammar (semantics W1), or the request id is none.
        SavepointRefusedError: the target lies in the job's own folder, or is the storage's root.
        UnsupportedStorageError: the storage's or the target's scheme is none of ours.
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
        retry_policy: RetryPolicy | None = WHERE_A_RETRY_MAY_CURE,
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
            self.poll_interval = check_poll_interval(poll_interval)
            known = None if is_rendered_later(request_id) else request_id
            SavepointRequest(None, known or "x", timeout, parallel)
        check_target_named(target, task=self.task_id)
        check_savepoint_target(target, storage, job, task=self.task_id)

    def execute(self, context: Context) -> dict[str, Any]:
        """Take it, or go on with it.

        Returns:
            The savepoint's folder (`savepoint`), its id, the job, the checkpoint and the epoch that it holds, files and
            bytes.

        Raises:
            SavepointFailedError: it failed.
            TaskDeferred: an epoch is under way; goes on in the triggerer.
            AirflowRescheduleException: an epoch is under way, and it is not `deferrable`.
            SavepointRefusedError: it was refused; nothing was opened.
            NoCheckpointError: the job has completed nothing yet.
            ForbiddenError: a store refuses the connection's credentials.
        """
        return self._take(context, renew=True)

    def execute_complete(self, context: Context, event: dict[str, Any]) -> dict[str, Any]:
        """Ask again when the trigger says that it is time.

        Args:
            context: Airflow's.
            event: what the trigger yielded.

        Returns:
            As `execute`.

        Raises:
            SavepointFailedError: the trigger could not go on, or as of `execute`, whose other errors come too.
        """
        why = why_failed(event, "the epoch that the savepoint is to hold")
        if why is not None:
            raise SavepointFailedError(why, job=self.job, kind=event.get("kind"))
        return self._take(context, renew=False)

    def request_for(self, context: Context, *, renew: bool) -> SavepointRequest:
        """Give what is asked of the job.

        Args:
            context: Airflow's.
            renew: whether one that has failed is to be followed by another.
        """
        request_id = self.request_id or request_of(context["ti"])
        check_target_named(self.target, task=self.task_id)
        return SavepointRequest(self.target, request_id, self.timeout, self.parallel, renew)

    def _take(self, context: Context, *, renew: bool) -> dict[str, Any]:
        settings = rendered_settings(self)
        request = self.request_for(context, renew=renew)
        with naming_connections(**_conn_ids(self)):
            entry = settings.coordinator().savepoint(request, self._opened, _Tenths(log.info))
        if not entry.ended:
            self._wait(entry, settings.coordinator())
        if entry.status is Status.FAILED:
            raise failed(entry, settings.job)
        log.info(
            "savepoint %d of job %s: %s, %d files, %d bytes, up to epoch %s",
            entry.id,
            settings.job,
            entry.uri,
            entry.files,
            entry.size_bytes,
            run_text(layout.run_id_of(entry.epoch), entry.window),
        )
        if entry.owing:
            log.info("it holds what these stages have still to read: %s", ", ".join(entry.owing))
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
        return CheckpointStorageHook(uri, self.target_aws_conn_id or self.aws_conn_id).open_store()

    def _wait(self, entry: SavepointEntry, coordinator: Coordinator, recheck_interval: float = 0.0) -> NoReturn:
        log.info("the savepoint %s waits for %s", entry.uri, coordinator.awaited_by(entry))
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


def failed(entry: SavepointEntry, job: str) -> SavepointFailedError:
    """Give the error of a savepoint that has failed."""
    # What ends it so is a damaged checkpoint, or a folder with something else in it (`Savepoints.take`).
    cls = SavepointUnmakableError if entry.reason is Reason.IO_EXCEPTION else SavepointFailedError
    return cls(f"the savepoint failed: {entry.reason}: {entry.detail}", job=job, savepoint=entry.uri)


def _conn_ids(task: SavepointOperator | DisposeSavepointOperator) -> dict[str, str | None]:
    """Give the connections by which a task reaches stores, as its author has named them."""
    named = {"aws_conn_id": task.aws_conn_id, "target_aws_conn_id": task.target_aws_conn_id}
    return {name: conn_id for name, conn_id in named.items() if conn_id is not None or name == "aws_conn_id"}


def request_of(ti: Any) -> str:
    """Give the request id of a task instance: the same in each of its tries."""
    mapped = "" if ti.map_index is None or ti.map_index < 0 else f"[{ti.map_index}]"
    return f"{ti.dag_id}/{ti.task_id}{mapped}/{ti.run_id}"


class _Tenths:
    """Logs how far the copying is, each tenth once."""

    def __init__(self, log: Any) -> None:
        self._log = log
        self._said = 0

    def __call__(self, progress: FilesProgress) -> None:
        tenth = progress.files_done * _TENTHS // progress.files
        if tenth > self._said:
            self._said = tenth
            self._log("copied %d of %d files, %d bytes", progress.files_done, progress.files, progress.bytes_done)


class DisposeSavepointOperator(BaseOperator):
    """Disposes of savepoints: one, or those of a job that are too old or too many (semantics P3).

    One that is still needed is not deleted. If that is the one named, the task fails with the reason; of a history it
    is left out, and a warning says why.

    Args:
        storage: URI of the storage whose jobs are asked whether they need it (templated).
        savepoint: the folder of the one to dispose of (templated).
        force: also if it is needed. Only with `savepoint`.
        job: whose history to cut (templated); not with `savepoint`.
        keep: so many of the newest savepoints stay; at least 1.
        max_age: those that are not older than this stay; more than zero.
        target: with `job`: URI of the folder in which its savepoints were made (templated). Those elsewhere stay.
        series: only savepoints count whose request id begins so (templated); empty: all of the job's.
        aws_conn_id: Airflow connection of type `aws`, for storage and savepoints; None for boto3's own chain.
        target_aws_conn_id: another one for the savepoints; None: the same.
        retry_policy: fails the task at once where no retry would cure the error (semantics F4).
        **kwargs: what every operator takes.

    Raises:
        InvalidConfigError: it is not clear what to dispose of, no storage is given, or an option is out of its bounds.
        InvalidNameError: the job's name is outside the grammar (semantics W1).
        UnsupportedStorageError: the storage's or the savepoint's scheme is none of ours.
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
        retry_policy: RetryPolicy | None = WHERE_A_RETRY_MAY_CURE,
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
        """Dispose of them.

        Returns:
            `disposed`: the folders that were deleted; `kept`: those that are still needed, each with why.

        Raises:
            SavepointRefusedError: the one named is still needed.
            NoSavepointError: there is none, and no earlier try can have deleted it.
            SavepointFailedError: something could not be deleted.
            ForbiddenError: a store refuses the connection's credentials.
        """
        assert self.storage is not None
        store = CheckpointStorageHook(self.storage, self.aws_conn_id).open_store()
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
            log.warning("kept: %s: %s", uri, why)
        left = [f"{each.uri}: {failure.key}: {failure.reason}" for each in disposed for failure in each.failures]
        if left:
            raise SavepointFailedError(f"not everything could be deleted; the next try goes on with it: {left[0]}")
        for each in disposed:
            log.info("deleted: %s, %d files, %d bytes", each.uri, each.files, each.size_bytes)
            for why in each.against:
                log.warning("although %s", why)
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
            log.info("there is no savepoint any more: %s", uri)
            return []

    def _opened(self, uri: str) -> ObjectStore:
        return CheckpointStorageHook(uri, self.target_aws_conn_id or self.aws_conn_id).open_store()

    def _rule(self) -> HistoryRule:
        return HistoryRule(self.keep, self.max_age)
