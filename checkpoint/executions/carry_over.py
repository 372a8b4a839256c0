"""Which executions a new attempt takes over from the one before (semantics F1, F2).

An execution is the unit: it carries over whole, running or acknowledged, or it is run again. What has failed takes its
region along, everything that reads from that, and each stage that has to write again what is gone (`regions`); or all
stages, if the job wants that. A stage that reads what is there (B2) is not run again with what it reads: its next run
reads the new output.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from ...storage.errors import DocumentError
from ..documents.attempt import Execution, HooksRef, PendingDocument, StageSpec
from ..documents.head import Head
from ..failures.regions import affected
from ..store import acks
from ..store.attempt_documents import AttemptDocuments
from ..store.job_files import JobFiles
from . import input_damage


@dataclass(frozen=True, slots=True)
class CarryOver:
    """What is taken over."""

    executions: Mapping[str, Execution]
    acknowledged: frozenset[str]
    """Those of them that have acknowledged already."""
    hooks: HooksRef | None = None
    """The answers of the master hooks, given or still to be given; what is taken over was computed with them."""
    declined: frozenset[str] = frozenset()
    """Stages that had declined in the attempt before; none of them is taken over."""
    before: PendingDocument | None = None
    """What the attempt before expected; None where there was none, or that is not known any more."""
    begun: frozenset[str] = frozenset()
    """Stages that had begun in it: a try had claimed them."""
    failed: frozenset[str] = frozenset()
    """Stages that have failed by themselves, or are about to run again anyway."""

    def nothing(self) -> CarryOver:
        """Take over nothing, and still know what was before."""
        return replace(self, executions={}, acknowledged=frozenset(), hooks=None)


NOTHING = CarryOver({}, frozenset())


def carry(
    files: JobFiles,
    before: PendingDocument,
    stages: tuple[StageSpec, ...],
    *,
    rejected: Collection[str] = (),
    restart: str | None = None,
    again: bool = False,
    running: bool = True,
    missing: Collection[str] = (),
) -> CarryOver:
    """Choose what a new attempt takes over: three listings for each checkpoint in which executions are at home.

    Where something runs again, what it reads from others is looked at too (semantics F1).

    Args:
        files: the job's files.
        before: what the attempt before expected.
        stages: what the new one expects; a stage that the DAG has changed is run again.
        rejected: tokens of executions that were answered that they do not count, and of answers of hooks that do not.
        restart: a stage to run again unless it has acknowledged.
        again: also if it has: a person has asked for that (semantics F5).
        running: whether executions that have not acknowledged are taken over too.
        missing: stages of which what they wrote is known to be gone or altered.
    """
    executions = before.executions
    acknowledged = acks.marked(files, executions, "acks")
    declined = acks.marked(files, executions, "declines") - acknowledged
    # A stage that was answered that it does not count had begun, though a cleaner may have taken its handover since.
    answered = {uid for uid, execution in executions.items() if execution.token in rejected}
    begun = acks.marked(files, executions, "handover") | acknowledged | answered
    missing = frozenset(missing).union(*(_unreadable(files, uid, executions[uid]) for uid in declined))
    gone = declined
    if again or restart not in acknowledged:
        gone |= {restart} if restart else set()
    if not running:
        gone |= executions.keys() - acknowledged
    expected = {spec.uid: spec for spec in before.stages}
    gone |= {
        spec.uid
        for spec in stages
        if spec.uid not in executions or executions[spec.uid].token in rejected or expected.get(spec.uid) != spec
    }
    gone &= {spec.uid for spec in stages}
    out = _out(files, before, stages, gone, begun, missing, acknowledged)
    sound = {spec.uid: executions[spec.uid] for spec in stages if spec.uid not in out}
    hooks = before.hooks if before.hooks is not None and before.hooks.token not in rejected else None
    failed = declined | ({restart} if restart else frozenset())
    return CarryOver(sound, acknowledged & sound.keys(), hooks, declined, before, begun, failed)


def carried_by(
    files: JobFiles,
    documents: AttemptDocuments,
    head: Head,
    epoch: str,
    stages: tuple[StageSpec, ...],
    *,
    restart: str | None = None,
    running: bool = True,
    at_least_once: bool | None = None,
) -> CarryOver:
    """Choose what the epoch's next attempt takes over from the one before, which has ended (semantics F2).

    Args:
        files: the job's files.
        documents: reads what the attempt before expected.
        head: the version decided on.
        epoch: the epoch's name.
        stages: what the next attempt expects.
        at_least_once: whether its stages read what is there (semantics B2); None: as in the one before.
        restart: a stage to run again unless it has acknowledged.
        running: whether executions that have not acknowledged are taken over too.
    """
    ended = next(head.ended_of_epoch(epoch), None)
    document = documents.lent_by(ended)
    if ended is None or document is None:
        return NOTHING
    carried = carry(files, document, stages, rejected=ended.rejected, restart=restart, running=running)
    if head.carryable(epoch) is None or at_least_once not in (None, document.limits.at_least_once):
        # An acknowledgement says what was read in the one mode alone; the other would take all for read.
        return carried.nothing()
    return carried


def _out(
    files: JobFiles,
    before: PendingDocument,
    stages: tuple[StageSpec, ...],
    gone: frozenset[str],
    begun: frozenset[str],
    missing: frozenset[str],
    acknowledged: frozenset[str],
) -> frozenset[str]:
    """Give the stages that are not taken over: what is gone, and what a stage that had begun takes along."""
    consumers = not before.limits.at_least_once
    # A stage that never began has not failed and takes no other of its region along, except one that has read from it.
    renewed = affected(_blocking(stages), gone, consumers=consumers)
    failed = renewed & begun
    while True:
        out = affected(stages, failed, consumers=consumers) | renewed
        needed = {uid for spec in stages if spec.uid in out for uid in spec.upstream} - out
        missing |= input_damage.damaged(files, before, needed & acknowledged - missing).keys()
        if not needed & missing:
            return frozenset(spec.uid for spec in stages) if before.limits.full_failover and out & begun else out
        failed |= needed & missing


def _unreadable(files: JobFiles, stage: str, execution: Execution) -> tuple[str, ...]:
    """Give the upstreams that a stage which declined could not read."""
    try:
        decline = acks.read_decline(files, stage, execution)
    except DocumentError:
        return ()  # it has declined all the same; what it could not read, the next try finds again
    return decline.unreadable if decline else ()


def _blocking(stages: tuple[StageSpec, ...]) -> tuple[StageSpec, ...]:
    return tuple(replace(spec, pipelined=()) for spec in stages)
