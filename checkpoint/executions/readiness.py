"""May a stage begin in a later attempt of its epoch: is all that it reads there (semantics B1, F1)?

In an epoch's first attempt Airflow's order of tasks says so, and the healthy path costs no request more. Later, what a
stage reads may have to run again, or be gone.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..answers import UpstreamsNotReady
from ..documents.attempt import PendingDocument
from ..documents.text import one_line
from ..store import acks
from ..store.job_files import JobFiles
from . import input_damage, restarted_stages


@dataclass(frozen=True, slots=True)
class LostInputs:
    """What a stage is to read is gone or altered."""

    missing: frozenset[str]
    """Who wrote it."""
    why: str
    """What is wrong, for people; of the first of them."""


def look(files: JobFiles, document: PendingDocument, stage: str) -> UpstreamsNotReady | LostInputs | None:
    """Say why a stage may not begin; None if it may.

    Nothing is asked in an epoch's first attempt, for a stage that reads what is there (B2), and for one that has
    acknowledged.

    Raises:
        UnavailableError: the store could not be asked.
        ForbiddenError: the store refused to answer.
    """
    spec = document.stage(stage)
    if document.attempt == 1 or document.limits.at_least_once or spec is None or not spec.upstream:
        return None
    near = {uid: document.executions[uid] for uid in (stage, *spec.upstream)}
    acknowledged = acks.marked(files, near, "acks")
    if stage in acknowledged:
        return None
    late = {uid for uid in spec.upstream if uid not in acknowledged}
    if late:
        due = restarted_stages.waiting(files, document, failed=True)
        restarted = tuple(each for each in due if each.claimant or each.stage in late)
        return UpstreamsNotReady(document.checkpoint, document.attempt, tuple(sorted(late)), restarted)
    wrong = input_damage.damaged(files, document, spec.upstream)
    if not wrong:
        return None
    first = min(wrong)
    return LostInputs(frozenset(wrong), one_line(f"what {first} wrote cannot be read: {wrong[first]}"))
