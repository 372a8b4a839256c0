"""How a savepoint is named, by the URI of its folder or of the metadata in it, and how its folder is opened (P1, W10).

Only the caller names places: a target or a savepoint's folder, as the DAG, the command or the person says it now. What
the job's record says of a savepoint is compared with that, and is never opened for itself. The folder is opened below
its target, so that a symlink in its place is refused.
"""

from __future__ import annotations

from dataclasses import replace

from ...storage.port import ObjectStore
from ...storage.uris import check_storage_uri, parse_storage_uri
from ..documents.entries import SavepointEntry
from ..errors import SavepointRefusedError
from .savepoint_format import METADATA
from .savepoint_request import OpenFolder


def savepoint_folder(uri: object) -> str:
    """Give the URI of a savepoint's folder; everything that takes a savepoint's path reads it by this.

    Args:
        uri: of the folder, or of the `_metadata` in it, as tools that list files give it.

    Returns:
        The folder's, normalised as `check_storage_uri` does.

    Raises:
        UnsupportedStorageError: the scheme is none of ours.
        InvalidKeyError: it is not of an accepted form.
    """
    found = check_storage_uri(uri)
    folder = found.removesuffix(f"/{METADATA}")
    # What would leave no folder at all is refused as that.
    return found if folder == found else check_storage_uri(folder)


def open_named(uri: object, open_folder: OpenFolder) -> ObjectStore:
    """Open a savepoint that the caller names, by its folder or the `_metadata` in it.

    Raises:
        UnsupportedStorageError: the scheme is none of ours.
        InvalidKeyError: it is not of an accepted form.
    """
    folder = savepoint_folder(uri)
    where = parse_storage_uri(folder)
    above, _, name = where.path.rpartition("/")
    if not name or (where.scheme == "file" and not above):
        return open_folder(folder)  # nothing above it is a storage
    return open_folder(str(replace(where, path=above))).below(name)


def open_entry(entry: SavepointEntry, target: str | None, open_folder: OpenFolder) -> ObjectStore:
    """Open a savepoint that the job's record holds, if it lies in the target that the caller names.

    Args:
        entry: as the record says.
        target: the URI that the caller names; None: it names none.
        open_folder: opens it.

    Raises:
        SavepointRefusedError: the record has it elsewhere; nothing was opened.
    """
    if entry.target != target:
        raise SavepointRefusedError(
            "by the job's record this savepoint lies in a target that is not named here, and Cairn opens no place "
            "because a record says so. Name the target where the savepoint was asked for: in its task, or by "
            "`cairn savepoint JOB TARGET --request-id ID` (`cairn stop` for a stop)",
            savepoint=entry.uri,
            request=entry.request,
            named=target or "none",
        )
    return open_folder(target).below(entry.folder)
