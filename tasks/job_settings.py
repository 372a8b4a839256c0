"""A job and its storage: three arguments that every operator, sensor and trigger of Cairn has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field
from typing import Any, Protocol

from airflow.sdk import XComArg
from airflow.sdk.log import redact  # type: ignore[attr-defined]  # re-imported there, but public

from .. import checkpoint
from ..checkpoint import masking
from ..checkpoint.documents import layout
from ..checkpoint.documents.layout import check_job
from ..checkpoint.errors import InvalidConfigError
from ..checkpoint.extensions.contracts import CheckpointListener
from ..checkpoint.savepoints.savepoint_request import check_target
from ..hooks.airflow_api import AIRFLOW_API_CONN_ID
from ..hooks.storage import CheckpointStorageHook
from ..storage.errors import CairnError, ForbiddenError
from ..storage.facts import facts_of
from ..storage.names import MAX_KEY_BYTES, StorageUri, check_storage_uri, parse_storage_uri, shorten
from ..storage.open import check_packages
from ..storage.port import ObjectStore
from ..storage.records import dataclass
from . import metrics
from .connect_session import ConnectSession
from .messages import then_clear

# What an author's source, hook or listener has fetched from Airflow may stand in its error, which the store keeps.
masking.MORE.append(lambda text: str(redact(text)))

SPARK_CONN_ID = "spark_default"
"""The default Spark connection of stages."""


@dataclass(frozen=True, slots=True)
class CheckpointScope:
    """Options that a `CheckpointedTaskGroup` passes to the tasks in it."""

    group_id: str
    storage: str
    job: str
    aws_conn_id: str | None
    conn_id: str
    wait_task_id: str
    """The task that completes the checkpoint."""
    listeners: tuple[CheckpointListener, ...] = ()
    """Listeners that are notified how checkpoints ended."""
    airflow_api_conn_id: str | None = AIRFLOW_API_CONN_ID
    """The connection to Airflow's API that clears tasks; None: a user clears them."""
    session: ConnectSession | None = None
    """The server that Cairn runs for the stages; None: each stage uses its connection."""
    defaults: Mapping[str, Any] = field(default_factory=dict, compare=False)
    """The connections in `default_args` around the group, by argument name."""
    not_secret: tuple[str, ...] = ()
    """Names of the stages' settings that the author declares not secret."""
    pipelined: set[tuple[str, str]] = field(default_factory=set, compare=False)
    """Edges that `Pipelined` marks, by the ids of their tasks; more are added while the DAG is built (semantics F1)."""

    def own(self, argument: str, value: Any) -> Any:
        """Return a task's own connection; None if it is the group's, or from `default_args` around the group."""
        return None if value in (getattr(self, argument), self.defaults.get(argument)) else value


def scope_of(task_group: Any) -> CheckpointScope | None:
    """Return the scope of the nearest enclosing `CheckpointedTaskGroup`; None outside a group."""
    while task_group is not None:
        scope = getattr(task_group, "checkpoint_scope", None)
        if isinstance(scope, CheckpointScope):
            return scope
        task_group = task_group.parent_group
    return None


@dataclass(frozen=True, slots=True)
class JobSettings:
    """A job and its storage, rendered and checked."""

    storage: StorageUri
    job: str
    aws_conn_id: str | None = None

    def hook(self) -> CheckpointStorageHook:
        return CheckpointStorageHook(self.storage, self.aws_conn_id)

    def coordinator(self, store: ObjectStore | None = None, *, waits: bool = False) -> checkpoint.Coordinator:
        """Return the job's coordinator, which reports its decisions to Airflow's metrics.

        With `waits`, wait for a storage that temporarily refuses; see `CheckpointStorageHook.open_store`.
        """
        return checkpoint.Coordinator(store or self.hook().open_store(waits=waits), self.job, after_swap=metrics.report)

    @contextmanager
    def naming_connection(self) -> Iterator[None]:
        """Add the connection's id to a bucket store's refusal that is raised in the block."""
        with naming_connections(aws_conn_id=self.aws_conn_id):
            yield


