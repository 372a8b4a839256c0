"""Where a savepoint must not lie, or its files must not be deleted: in a job's own folder (semantics P1, P3, C3).

Names alone tell it of a target. A savepoint that is copied over a job's folder shares its keys. To throw it away, or to
claim it, would delete the job's own files, so both look for a `head.json` first: in the folder, and in each one above.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress

from ...storage.errors import ForbiddenError, GoneError, InvalidKeyError, UnsupportedStorageError
from ...storage.names import parse_storage_uri, same_place
from ...storage.port import ObjectStore
from ..documents import layout
from ..errors import RefusedError


def is_in_job(folder: str, storage: str, job: str) -> bool:
    """Tell whether a folder is a job's own, or lies in it."""
    return parse_storage_uri(storage).below(job).has(parse_storage_uri(folder))


def check_target(target: str, storage: str, job: str, **where: str | None) -> None:
    """Refuse a target in the job's own folder, and the storage's root, where every folder is taken for a job.

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


def check_no_job(
    folder: ObjectStore, storage: ObjectStore, open_folder: Callable[[str], ObjectStore] | None = None
) -> None:
    """Refuse a savepoint's folder that holds the head of a job, or lies below one; costs one look for each level.

    Args:
        folder: a store that is rooted at the savepoint's folder.
        storage: the storage of the job that acts.
        open_folder: opens the folders above; None: only those in `storage` are looked at.

    Raises:
        RefusedError: a job's head is in it, or above it; nothing was deleted, and nothing has changed.
        ForbiddenError: the store does not let us look into the folder itself.
    """
    if _holds_head(folder, ""):
        raise _refused(folder.uri, folder.uri)
    for above in _above(folder.uri):
        # A folder above that we may not look into, or that is no storage, is not known to be a job's.
        with suppress(ForbiddenError, InvalidKeyError, UnsupportedStorageError):
            if above.startswith(f"{storage.uri}/"):
                found = _holds_head(storage.at_once(), f"{above.removeprefix(f'{storage.uri}/')}/")
            else:
                found = open_folder is not None and _holds_head(open_folder(above).at_once(), "")
            if found:
                raise _refused(folder.uri, above)


def _above(uri: str) -> Iterator[str]:
    """Yield the folders above one, the nearest first."""
    scheme, _, path = uri.partition("://")
    while "/" in path.strip("/"):
        path = path.rpartition("/")[0]
        yield f"{scheme}://{path}"


def _holds_head(store: ObjectStore, prefix: str) -> bool:
    try:
        store.stat(f"{prefix}{layout.HEAD}")
    except GoneError:
        return False
    return True


def _refused(savepoint: str, job_folder: str) -> RefusedError:
    return RefusedError(
        "a job lives in the savepoint's folder, or above it: deleting the savepoint would delete the job's own files. "
        "It was not deleted, and nothing has changed. Move the savepoint into a folder of its own, or delete its files "
        "yourself",
        code="savepoint_refused",
        savepoint=savepoint,
        head=f"{job_folder}/{layout.HEAD}",
    )
