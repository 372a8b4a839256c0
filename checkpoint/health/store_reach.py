"""Checks of a store: reach, clock, rights, conditional writes, and the rules of its bucket."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote

from ...storage.clock import Runtime
from ...storage.errors import ForbiddenError, GoneError, StorageError, UnavailableError, UnsupportedStorageError
from ...storage.facts import StoreFacts, facts_of, filled
from ...storage.names import RESERVED
from ...storage.port import BucketRules, ObjectStore, PendingUpload
from ...storage.probe import log as probe_log
from ...storage.probe import probe
from ..views.wording import duration
from .findings import RIGHT_MISSING, Finding, error, warning

SKEW_MS = 30_000
"""Clocks that differ by more are worth a warning; an answer's date is cut to the second."""
SKEW_LIMIT_MS = 300_000
"""Clocks that differ by more make timeouts and leases wrong. From 15 minutes on, S3 refuses every request."""

_HEADERS = {
    "s3:ListBucket": (
        '. If they have it, set the connection\'s extra `request_payer` to "requester" where the requester pays, or '
        "`expected_bucket_owner` to the account that owns the bucket"
    ),
    "s3:PutObject": (
        ". If they have it, a policy asks how objects are encrypted: set the connection's extra "
        '`server_side_encryption` to "AES256" or "aws:kms"'
    ),
}
"""Advice by right. The first request is a listing: a bucket that answers it may still demand a header on writes."""

_NTP = "Set this machine's clock by NTP: `timedatectl set-ntp true`, then look at `timedatectl`"


def check_root(store: ObjectStore) -> None:
    """Check that the storage exists, although no job may be in it.

    Only a folder is checked: for a missing bucket the store answers with an error, and a prefix always exists.

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


def comes_with_a_job(store: ObjectStore) -> bool:
    """Tell whether the storage is a missing folder that the first job can make."""
    scheme, _, path = store.uri.partition("://")
    root = Path(unquote(path))
    if scheme != "file" or root.exists():
        return False
    above = next(each for each in root.parents if each.exists())
    return above.is_dir() and os.access(above, os.W_OK | os.X_OK)


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
    # The store answered between the two readings of the clock; its date is cut to the second.
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
    """Turn an error of the first request into a finding; the narrower classes come first."""
    nothing = "no checkpoint can be made, restored or seen"
    if refusal.code == "no_credentials":
        facts = facts_of(store.uri)
        mend = f"{facts.find_credentials}; then `{facts.who_asks}`"
        return error("credentials-missing", store.uri, refusal.message, nothing, mend)
    if refusal.code == "clock_skew":
        return error("clock-skew", store.uri, refusal.message, nothing, _NTP)
    if refusal.code == "missing_right":
        right = "list the folder" if store.uri.startswith("file:") else facts_of(store.uri).list
        return right_missing(store, right, refusal.message)
    if isinstance(refusal, ForbiddenError):
        mend = f"Give the credentials of a user of this store; `{facts_of(store.uri).who_asks}` shows who asks"
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
    facts = facts_of(store.uri)
    where = facts.on_bucket if right in (facts.list, facts.uploads) else facts.on_objects
    mend = f"Grant `{right}` on `{filled(where, path)}` to these credentials"
    return error(RIGHT_MISSING, right, what, why, mend + _HEADERS.get(right, ""))


def _make(uri: str) -> str:
    scheme, _, path = uri.partition("://")
    if scheme == "file":
        return f"mkdir -p '{unquote(path)}'"
    return filled(facts_of(uri).make, path)


# The rights of these credentials below the root, verb by verb, and the store's conditional writes.


def rights(store: ObjectStore, runtime: Runtime) -> Iterator[Finding]:
    """Use each verb once, on one object below `_cairn/doctor/`."""
    facts = facts_of(store.uri)
    folder = f"{RESERVED}/doctor/"
    key = f"{folder}{runtime.new_token()}"
    upload = PendingUpload(key, runtime.new_token(), 0)
    # The order matters: the write comes first, for the others to find its object, and the delete last.
    verbs: tuple[tuple[str, str, Callable[[], object]], ...] = (
        (facts.put, "no checkpoint can be triggered or acknowledged", lambda: store.create(key, b"doctor")),
        (facts.get, "no checkpoint can be restored", lambda: store.get(key, max_bytes=1024)),
        (facts.list, "checkpoints and their files cannot be found", lambda: list(store.list(folder))),
        (
            facts.uploads,
            "what killed drivers have begun to upload stays, is paid for, and no listing shows it",
            lambda: list(store.uploads(folder)),
        ),
        (
            facts.abort,
            "what killed drivers have begun to upload stays, is paid for, and no listing shows it",
            lambda: store.abort_upload(upload),
        ),
    )
    for right, why, use in verbs:
        refusal = _refusal(use)
        if refusal is not None:
            yield right_missing(store, right, refusal, why)
    why = "old checkpoints are never deleted, so the storage only grows"
    try:
        failures = store.delete([key])
    except ForbiddenError as refused:
        yield right_missing(store, facts.delete, refused.message, why)
    else:
        for failure in failures:
            yield right_missing(store, facts.delete, f"{failure.key} was not deleted: {failure.reason}", why)


def conditional_writes(store: ObjectStore, runtime: Runtime) -> Iterator[Finding]:
    """Probe the store, whatever an earlier probe has found."""
    try:
        with _quiet():
            probe(store, nonce=runtime.new_token())
    except UnsupportedStorageError as failed:
        facts = ", ".join(f"{name} {failed.fields[name]}" for name in ("check", "expected", "found"))
        yield error(
            "conditional-writes",
            store.describe(),
            f"the store does not keep its promise about conditional writes: {facts}",
            "two processes may both believe that their write counts, so an epoch may be lost or counted twice",
            "Move to a store that passes (docs/reference/storage.md lists them), or upgrade this one, then type "
            "`cairn doctor` again",
        )


def _refusal(use: Callable[[], object]) -> str | None:
    """Use a verb, and give the store's message if it forbids that; other errors are not about rights."""
    try:
        use()
    except ForbiddenError as refused:
        return refused.message
    except StorageError:
        return None
    return None


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the probe's own warnings out of the answer: what it could not delete is a finding already."""
    level = probe_log.level
    probe_log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        probe_log.setLevel(level)


