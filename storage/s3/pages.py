"""Listings and batched deletes of an S3 store, page by page (semantics W1, W7).

Listings come in key order. A delete repeats what it can, and names the keys that stay.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from ..errors import ForbiddenError, UnsupportedStorageError
from ..names import order, shorten
from ..port import DeleteFailure, DeleteFailures, ObjectStat, PendingUpload
from .requests import Refused, S3Requests


def objects(wire: S3Requests, prefix: str, start_after: str | None) -> Iterator[ObjectStat]:
    """Yield the objects under `prefix`, after `start_after` if given.

    Raises:
        UnsupportedStorageError: the store lists out of order (semantics W6).
    """
    params = {"Prefix": wire.full_prefix(prefix)}
    if start_after is not None:
        params["StartAfter"] = wire.full(start_after, marker=True)
    last = b""
    for page in _pages(wire, prefix, params):
        for entry in page.get("Contents", []):
            key = entry["Key"].removeprefix(wire.prefix)
            if not key:
                continue  # the folder marker of the root
            if order(key) <= last:
                raise UnsupportedStorageError(
                    "the store lists its keys out of order, so nothing can be found there reliably. "
                    "Choose one that lists in the order of UTF-8 bytes",
                    store=wire.store,
                    key=shorten(key),
                )
            last = order(key)
            modified = entry.get("LastModified")
            modified_ms = None if modified is None else int(modified.timestamp() * 1000)
            yield ObjectStat(key, entry["Size"], entry.get("ETag"), modified_ms=modified_ms)


def folders(wire: S3Requests, prefix: str) -> Iterator[str]:
    """Yield the bare names of the folders directly under `prefix`."""
    full = wire.full_prefix(prefix)
    for page in _pages(wire, prefix, {"Prefix": full, "Delimiter": "/"}):
        for entry in page.get("CommonPrefixes", []):
            yield entry["Prefix"][len(full) : -1]


def uploads(wire: S3Requests, prefix: str) -> Iterator[PendingUpload]:
    """Yield the pending multipart uploads under `prefix` (semantics W7)."""
    asked: dict[str, Any] = {"Prefix": wire.full_prefix(prefix), "MaxUploads": wire.page_size}
    while True:
        page = wire.patiently("list_multipart_uploads", prefix, partial(_page_of_uploads, wire, dict(asked)))
        for entry in page.get("Uploads", []):
            initiated_ms = int(entry["Initiated"].timestamp() * 1000)
            yield PendingUpload(entry["Key"].removeprefix(wire.prefix), entry["UploadId"], initiated_ms)
        if not page.get("IsTruncated") or not page.get("NextKeyMarker"):
            return
        asked |= {"KeyMarker": page["NextKeyMarker"], "UploadIdMarker": page.get("NextUploadIdMarker", "")}


def _page_of_uploads(wire: S3Requests, asked: dict[str, Any]) -> Any:
    try:
        return wire.send("list_multipart_uploads", **asked)
    except Refused as fault:
        if fault.code != "InvalidArgument" or "UploadIdMarker" not in asked:
            raise
        # versitygw 1.8 refuses its own marker. With the key alone, further uploads of that key are left out; a caller
        # that aborts the listed ones finds them the next time.
        return wire.send("list_multipart_uploads", **{k: v for k, v in asked.items() if k != "UploadIdMarker"})


def _pages(wire: S3Requests, prefix: str, params: dict[str, str]) -> Iterator[dict[str, Any]]:
    asked: dict[str, Any] = {"MaxKeys": wire.page_size, **params}
    while True:
        page = wire.ask("list_objects_v2", prefix, **asked)
        yield page
        token = page.get("NextContinuationToken")
        if not page.get("IsTruncated") or not token:
            return
        if token == asked.get("ContinuationToken"):
            raise UnsupportedStorageError(
                "the store repeats one page of a listing without end. Use another store or gateway",
                store=wire.store,
                key=prefix,
            )
        asked["ContinuationToken"] = token


def delete(wire: S3Requests, keys: Sequence[str]) -> DeleteFailures:
    """Delete `keys`, one request per page; return the keys that stay, with the store's reason."""
    full = {wire.full(key, marker=True): key for key in keys}
    names = list(full)
    failures: DeleteFailures = []
    for start in range(0, len(names), wire.page_size):
        stayed = _delete_page(wire, names[start : start + wire.page_size], full)
        failures += [DeleteFailure(full[name], reason) for name, reason in stayed.items()]
    return failures


def _delete_page(wire: S3Requests, names: list[str], full: dict[str, str]) -> dict[str, str]:
    final: dict[str, str] = {}
    left, passing = names, dict[str, str]()
    for _ in wire.patience.attempts():
        request = {"Objects": [{"Key": name} for name in left], "Quiet": True}
        try:
            answer = wire.ask("delete_objects", full[left[0]], Delete=request)
        except ForbiddenError as forbidden:
            cause = forbidden.__cause__
            if not isinstance(cause, Refused) or not cause.lacks_right:
                raise  # the store does not know the caller, so no single right is missing
            return final | dict.fromkeys(left, forbidden.message)
        passing = {}
        for error in answer.get("Errors", []):
            refused = Refused(200, error.get("Code", ""), error.get("Message", ""))
            if refused.code == "NoSuchKey":
                continue  # another cleaner was quicker; versitygw 1.8 reports this, S3 calls the key deleted (measured)
            into = passing if refused.transient else final
            into[error["Key"]] = f"{refused.code}: {refused.text}"
        left = list(passing)
        if not left:
            break
    return final | passing
