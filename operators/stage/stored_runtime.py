"""The driver's part of Cairn in the job's storage, for services that take their files by address.

The object's name holds the hash of its content, so any writer's object serves all, and a version never passes for
another. It is read and compared before each submission, since a driver runs it (decision 0030). Each use after a day
writes it anew, and an upload of another version deletes those that were not used for `UNUSED_DAYS`. So a driver finds
its zip unless it waits for its start longer than that.

Races: of two who create it one wins, with the same bytes. A cleaner that has listed the object just before its renewal
may delete it: that driver does not start, and the next try uploads it again.
"""

from __future__ import annotations

import hashlib
import logging
import tempfile
from datetime import timedelta
from pathlib import Path

from ...spark import cluster_probe
from ...spark.handover.runtime_zip import runtime_wheel, runtime_zip
from ...storage.clock import system_time
from ...storage.errors import CairnError
from ...storage.names import RESERVED
from ...storage.port import ObjectStore

log = logging.getLogger("airflow_cairn")

FOLDER = f"{RESERVED}/runtime/"
RENEWED_DAYS = 1
UNUSED_DAYS = 30


def stored_runtime(store: ObjectStore, *, wheel: bool = False) -> str:
    """Return the address by which Spark reads the runtime from the storage; uploads it if need be.

    Args:
        store: the storage's root.
        wheel: for a service that takes no zip.

    Raises:
        CairnError: the storage refused, or did not answer.
    """
    with tempfile.TemporaryDirectory(prefix="cairn-") as folder:
        made = (runtime_wheel if wheel else runtime_zip)(Path(folder))
        return _stored(store, made.name, made.read_bytes())


def stored_probe(store: ObjectStore) -> str:
    """Return the address of the application by which `cairn doctor` asks a cluster; uploads it if need be.

    Raises:
        CairnError: the storage refused, or did not answer.
    """
    data = Path(cluster_probe.__file__).read_bytes()
    return _stored(store, f"cluster_probe-{hashlib.sha256(data).hexdigest()[:12]}.py", data)


def _stored(store: ObjectStore, name: str, data: bytes) -> str:
    key = f"{FOLDER}{name}"
    others = {each.key: each.modified_ms for each in store.list(FOLDER)}
    if key not in others:
        store.create(key, data)
        _delete_unused(store, others)
    found = store.get(key)
    if found.data != data:
        log.warning("The runtime %s in the storage was not what its name says: it is replaced", key)
    if found.data != data or _older(others.get(key), RENEWED_DAYS):
        store.replace(key, data, expected_etag=found.etag)
    return store.spark_url(key)


def _delete_unused(store: ObjectStore, modified: dict[str, int | None]) -> None:
    unused = [key for key, at_ms in modified.items() if _older(at_ms, UNUSED_DAYS)]
    if not unused:
        return
    try:
        kept = ", ".join(f"{each.key}: {each.reason}" for each in store.delete(unused))
    except CairnError as error:
        kept = str(error)
    if kept:
        log.warning("Unused runtimes stay in the storage: %s", kept)


def _older(at_ms: int | None, days: int) -> bool:
    return at_ms is not None and system_time() - at_ms / 1000 > timedelta(days=days).total_seconds()