# Which rules of the bucket endanger checkpoints: they delete, hide or keep objects behind Cairn's back.


def endangered(rules: BucketRules, facts: StoreFacts) -> Iterator[Finding]:
    """Report the rules that endanger checkpoints."""
    bucket = rules.bucket
    change = filled(facts.change_rules, bucket)
    for rule in rules.lifecycle:
        where = f"below `{rule.prefix}`" if rule.prefix else "in the whole bucket"
        if rule.expires:
            yield error(
                "lifecycle-expires",
                f"rule {rule.name} of {bucket}",
                f"the rule deletes objects {where} {rule.expires}",
                "files of retained checkpoints and head.json itself go, however new the checkpoint: state that did "
                "not change is kept in old files",
                change,
            )
        if rule.archives:
            yield error(
                "lifecycle-archives",
                f"rule {rule.name} of {bucket}",
                f"the rule moves objects {where} to {rule.archives}",
                "what lies there cannot be read until somebody has asked for it and hours have passed, so no restore "
                "succeeds",
                change,
            )
    ended = "lifecycle" in rules.unknown or any(rule.ends_old_versions for rule in rules.lifecycle)
    if rules.versioned and not ended:
        yield warning(
            "versions-kept",
            bucket,
            "the bucket keeps old versions, and no rule deletes them",
            "each checkpoint that Cairn deletes stays as old versions and is paid for, for ever",
            filled(facts.end_old_versions, bucket),
        )
    if rules.kept_for:
        yield warning(
            "versions-kept",
            bucket,
            f"the store keeps what is deleted or replaced ({rules.kept_for})",
            "each checkpoint that Cairn deletes, and each version of head.json, is paid for until then",
            filled(facts.end_old_versions, bucket),
        )
    if rules.retention:
        yield warning(
            "object-lock",
            bucket,
            f"the bucket keeps every new object ({rules.retention})",
            "old checkpoints cannot be deleted before, so the storage grows and each cleaning reports failures",
            f"`{filled(facts.unlock, bucket)}`, or a bucket without it",
        )
