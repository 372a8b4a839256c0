"""Counts the stages that had acknowledged in an attempt that ends without completing (semantics O1, D2, S1, C2).

What ends an attempt is often no look at it: its time was over, the DAG was paused, another one completed. So the swap
that ends it counts the markers, in whichever process, where the decision has not.
"""

from __future__ import annotations

import logging
from dataclasses import replace

from ...storage.errors import CairnError
from ..decisions import history
from ..documents.entries import PendingEntry
from ..documents.head import Head
from ..reasons import Status
from . import acks, attempt_documents
from .job_files import JobFiles

log = logging.getLogger("airflow_cairn")


def counted(files: JobFiles, old: Head, new: Head) -> Head:
    """Give `new` with the number of stages that had acknowledged in what ends in it.

    Costs a listing for each checkpoint in which the executions of such an attempt are at home. The number
    is only shown to users: where it cannot be read, the end is recorded without it.
    """
    for entry in old.pending:
        ended = new.ended_by_id(entry.id)
        if ended is not None and ended.status is Status.FAILED and ended.acks == 0:
            found = _acknowledged(files, entry)
            new = history.with_ended(new, replace(ended, acks=found)) if found else new
    return new


def _acknowledged(files: JobFiles, entry: PendingEntry) -> int:
    try:
        document = attempt_documents.read(files, entry)
        return len(acks.marked(files, document.executions, "acks"))
    except CairnError as error:
        log.warning(
            "the stages that had acknowledged in checkpoint %d of job %s cannot be counted: %s",
            entry.id,
            files.job,
            error,
        )
        return 0
