"""Stages that read what is there: what a stage has not read of its upstreams is owed (semantics B2).

What is owed belongs to an edge and not to a stage: the stage takes part in the checkpoint, and has read its slice and
some of its upstreams. Its acknowledgement names the executions that it has read. What the others wrote is in-flight
data of the completed checkpoint, and the stage's next run reads that first.

An acknowledgement ends what was owed before, as with stages that were left out. So an edge owes one epoch at most. That
of a skipped stage ends nothing and adds nothing: the stage was not run, and its author chose not to read this epoch.
"""

from __future__ import annotations

from ..documents.acknowledgement import AckDocument
from ..documents.attempt import OwedEpoch, PendingDocument


def owed_after(document: PendingDocument, ack: AckDocument) -> tuple[OwedEpoch, ...]:
    """Give what a stage that has acknowledged owes once the checkpoint has completed.

    An upstream that has run again since the stage read from it is owed too: the stage reads it a second time, which is
    what this mode allows. A stage that was skipped owes what it owed before, in any mode.

    Args:
        document: what the checkpoint expects.
        ack: the stage's acknowledgement.
    """
    spec = document.stage(ack.stage)
    if ack.skipped:
        return document.backlogs.get(ack.stage, ())
    if spec is None or not document.limits.at_least_once:
        return ()
    executions = {uid: document.executions[uid] for uid in spec.upstream}
    inputs = {uid: each for uid, each in executions.items() if ack.consumed.get(uid) != each.token}
    return (OwedEpoch(document.epoch, inputs=inputs),) if inputs else ()
