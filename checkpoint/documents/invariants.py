"""Invariants between a version of the head and the next, checked before every swap."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from ...storage.errors import CairnError, ErrorKind
from .entries import MAX_FAILURES
from .head import (
    MAX_DECLINED,
    MAX_HISTORY,
    MAX_IMPORTS,
    MAX_INTERVENTIONS,
    MAX_NOTICES,
    MAX_RESTORES,
    MAX_SAVEPOINTS,
    MAX_TRIGGERING,
    MAX_WAITING,
    Head,
)


class InvariantError(CairnError):
    """A decision would have broken the head; nothing was written. This is a defect of Cairn: please report it."""

    kind = ErrorKind.INTERNAL


def check_invariants(old: Head, new: Head) -> None:
    """Check what must hold between a version of the head and the next, before it is written.

    Raises:
        InvariantError: an invariant is broken; the text names it.
    """
    for name, holds in _invariants(old, new):
        if not holds:
            raise InvariantError(
                f"nothing was written, because this would no longer hold: {name}. Please report it",
                job=new.job,
                revision=old.revision,
            )


def _invariants(old: Head, new: Head) -> Iterator[tuple[str, bool]]:
    pending, completed = {e.id: e for e in new.pending}, {e.id: e for e in new.completed}
    was_pending, was_completed = {e.id: e for e in old.pending}, {e.id: e for e in old.completed}
    ended = {e.id: e.status for e in new.history}
    yield "the job never changes", new.job == old.job
    yield "ids never go back (T5)", new.next_id >= old.next_id
    yield "every id was handed out (T5)", all(0 < i < new.next_id for i in (*pending, *completed, *ended))
    yield "only new ids become pending (T5)", all(i >= old.next_id for i in pending.keys() - was_pending.keys())
    yield (
        "what is pending never changes",
        all(pending[i] == was_pending[i] for i in pending.keys() & was_pending.keys()),
    )
    yield "completed and pending exclude each other (D3)", not pending.keys() & (completed.keys() | ended.keys())
    yield "an epoch has one pending attempt", len({e.epoch for e in new.pending}) == len(new.pending)
    yield "completed checkpoints are in order", [e.id for e in new.completed] == sorted(completed)
    yield (
        "what has completed never changes",
        all(completed[i] == was_completed[i] for i in completed.keys() & was_completed.keys()),
    )
    yield "an outcome never changes (D3)", all(ended.get(e.id, e.status) is e.status for e in old.history)
    yield "what was pending is pending or has an outcome (D3)", all(i in pending or i in ended for i in was_pending)
    imported = {e.checkpoint for e in new.imports} - {e.checkpoint for e in old.imports}
    yield (
        "only what was pending completes, or was imported (D3)",
        completed.keys() - was_completed.keys() <= was_pending.keys() | imported,
    )
    yield (
        "what is imported completes at once, under an id of its own (T5)",
        imported <= completed.keys()
        and all(i >= old.next_id or (old.importing is not None and i == old.importing.home) for i in imported),
    )
    yield "an import has an id of its own (T5)", new.importing is None or new.importing.home < new.next_id
    yield "the imports are bounded", sum(not e.claimed for e in new.imports) <= MAX_IMPORTS + len(new.completed)
    yield "no epoch completes twice (T9)", not ({e.epoch for e in new.pending} & old.completions().keys())
    spans = [(each.to, each.through) for each in new.rewinds]
    yield (
        "rewinds are in order and apart",
        all(to < through < new.next_id for to, through in spans)
        and all(before[1] < after[0] for before, after in pairwise(spans)),
    )
    yield (
        "what was rewound stays so",
        all(any(to <= e.to and e.through <= through for to, through in spans) for e in old.rewinds),
    )
    yield "what was rewound is not restored (R5)", not any(new.rewind_of(i) for i in completed)
    listened = {e.id for e in old.pending if e.listeners} - pending.keys()
    yield "every listener is notified (C4, D4)", listened <= {notice.checkpoint for notice in new.notices}
    yield "the notices are bounded", new.notices_waiting() <= max(MAX_NOTICES, old.notices_waiting())
    yield "notes of version 0.1 are judged by one bound", old.notes_below in (None, new.notes_below)
    yield "the history is bounded", len(new.history) <= MAX_HISTORY and len(new.restores) <= MAX_RESTORES
    remembered = new.restart_memory.times_ms if new.restart_memory else ()
    yield "the failures that are remembered are bounded (F4)", len(remembered) <= MAX_FAILURES
    yield from _of_savepoints(old, new)
    waiting = [e.epoch for e in new.waiting]
    ranks = [e.kind.rank for e in new.waiting]
    yield "no epoch waits twice (T2)", len(set(waiting)) == len(waiting)
    yield "waiting and pending exclude each other (T9)", not set(waiting) & {e.epoch for e in new.pending}
    yield "the line is in order (T2)", ranks == sorted(ranks)
    yield "the line is bounded (T2)", len(waiting) <= MAX_WAITING
    triggering = [e.epoch for e in new.triggering]
    yield "one task triggers an epoch (T10)", len(set(triggering)) == len(triggering)
    yield "the tasks that trigger are bounded (T10)", len(triggering) <= MAX_TRIGGERING
    yield "the declined are bounded (T1)", len(new.declined) <= MAX_DECLINED
    yield "the interventions are bounded (O1)", len(new.interventions) <= MAX_INTERVENTIONS


def _of_savepoints(old: Head, new: Head) -> Iterator[tuple[str, bool]]:
    if not (old.savepoints or new.savepoints):
        return
    now, before = {e.id: e for e in new.savepoints}, {e.id: e for e in old.savepoints}
    checkpoints = {e.id for e in new.pending} | {e.id for e in new.completed} | {e.id for e in new.history}
    yield "savepoints are in order (T5)", list(now) == sorted(now) and len(now) == len(new.savepoints)
    yield "only new ids become savepoints (T5)", all(old.next_id <= i < new.next_id for i in now.keys() - before.keys())
    yield "a savepoint's id is no checkpoint's (T5)", not now.keys() & checkpoints
    yield "a request has one savepoint (P1)", len({e.request for e in new.savepoints}) == len(now)
    yield "a savepoint's end never changes (D3)", all(now.get(i, e) == e for i, e in before.items() if e.ended)
    yield "a savepoint under way is not forgotten", all(i in now for i, e in before.items() if not e.ended)
    yield (
        "a savepoint's source never changes",
        all(now[i].source == e.source for i, e in before.items() if i in now and e.source is not None),
    )
    yield "the savepoints are bounded (P3)", len(now) <= MAX_SAVEPOINTS
    yield "what is forgotten is counted (P3)", new.forgotten >= old.forgotten + (len(now) < len(before))
