"""What these credentials may do below the root, verb by verb, and whether its conditional writes hold."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ...storage.errors import ForbiddenError, StorageError, UnsupportedStorageError
from ...storage.names import RESERVED
from ...storage.port import ObjectStore, PendingUpload
from ...storage.probe import log as probe_log
from ...storage.probe import probe
from ..runtime import Runtime
from .findings import Finding, error
from .store_reach import right_missing


def rights(store: ObjectStore, runtime: Runtime) -> Iterator[Finding]:
    """Use each verb once, on one object below `_cairn/doctor/`."""
    folder = f"{RESERVED}/doctor/"
    key = f"{folder}{runtime.new_token()}"
    upload = PendingUpload(key, runtime.new_token(), 0)
    # In this order: what follows a write reads it, and the delete comes last.
    verbs: tuple[tuple[str, str, Callable[[], object]], ...] = (
        ("s3:PutObject", "no checkpoint can be triggered or acknowledged", lambda: store.create(key, b"doctor")),
        ("s3:GetObject", "no checkpoint can be restored", lambda: store.get(key, max_bytes=1024)),
        ("s3:ListBucket", "checkpoints and their files cannot be found", lambda: list(store.list(folder))),
        (
            "s3:ListBucketMultipartUploads",
            "what killed drivers have begun to upload stays, is paid for, and no listing shows it",
            lambda: list(store.uploads(folder)),
        ),
        (
            "s3:AbortMultipartUpload",
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
        yield right_missing(store, "s3:DeleteObject", refused.message, why)
    else:
        for failure in failures:
            yield right_missing(store, "s3:DeleteObject", f"{failure.key} was not deleted: {failure.reason}", why)


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
    """Use a verb; gives why the credentials may not. Another error is not about rights."""
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
