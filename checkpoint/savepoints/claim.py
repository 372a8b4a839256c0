"""What becomes of a savepoint that the job owns: it is deleted once the job has its copy (semantics R6: CLAIM)."""

from __future__ import annotations

import logging
from dataclasses import replace

from ...storage.port import ObjectStore
from ..decisions import savepoint_entries
from ..documents.entries import ImportRecord
from ..documents.head import Head
from ..errors import NoSavepointError, SavepointRefusedError
from ..store.head_store import Decision, HeadStore, changed
from ..store.job_files import JobFiles
from . import integrity
from .files import REQUEST
from .live_folder import check_no_job
from .savepoint_format import METADATA

log = logging.getLogger("airflow_cairn")


def claimed(head: Head, folder: ObjectStore) -> ImportRecord | None:
    """Give the record of the job's start from what lies in this folder, if the job has still to delete it."""
    return next((each for each in head.imports if each.claimed and each.origin.uri == folder.uri), None)


def delete(heads: HeadStore, files: JobFiles, folder: ObjectStore) -> None:
    """Delete a savepoint that the job owns and has a copy of, wherever that stopped before; else do nothing.

    Only what its metadata names, because more may lie there. The metadata goes last, so that the next process can go
    on.
    """
    if not heads.observe(lambda head, _now_ms: claimed(head, folder) is not None):
        return
    try:
        check_no_job(folder, files.store)
    except SavepointRefusedError as error:
        # It was claimed, or a job put there since: the job has its copy, and stays the savepoint's owner.
        log.warning("the savepoint is not deleted, although the job owns it: %s", error)
        return
    try:
        named = [file.key for file in integrity.load(folder).files]
    except NoSavepointError:
        named = []  # deleted before, down to its metadata
    failures = folder.delete([*named, REQUEST]) or folder.delete([METADATA])
    if failures:
        # It is the job's all the same, and the next start that names it goes on with this (semantics W7).
        log.warning("the savepoint %s could not be deleted: %s", folder.uri, failures[0])
        return

    def decide(head: Head, _now_ms: int) -> Decision[None]:
        imports = tuple(
            replace(each, claimed=False) if each.origin.uri == folder.uri else each for each in head.imports
        )
        # One that this very job has taken is none of its history any more.
        left = savepoint_entries.forgotten(head, folder.uri)
        return Decision(None, changed(head, replace(left, imports=imports)))

    heads.update(decide)
