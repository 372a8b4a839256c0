"""Where a savepoint must not lie, as far as names alone tell (semantics P1, C3). Pure."""

from __future__ import annotations

from ...storage.uris import parse_storage_uri, same_place
from ..errors import RefusedError


def is_in_job(folder: str, storage: str, job: str) -> bool:
    """Tell whether a folder is a job's own, or lies in it.

    Args:
        folder: URI of the folder.
        storage: URI of the job's storage.
        job: the job's name.
    """
    return parse_storage_uri(storage).below(job).has(parse_storage_uri(folder))


def check_target(target: str, storage: str, job: str, **where: str | None) -> None:
    """Refuse what lies in the job's own folder, and the storage's root, where every folder is taken for a job.

    Args:
        target: URI below which the savepoint would get its own folder.
        storage: URI of the job's storage.
        job: the job's name.
        **where: the task or group that names it, for the error text.

    Raises:
        RefusedError: it is one of these.
    """
    if is_in_job(target, storage, job):
        raise RefusedError(
            "the target lies in the job's own folder, whose files are the job's to delete; name a folder outside of it",
            code="savepoint_refused",
            **where,
            target=target,
            job=job,
            folder=f"{storage}/{job}",
        )
    if same_place(target, storage):
        raise among_jobs(target, storage, **where)


def among_jobs(target: str, storage: str, **where: str | None) -> RefusedError:
    """Give the refusal of a target where only jobs' folders may be."""
    return RefusedError(
        "the target lies among the storage's jobs; name a folder outside of the storage, or one in it that is no job's",
        code="savepoint_refused",
        **where,
        target=target,
        storage=storage,
    )
