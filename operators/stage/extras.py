"""Additions of Cairn to an execution besides the author's arguments, and the log lines about its restore."""

from __future__ import annotations

import hashlib
import logging
import tempfile
from collections.abc import Mapping
from dataclasses import field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from ...checkpoint.answers import Submit
from ...checkpoint.documents import layout
from ...checkpoint.documents.attempt import Slice, run_of_slice
from ...spark.handover.conf import handover_conf
from ...spark.handover.runtime_zip import runtime_wheel, runtime_zip
from ...storage.clock import system_time
from ...storage.errors import CairnError
from ...storage.names import RESERVED, StorageUri
from ...storage.port import ObjectStore
from ...storage.records import dataclass
from ...tasks.job_settings import JobSettings

if TYPE_CHECKING:
    from ...checkpoint.documents.attempt import Handover
    from ...checkpoint.documents.head import Head

log = logging.getLogger("airflow_cairn")


@dataclass(frozen=True, slots=True)
class Extras:
    """Additions to the author's own arguments for one execution."""

    defaults: dict[str, str]
    """Conf that the author may override."""
    handed: dict[str, str]
    """Conf that the author must not set."""
    environment: dict[str, str] = field(repr=False)
    """The storage's credentials."""
    runtime: str
    """The zip of Cairn for the driver; empty if the driver runs beside the task."""


def extras_of(settings: JobSettings, answer: Submit, sources: Mapping[str, StorageUri], runtime: str = "") -> Extras:
    """Return the extras of one execution.

    Args:
        settings: the stage's rendered settings.
        answer: the coordinator's answer: the execution, and the location of its handover.
        sources: the folders of the DAG's sources, by name.
        runtime: path of the zip of Cairn.
    """
    storage = settings.hook()
    handed = handover_conf(
        answer.handover,
        answer.handover_key,
        storage=settings.storage,
        options=storage.options,
        sources=sources,
    )
    return Extras(storage.driver_conf(), handed, storage.driver_environment(), runtime)


def log_restore_source(head: Head, handover: Handover) -> None:
    """Log which checkpoint an execution restores, what it reads first, and which checkpoints are damaged."""
    record = next((each for each in head.restores if each.into == handover.checkpoint), None)
    for damage in record.damages if record else ():
        log.warning("Not restored, because it is damaged: %s", damage)
    if handover.restore is None:
        log.info("No checkpoint has completed yet: the stage starts empty")
    else:
        log.info("Restoring from checkpoint %d", handover.restore.checkpoint)
    for owed in handover.backlog:
        log.info("The stage first reads its backlog: epoch %s", _run_of(owed.epoch, owed.slice))
    for replayed in handover.replay:
        log.warning("The stage reads its input again: epoch %s", _run_of(replayed.epoch, replayed.slice))


def _run_of(epoch: str, read: Slice | None) -> str:
    return layout.run_id_of(epoch) if read is None else run_of_slice(epoch, read)


# The driver's part of Cairn in the job's storage, for services that take their files by address. The object's name
# holds the hash of its content, so one object serves all writers, and no version passes for another. Since a driver
# runs it, it is read and compared before each submission (decision 0030). Once a day a use writes it anew, and an
# upload of another version deletes those that were not used for `UNUSED_DAYS`. So a driver finds its zip unless it
# waits for its start longer than that. Races: if two create the object, one wins, with the same bytes. A cleaner may
# have listed the object just before its renewal and delete it: then the driver does not start, and the next try
# uploads it again.


FOLDER = f"{RESERVED}/runtime/"
RENEWED_DAYS = 1
UNUSED_DAYS = 30


def stored_runtime(store: ObjectStore, *, wheel: bool = False) -> str:
    """Return the address by which Spark reads the runtime from the storage; uploads it if need be.

    Args:
        store: the storage's root.
        wheel: for a service that takes no zip.
    """
    with tempfile.TemporaryDirectory(prefix="cairn-") as folder:
        made = (runtime_wheel if wheel else runtime_zip)(Path(folder))
        return _stored(store, made.name, made.read_bytes())


def stored_probe(store: ObjectStore) -> str:
    """Return the address of the application by which `cairn doctor` asks a cluster; uploads it if need be."""
    from ...spark import cluster_probe  # here: a DAG file does not need it

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
