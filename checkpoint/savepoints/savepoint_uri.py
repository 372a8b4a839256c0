"""How a savepoint is named: by the URI of its folder, or of the metadata in it (semantics P1). Pure."""

from __future__ import annotations

from ...storage.uris import check_storage_uri
from .savepoint_format import METADATA


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
