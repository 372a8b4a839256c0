"""Who ran a stage's task last, where the stage has acknowledged and the task runs once more (semantics F5).

Such a try submits nothing, and Airflow then shows it as the stage's task. A later failover of the region clears the
task that the handover names, so the try writes its own name there, in one swap, before it ends as a success. Its
number goes along. Airflow counts tries on over retries and clears, so numbers order them, and they tell whether the
task was cleared since: then the first try after the clear has a higher number than the one that holds the
acknowledged execution.

Who can race: two later tries (one swap wins, the other looks again), a zombie of an earlier try (its number is
lower, so it writes nothing), and a failover that has read the older name. That failover's swap of the head comes
after the try's last look at it, or the try finds its execution replaced and claims the new one. In the first case
the task ends as a success and the new execution is not claimed; clearing sees just that (`tasks/clearing.py`). It
may be the failed stage itself, whose next try has come before the report of the first (`has_passed`).
A crash before the swap leaves the older name and a task that Airflow tries again; a crash after it leaves the right
name.
"""

from __future__ import annotations

from ...storage.errors import DocumentError
from ..documents.attempt import Execution, Handover
from ..store.job_files import JobFiles
from . import stored_handover


def was_cleared_since(handover: Handover | DocumentError, first_try: int) -> bool:
    """Tell whether a person has cleared a stage's task since the try that holds its acknowledged execution.

    Our own clears come after the swap that replaces the execution, so a try that follows one of them finds another
    execution, which is not claimed.

    Args:
        handover: of the acknowledged execution; what is wrong with it, if it cannot be read.
        first_try: number of the first try after the task's newest clear; 1 or less: it was never cleared.
    """
    holder = handover.try_number if isinstance(handover, Handover) else 0
    return first_try > 1 and holder < first_try


def record(files: JobFiles, handover: Handover | DocumentError, claimant: str, try_number: int) -> bool:
    """Write into the handover which try found that the stage has acknowledged.

    Args:
        files: the job's files.
        handover: of the acknowledged execution, as it was read.
        claimant: who asks.
        try_number: which try of its task that is; 0: not known.

    Returns:
        True if it stands there, or a later try does; False if the handover is to be looked at again.

    Raises:
        ConflictError: the store refused again and again to say who was first; nothing landed.
        UnavailableError: the store did not answer.
    """
    if not isinstance(handover, Handover) or handover.claimant == claimant or handover.try_number > try_number:
        return True
    return stored_handover.pass_on(files, handover, claimant, try_number)


def has_passed(files: JobFiles, stage: str, execution: Execution, claimant: str) -> bool:
    """Tell whether another try than the one that is said to have failed holds an execution by now.

    Raises:
        UnavailableError: the store did not answer.
    """
    standing = stored_handover.readable(files, stage, execution.home, execution.token)
    return standing is not None and standing.claimant != claimant
