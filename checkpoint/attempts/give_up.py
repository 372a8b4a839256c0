"""A stage whose last try has failed: the checkpoint may complete without its region (semantics F6).

The mark is created once for an execution and means something as long as the head lists that execution. It is written
before any process looks whether the checkpoint may still complete, so of two regions that fail at the same moment at
least one sees both. A person who runs the stage again, by clearing its task, opens the next attempt, where the mark
does not count.
"""

from __future__ import annotations

from ..answers import AbandonedRegion
from ..completion import settle
from ..decisions import partial_completion
from ..documents import layout
from ..documents.acknowledgement import DeclineDocument
from ..documents.attempt import Execution, PendingDocument
from ..documents.entries import PendingEntry
from ..documents.head import Head
from ..documents.text import one_line
from ..failures.regions import affected
from ..reasons import Reason
from ..store import acks
from ..store.job_files import JobFiles


def give_up(
    files: JobFiles, head: Head, entry: PendingEntry, document: PendingDocument, stage: str, detail: str
) -> AbandonedRegion | None:
    """Note that no try of the stage follows in this attempt; None where the attempt is lost without it.

    Raises:
        UnavailableError: the store did not answer.
    """
    if not entry.regional:
        return None
    execution = document.executions[stage]
    mark = DeclineDocument(
        job=document.job,
        checkpoint=execution.home,
        epoch=document.epoch,
        stage=stage,
        token=execution.token,
        reason=Reason.CHECKPOINT_DECLINED,
        detail=one_line(detail),
    )
    files.create(layout.failure(execution.home, stage, execution.token), mark)
    seen = settle.look(files, entry, document)
    failed = affected(document.stages, seen.given_up - seen.acknowledged)
    if not partial_completion.may_fail(head, document, failed):
        return None
    return AbandonedRegion(entry.id, tuple(sorted(failed)))


def was_given_up(files: JobFiles, stage: str, execution: Execution) -> bool:
    """Tell whether it was reported that no try of a stage follows in the attempts that list its execution."""
    return bool(acks.marked(files, {stage: execution}, "failures"))
