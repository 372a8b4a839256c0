"""Additions of Cairn to an execution besides the author's arguments, and the log lines about its restore."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING

from ...checkpoint.answers import Submit
from ...checkpoint.documents import layout
from ...checkpoint.documents.attempt import Slice, run_of_slice
from ...spark.handover.conf import handover_conf
from ...storage.names import StorageUri
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
