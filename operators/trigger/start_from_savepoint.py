"""Starts a job from a savepoint: before its first epoch, or when a run's conf asks for it (R1, R3, R6)."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from ...checkpoint.documents.head import Head, run_of_head
from ...checkpoint.documents.layout import epoch_name
from ...checkpoint.errors import InvalidConfigError
from ...checkpoint.savepoints.savepoint_format import open_named, savepoint_folder
from ...checkpoint.savepoints.savepoint_request import ImportOptions, JobShape, Started, is_in_job
from ...storage.names import parse_storage_uri, same_place, shorten
from ...storage.port import ObjectStore
from ...storage.records import dataclass
from ...tasks.job_settings import JobSettings, is_rendered_later, naming

if TYPE_CHECKING:
    from airflow.sdk import Context

    from ...checkpoint import Coordinator

log = logging.getLogger("airflow_cairn")

CONF_KEY = "cairn"
"""The key of a DAG run's conf that holds Cairn's options."""

_FROM, _ALLOW, _CLAIM, _AGAIN = "restore_from", "allow_non_restored_state", "claim", "read_again"


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Cairn's options of a DAG, or of a DAG run's conf."""

    restore_from: str | None = None
    """The folder of the savepoint that the job starts from."""
    allow_non_restored_state: bool = False
    """Allow non-restored state, for this start only (semantics R3)."""
    claim: bool = False
    """Claim mode: the job owns the savepoint, and deletes it once it has a copy (semantics R6)."""
    read_again: bool = False
    """Whether the run reads its whole window, even if the job has read part of it (semantics T8)."""


def check_options(options: RunOptions, storage: object, job: object, **where: str | None) -> RunOptions:
    """Check a DAG's options about its start, without opening the savepoint; `where` is for error messages.

    Raises:
        InvalidConfigError: the savepoint lies in the job's own prefix, or options are given without a savepoint.
    """
    for name in (_ALLOW, _CLAIM):
        value = getattr(options, name)
        if not isinstance(value, bool):
            raise InvalidConfigError(f"{name} must be True or False", **where, **{name: shorten(value)})
        if value and options.restore_from is None:
            raise InvalidConfigError(
                f"{name} is about a savepoint to start from: give restore_from too, or leave it out", **where
            )
    check_restore_from(options.restore_from, storage, job, **where)
    return options


def check_restore_from(restore_from: object, storage: object, job: object, **where: str | None) -> None:
    """Check a savepoint's URI without opening the savepoint; `where` is for error messages.

    Raises:
        InvalidConfigError: the folder lies in the job's own prefix.
    """
    if restore_from is None or is_rendered_later(restore_from):
        return
    with naming(**where, restore_from=shorten(restore_from)):
        folder = savepoint_folder(restore_from)
    if is_rendered_later(storage) or is_rendered_later(job):
        return
    root = str(parse_storage_uri(storage))
    if is_in_job(folder, root, str(job)):
        raise InvalidConfigError(
            "restore_from lies in the job's own prefix, which the job cleans. Name a savepoint's folder elsewhere",
            **where,
            restore_from=folder,
            prefix=f"{root}/{job}",
        )


def options_of(conf: object) -> RunOptions:
    """Read Cairn's options in a DAG run's conf: the object under `cairn`.

    Raises:
        InvalidConfigError: `cairn` is no object, or an entry is unknown or has another type.
    """
    found = conf.get(CONF_KEY) if isinstance(conf, Mapping) else None
    if found is None:
        return RunOptions()
    types = {_FROM: str, _ALLOW: bool, _CLAIM: bool, _AGAIN: bool}
    if not isinstance(found, Mapping) or not found.keys() <= types.keys():
        raise InvalidConfigError(
            f"dag_run.conf[{CONF_KEY!r}] must be an object that has no other fields than {', '.join(types)}",
            conf=shorten(found),
        )
    for name, value in found.items():
        if not isinstance(value, types[name]):
            raise InvalidConfigError(
                f"dag_run.conf[{CONF_KEY!r}][{name!r}] must be a {types[name].__name__}", conf=shorten(value)
            )
    options = RunOptions(found.get(_FROM), found.get(_ALLOW, False), found.get(_CLAIM, False), found.get(_AGAIN, False))
    if options.restore_from is None and found.keys() - {_AGAIN}:
        raise InvalidConfigError(f"dag_run.conf[{CONF_KEY!r}] says how to start and not from what: give {_FROM!r} too")
    return options


def start_if_asked(
    context: Context, settings: JobSettings, coordinator: Coordinator, dag: RunOptions, runs: JobShape
) -> Started | None:
    """Start the job from a savepoint, if this run's conf asks for it, or if the DAG does and the job is new.

    The conf applies only before the run's first checkpoint request: a retry or a clear does not start from the
    savepoint again.

    Args:
        context: Airflow's task context.
        settings: the job; its connection reads the savepoint too.
        coordinator: the job's coordinator.
        dag: the DAG's options.
        runs: the job's stages; a savepoint that does not fit is refused, and nothing changes.

    Returns:
        The start; None if there was nothing to do.

    Raises:
        InvalidStateError: the savepoint holds state that nothing claims (semantics R3); or a stage cannot be restored
            at its parallelism (semantics R4).
    """
    said = options_of(context["dag_run"].conf)
    if said.restore_from is not None:
        if not coordinator.is_new_epoch(epoch_name(context["ti"].run_id)):
            return None
    elif dag.restore_from is None or not _concerns(coordinator.head(), dag.restore_from):
        return None
    options = dag if said.restore_from is None else said
    how = ImportOptions(options.allow_non_restored_state, options.claim, only_if_new=options is dag)
    check_restore_from(options.restore_from, settings.storage, settings.job)

    def opened(uri: str) -> ObjectStore:
        return replace(settings, storage=parse_storage_uri(uri)).hook().open_store(waits=True)

    folder = open_named(options.restore_from, opened)
    log.info("Starting %s from the savepoint %s", settings.job, folder.uri)
    before = coordinator.head()
    found = coordinator.start_from(folder, how, runs=runs, open_folder=opened)
    if found.allowed:
        log.info("The job has started from this savepoint before; this run now allows non-restored state")
    if not found.created:
        log.info("No savepoint was copied: the job is not new. Its latest checkpoint is %d", found.checkpoint)
        return found
    log.info("Copied as checkpoint %d: %d files, %d bytes", found.checkpoint, found.files, found.size_bytes)
    for epoch in (*found.gave_up.epochs, *found.gave_up.pending_epochs):
        log.warning("DAG run %s is not part of the savepoint and must run again", run_of_head(before, epoch))
    return found


def _concerns(head: Head, restore_from: str) -> bool:
    """Tell whether the job starts from its DAG's savepoint: it is new, or crashed before it deleted a claimed one."""
    if not head.completed:
        return True
    newest = head.import_of(head.completed[-1].id)
    return newest is not None and newest.claimed and same_place(newest.origin.uri, savepoint_folder(restore_from))
