"""Whether the store can be reached at all, and with which clock it answers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

from ...storage.errors import (
    ClockSkewError,
    ForbiddenError,
    GoneError,
    MissingRightError,
    NoCredentialsError,
    StorageError,
    UnavailableError,
)
from ...storage.port import ObjectStore
from ..runtime import Runtime
from ..views.wording import duration
from .findings import RIGHT_MISSING, Finding, error, warning

SKEW_MS = 30_000
"""Clocks that differ by more are worth a warning; an answer's date is cut to the second."""
SKEW_LIMIT_MS = 300_000
"""Clocks that differ by more make timeouts and leases wrong. From 15 minutes on, S3 refuses every request."""

_NTP = "Set this machine's clock by NTP: `timedatectl set-ntp true`, then look at `timedatectl`"


def check_root(store: ObjectStore) -> None:
    """Tell a storage with no job in it from one that is not there.

    A bucket that is not there says so itself; a prefix in one is there as soon as a command names it.

    Raises:
        GoneError: the folder does not exist.
    """
    scheme, _, path = store.uri.partition("://")
    if scheme == "file" and not Path(unquote(path)).is_dir():
        raise GoneError(
            "the storage does not exist: there is no such folder. Correct --storage (or CAIRN_STORAGE), or let a job "
            "run there first",
            storage=store.uri,
        )


def reach(store: ObjectStore) -> Iterator[Finding]:
    """Ask the store for the folders below its root."""
    try:
        check_root(store)
        next(iter(store.list_folders("")), None)
    except StorageError as refusal:
        yield _explained(store, refusal)


def clock(store: ObjectStore, runtime: Runtime) -> Iterator[Finding]:
    """Compare the store's clock with this machine's."""
    before_ms = runtime.now_ms()
    theirs_ms = store.now_ms()
    after_ms = runtime.now_ms()
    if theirs_ms is None:
        return
    # The answer was given between the two looks, and its date is cut to the second.
    skew_ms = max(before_ms - theirs_ms - 1_000, theirs_ms - after_ms, 0)
    if skew_ms <= SKEW_MS:
        return
    behind = "behind" if theirs_ms > after_ms else "ahead of"
    found = error if skew_ms > SKEW_LIMIT_MS else warning
    yield found(
        "clock-skew",
        store.uri,
        f"this machine's clock is {duration(skew_ms)} {behind} the store's",
        "timeouts, leases and delays are compared across machines, and from 15 minutes on S3 refuses every request",
        _NTP,
    )


def _explained(store: ObjectStore, refusal: StorageError) -> Finding:
    """Give the finding that an error of the first request amounts to; the narrower classes come first."""
    nothing = "no checkpoint can be made, restored or seen"
    if isinstance(refusal, NoCredentialsError):
        mend = "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE; then `aws sts get-caller-identity`"
        return error("credentials-missing", store.uri, refusal.message, nothing, mend)
    if isinstance(refusal, ClockSkewError):
        return error("clock-skew", store.uri, refusal.message, nothing, _NTP)
    if isinstance(refusal, MissingRightError):
        return right_missing(store, "s3:ListBucket", refusal.message)
    if isinstance(refusal, ForbiddenError):
        if store.uri.startswith("file:"):
            return right_missing(store, "list the folder", refusal.message)
        mend = "Give the key pair of a user of this store; `aws sts get-caller-identity` shows who asks"
        return error("credentials-refused", store.uri, refusal.message, nothing, mend)
    if isinstance(refusal, GoneError):
        mend = f"Correct the URI, or make it: `{_make(store.uri)}`"
        return error("storage-missing", store.uri, refusal.message, nothing, mend)
    if isinstance(refusal, UnavailableError):
        mend = "Start the store, or correct --endpoint-url, the proxy or the firewall; then type `cairn doctor` again"
        return error("storage-unreachable", store.uri, refusal.message, nothing, mend)
    mend = "Choose a store that passes: docs/reference/storage.md lists them"
    return error("storage-unsupported", store.uri, refusal.message, nothing, mend)


def right_missing(store: ObjectStore, right: str, what: str, why: str = "no job can be found") -> Finding:
    """Give the finding of a right that these credentials do not have."""
    scheme, _, path = store.uri.partition("://")
    if scheme == "file":
        return error(RIGHT_MISSING, right, what, why, f"chmod -R u+rwX '{unquote(path)}'")
    bucket = path.partition("/")[0]
    where = bucket if right.startswith("s3:ListBucket") else f"{path}/*"
    return error(RIGHT_MISSING, right, what, why, f"Grant `{right}` on `arn:aws:s3:::{where}` to these credentials")


def _make(uri: str) -> str:
    scheme, _, path = uri.partition("://")
    return f"mkdir -p '{unquote(path)}'" if scheme == "file" else f"aws s3 mb s3://{path.partition('/')[0]}"
