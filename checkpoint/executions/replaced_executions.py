"""Executions of a stage that were replaced and may still run somewhere (semantics V2, F3).

A Spark Connect server goes on with what a client has begun, also where the client and its task are dead. So who runs a
stage next has to know which executions came before it. The tokens of executions follow from those of their attempts,
so the head alone tells: nothing has to be stored for it, and no cleaner can have deleted it.
"""

from __future__ import annotations

from ..documents.attempt import execution_token
from ..documents.head import Head
from ..reasons import Status

MAX_REPLACED = 8
"""Each was known to the one after it, which may have ended before it could do anything about it: so more than one."""


def replaced_executions(head: Head, stage: str, token: str) -> tuple[str, ...]:
    """Give the tokens of a stage's executions that count no more, the newest first; eight at most.

    Those that acknowledged in a checkpoint that completed have ended by themselves, and are not among them.

    Args:
        head: as it is after the stage's current execution was claimed.
        stage: the stage's uid.
        token: of its current execution, which may have begun in an attempt that has ended (F2).
    """
    pending = {each.token for each in head.pending}
    ended = (
        each.token
        for each in reversed(head.history)
        if (each.status is not Status.COMPLETED or stage in each.left_out) and each.token not in pending
    )
    found = (execution_token(attempt, stage) for attempt in ended)
    return tuple(each for each in found if each != token)[:MAX_REPLACED]
