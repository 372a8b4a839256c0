"""Batched deletes of an S3 store: repeats what it can, and names the keys that stay (semantics W7)."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import ForbiddenError
from ..port import DeleteFailure, DeleteFailures
from .faults import Refused
from .requests import S3Requests


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
