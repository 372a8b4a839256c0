"""A compaction in place of the base and the runs that it was made of, where a stage restores these (semantics K7).

The epoch's acknowledgement names the new base then; with the checkpoint that this completes it is adopted. An epoch
that fails has changed nothing, and the next one looks again.
"""

from __future__ import annotations

import logging

from ...checkpoint.compaction import records
from ...checkpoint.documents.acknowledgement import CompactionDocument
from ...checkpoint.store.file_check import FileCheck
from ...checkpoint.store.job_files import JobFiles
from ..stored.outputs import File, Stored

log = logging.getLogger("airflow_cairn")


def adopted(files: JobFiles, stage: str, outputs: dict[str, Stored]) -> dict[str, Stored]:
    """Give a stage's outputs with the new bases that there are; one listing, where a state has runs at all.

    Args:
        files: the job's files.
        stage: the stage's uid.
        outputs: of the restored checkpoint, by `Output.id`.

    Raises:
        UnavailableError: the store did not answer.
        ForbiddenError: the store refused to answer.
    """
    grown = {
        output_id: [file.handle for file in stored.files]
        for output_id, stored in outputs.items()
        if any(file.handle.run for file in stored.files)
    }
    result = dict(outputs)
    for home in sorted({records.home_of(handles) for handles in grown.values()}):
        there = list(records.of_stage(files, stage, home))
        for output_id, record in records.fitting(there, grown).items():
            result[output_id] = _with_base(files, outputs[output_id], record.document)
    return result


def _with_base(files: JobFiles, stored: Stored, document: CompactionDocument) -> Stored:
    base = [File(ack.index, handle) for ack in document.base or () for handle in ack.handles]
    for handle, problem in FileCheck(files).damaged([file.handle for file in base]):
        log.warning("the compaction of %s is not adopted, because of %s: %s", stored.output.id, handle.path, problem)
        return stored
    replaced = set(document.replaces)
    left = [file for file in stored.files if file.handle not in replaced]
    log.info("%s has a new base, by a compaction of %d files", stored.output.id, len(replaced))
    return Stored(document.output, [*base, *left])