@contextmanager
def naming_connections(**conn_ids: str | None) -> Iterator[None]:
    """Add the connections, the store's own chain if there is none, and the remedy to a refusal in the block.

    Raises:
        ForbiddenError: the block's own error, with the connections' ids.
    """
    try:
        yield
    except ForbiddenError as error:
        store = str(error.fields.get("store", ""))
        if not store.startswith(("s3://", "gs://", "abfss://")):
            raise
        whose = {name: conn_id or f"none, so {facts_of(store).own_chain}" for name, conn_id in conn_ids.items()}
        raise ForbiddenError(then_clear(error.message), **{**error.fields, **whose}) from error


def is_rendered_later(value: object) -> bool:
    """Return whether a value is known only at run time: a Jinja template or another task's result."""
    return isinstance(value, XComArg) or (isinstance(value, str) and ("{{" in value or "{%" in value))


class NamesJob(Protocol):
    """A task or group with a job and a storage, as the DAG file declares them."""

    @property
    def storage(self) -> str | None:
        """The storage's URI, or a template of it."""

    @property
    def job(self) -> str | None:
        """The job's name, or a template of it."""


def is_same_job(one: NamesJob, other: NamesJob) -> bool:
    """Return whether two tasks name one job, however they spell its storage; a template equals only the same text."""
    return one.job == other.job and _place(one.storage) == _place(other.storage)


def _place(storage: str | None) -> StorageUri | str | None:
    return storage if storage is None or is_rendered_later(storage) else parse_storage_uri(storage)


@contextmanager
def naming(**where: str | None) -> Iterator[None]:
    """Add the task or group to an error of Cairn that is raised in the block.

    Raises:
        CairnError: the block's own error, of the same class, with these facts added.
    """
    try:
        yield
    except CairnError as error:
        raise type(error)(error.message, code=error.code, **{**where, **error.fields}) from None


def check_storage_and_job(storage: object, job: object, **where: str | None) -> None:
    """Check storage and job when the DAG is parsed, as far as known (semantics W1); `where` is for error messages.

    Raises:
        InvalidConfigError: storage or job is missing.
    """
    if storage is None:
        raise InvalidConfigError(
            "no storage is given: put the task into a CheckpointedTaskGroup, or give storage='s3://bucket/prefix', "
            "'gs://bucket/prefix' or 'file:///folder'",
            **where,
        )
    if job is None:
        raise InvalidConfigError("no job is given: put the task into a DAG, or give job='name'", **where)
    with naming(**where):
        if not is_rendered_later(storage):
            check_packages(parse_storage_uri(storage))
        if not is_rendered_later(job):
            check_job(job)  # type: ignore[arg-type]  # any type may come; the check refuses all but texts


def check_target_named(target: object, **where: str | None) -> None:
    """Refuse a task without a target for savepoints: a target that only the job's record names is not used (W10).

    Raises:
        InvalidConfigError: no target is given.
    """
    if not target:
        raise InvalidConfigError(
            "no target is given: write target='s3://bucket/prefix', the folder in which the job's savepoints are made",
            **where,
        )


def check_savepoint_target(target: object, storage: object, job: object, **where: str | None) -> None:
    """Check the target of savepoints, as far as it is known when the DAG is parsed (semantics P1).

    The target is the URI of the folder below which each savepoint gets its own; None: no target.
    """
    if target is None or is_rendered_later(target):
        return
    with naming(**where, target=shorten(target)):
        folder = check_storage_uri(target)
    if not is_rendered_later(storage) and not is_rendered_later(job):
        check_target(folder, check_storage_uri(storage), str(job), **where)


def check_room(storage: object, job: object, stage: str, **where: str | None) -> None:
    """Check that the keys of a stage's files are not too long for a bucket; pure, as soon as storage and job are known.

    Raises:
        InvalidConfigError: a key may become too long, so that a write would fail late.
    """
    if is_rendered_later(storage) or is_rendered_later(job):
        return
    root = parse_storage_uri(storage)
    if root.scheme == "file":
        return
    size = len(root.path.encode()) + 1 + layout.longest_key(str(job), stage)
    if size > MAX_KEY_BYTES:
        raise InvalidConfigError(
            "the storage's prefix, the job's name and the stage's uid are too long together: a bucket "
            f"takes keys of {MAX_KEY_BYTES} bytes. Make them shorter by {size - MAX_KEY_BYTES} characters",
            **where,
            storage=str(root),
            job=str(job),
            uid=stage,
        )


def rendered_settings(task: Any) -> JobSettings:
    """Return the rendered settings of a running task."""
    return JobSettings(parse_storage_uri(task.storage), check_job(task.job), task.aws_conn_id)
