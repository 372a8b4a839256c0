"""What becomes of a savepoint that the job owns: it is deleted once the job has its copy (semantics R6: CLAIM)."""

from __future__ import annotations

import logging
from dataclasses import replace

from ...storage.port import DeleteFailure, ObjectStore
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

    For a caller that claims it: that the record says so is not enough. Only what its metadata names, because more may
    lie there. The metadata goes last, so that the next process can go on.
    """
    record = heads.observe(lambda head, _now_ms: claimed(head, folder))
    if record is None:
        return
    try:
        check_no_job(folder, files.store)
        failures = _delete(folder, record)
    except SavepointRefusedError as error:
        # A job, or another savepoint, was put there since: the job has its copy, and stays the savepoint's owner.
        log.warning("the savepoint is not deleted, although the job owns it: %s", error)
        return
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


def _delete(folder: ObjectStore, record: ImportRecord) -> list[DeleteFailure]:
    """Delete the savepoint that was claimed.

    Raises:
        SavepointRefusedError: by now another one lies in its folder; nothing was deleted.
    """
    try:
        found = integrity.load(folder)
    except NoSavepointError:
        return []  # deleted before, down to its metadata
    if (found.end.sha256, found.header.job) != (record.origin.sha256, record.origin.job):
        raise SavepointRefusedError(
            "another savepoint than the one that the job was started from lies in the folder", savepoint=folder.uri
        )
    named = [file.key for file in found.files]
    return list(folder.delete([*named, REQUEST])) or list(folder.delete([METADATA]))
