"""Is what a stage is to read of its upstreams still there, and unaltered (semantics F1, R1)?

Asked where an epoch is tried again, and nowhere else: the healthy path costs no request more. What is gone or altered
is a fact about the store, confirmed like that of a checkpoint; a store that does not answer is an error.
"""

from __future__ import annotations

from collections.abc import Collection

from ...storage.errors import DocumentError, GoneError
from ..documents.attempt import Execution, PendingDocument
from ..store import acks, metadata_file
from ..store.file_check import FileCheck
from ..store.job_files import JobFiles


def damaged(files: JobFiles, document: PendingDocument, stages: Collection[str]) -> dict[str, str]:
    """Give the stages of which what they have acknowledged is gone or altered, each with what is wrong.

    Raises:
        UnavailableError: the store could not be asked.
        ForbiddenError: the store refused to answer.
    """
    found = {uid: _problem(files, uid, document.executions[uid]) for uid in sorted(stages)}
    return {uid: problem for uid, problem in found.items() if problem is not None}


def _problem(files: JobFiles, stage: str, execution: Execution) -> str | None:
    """Say what is wrong with what an execution has acknowledged; None if all of it stands."""
    try:
        ack = acks.read_ack(files, stage, execution)
        handles = [handle for subtask in acks.subtasks_of(files, ack) for handle in subtask.handles]
        for listed in [handle for handle in handles if metadata_file.is_list(handle)]:
            handles.extend(metadata_file.read_table(files, listed).handles)
    except GoneError as error:
        return f"its acknowledgement, or the list of a table that grows, is gone: {error}"
    except DocumentError as error:
        return str(error)
    return next((f"{handle.path}: {problem}" for handle, problem in FileCheck(files).damaged(handles)), None)
