"""Stages that have to run again although their own tasks have not failed, and which task held each (semantics F1, F2).

The swap that opens the next attempt replaces their executions; another process runs their tasks again, and
comes after. So the pending document names the tasks: a process that comes later, after a crash between the two, reads
there what is still to be done. A task that has claimed the new execution has been run again, and is left out from then
on.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..answers import Restarted
from ..documents.attempt import Execution, PendingDocument
from ..store import acks
from ..store.job_files import JobFiles
from . import stored_handover
from .carry_over import CarryOver


def by(carried: CarryOver, executions: Mapping[str, Execution]) -> frozenset[str]:
    """Give the stages that had begun in the attempt before and run again in the next (semantics F1)."""
    before = carried.before
    if before is None:
        return frozenset()
    return frozenset(uid for uid in carried.begun if uid in executions and executions[uid] != before.executions[uid])


def claimants(files: JobFiles, carried: CarryOver, executions: Mapping[str, Execution]) -> dict[str, str]:
    """Give the stages that have to run again for the next attempt, each with the task that held it last.

    Those that have failed by themselves have none: Airflow tries them again, or a person does. Nor have those whose
    handover is gone or broken, so that no process knows which task it was.
    """
    if carried.before is None:
        return {}
    still = {
        uid: who for uid, who in carried.before.restarted.items() if uid in executions and uid not in carried.begun
    }
    again = by(carried, executions)
    found = still | dict.fromkeys(carried.failed & (still.keys() | again), "")
    for uid in sorted(again - carried.failed):
        execution = carried.before.executions[uid]
        handover = stored_handover.readable(files, uid, execution.home, execution.token)
        # Where it is gone or broken the holder is not known. The stage runs again all the same: its task is cleared.
        found[uid] = handover.claimant if handover is not None else ""
    return found


def of(document: PendingDocument) -> tuple[Restarted, ...]:
    """Give the stages whose tasks had to run again when an attempt was opened."""
    return tuple(Restarted(uid, claimant) for uid, claimant in sorted(document.restarted.items()) if claimant)


def waiting(files: JobFiles, document: PendingDocument, *, failed: bool = False) -> tuple[Restarted, ...]:
    """Give those of them whose tasks have not begun since: one listing for each home, none where there are none.

    Args:
        files: the job's files.
        document: of the pending attempt.
        failed: name those too of which no holder is known. Airflow tries one again that has failed by itself, unless
            that try has ended before the failover: it found an acknowledgement that landed just then, and succeeded.

    Raises:
        UnavailableError: the store did not answer.
    """
    due = of(document)
    if failed:
        due += tuple(Restarted(uid, "") for uid, claimant in sorted(document.restarted.items()) if not claimant)
    begun = acks.marked(files, {each.stage: document.executions[each.stage] for each in due}, "handover")
    return tuple(each for each in due if each.stage not in begun)
