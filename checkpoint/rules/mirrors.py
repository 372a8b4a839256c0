"""A job's mirrors, as pure functions of heads: holds, the mirror's head, the activation, the move (semantics M1 to M6).

The head of a mirror follows from one version of the job's head, whose revision orders the passes: no older version ever
takes the place of a newer one. Attempts that have not completed are left out, because their files are not copied; their
epochs begin anew.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import takewhile

from ...storage.records import dataclass
from ..documents.attempt import DocumentRef, RestorePointer
from ..documents.entries import Notice
from ..documents.head import MAX_HISTORY, MAX_HOLDS, MAX_MIRRORS, MAX_UNFINISHED, Head, check_no_mirror
from ..documents.mirrors import HOLD_MS, MirrorEntry, MirrorHold, MirrorOf, Moved
from ..errors import CheckpointError, NoCheckpointError, RefusedError
from ..reasons import Status
from ..validation import MIRROR_LISTENER
from . import transitions

LATE_MS = 24 * 60 * 60 * 1_000
"""Time that a mirror may lack a completed checkpoint before it is a warning."""

IDS_LEFT_OUT = 100_000
"""Ids that an activation leaves out: those that the first storage may have handed out since the last pass (T5)."""


@dataclass(frozen=True, slots=True)
class Lag:
    """The lag of a mirror behind its job (semantics M4)."""

    uri: str
    """The mirror's storage."""
    checkpoint: int | None
    """The newest checkpoint that it holds; None: no pass has ended yet."""
    completed_at_ms: int | None
    """When that checkpoint completed, milliseconds since 1970 UTC; a move by a failover loses what came later."""
    behind: int
    """Completed checkpoints that it lacks; a rewind that undid its newest counts as one."""
    behind_since_ms: int | None
    """When the oldest of these completed, or the rewind was made; None: it lacks none."""

    def is_late(self, now_ms: int) -> bool:
        """Tell whether the mirror has lacked a completed checkpoint for more than a day."""
        return self.behind_since_ms is not None and now_ms - self.behind_since_ms > LATE_MS


def lags(head: Head) -> tuple[Lag, ...]:
    """Give the lag of each mirror, as far as the job's own head knows."""
    return tuple(_lag(head, entry) for entry in head.mirrors)


def _lag(head: Head, entry: MirrorEntry) -> Lag:
    lacks = [
        each.ended_at_ms
        for each in head.history
        if each.status is Status.COMPLETED and each.id > (entry.checkpoint or 0) and head.rewind_of(each.id) is None
    ]
    undone = head.rewind_of(entry.checkpoint) if entry.checkpoint is not None else None
    if undone is not None:
        lacks.append(undone.at_ms)
    behind = max(len(lacks), head.counters.completed - entry.counted) if lacks else 0
    at_ms = None if entry.checkpoint is None else entry.completed_at_ms
    return Lag(entry.uri, entry.checkpoint, at_ms, behind, min(lacks, default=None))


def check_runs_here(head: Head, storage: str) -> None:
    """Refuse a trigger in a mirror that nobody has activated, and in a job that goes on elsewhere (semantics M5).

    Raises:
        CheckpointError: the head is that of one of these; the text has the command.
    """
    if head.moved is not None:
        raise CheckpointError(
            f"the job has moved to {head.moved.uri}, its mirror. Let its DAG run with that storage. Or take a move "
            f"back that has not ended: `cairn mirror {head.job} --to {head.moved.uri} --give-up --storage {storage}`. "
            "To go back, mirror that job to a new folder here and activate it: "
            f"`cairn mirror {head.job} --to NEW_URI --storage {head.moved.uri}`, then "
            f"`cairn activate {head.job} --storage NEW_URI --from {head.moved.uri}`",
            code="job_moved",
            job=head.job,
            storage=storage,
        )
    check_no_mirror(head, storage)


def entry_of(head: Head, mirror: str) -> MirrorEntry | None:
    """Give the job's entry of a mirror, by the mirror's id."""
    return next((each for each in head.mirrors if each.id == mirror), None)


def held(head: Head, storage: str, uri: str, mirror: str, token: str, now_ms: int) -> Head:
    """Give the job's head in which the cleaner spares the newest checkpoint for a pass that begins, or goes on.

    Args:
        head: the version decided on.
        storage: the job's storage, for messages.
        uri: the mirror's.
        mirror: its id, new if the head has no entry of it.
        token: of the pass.
        now_ms: the time, milliseconds since 1970 UTC.

    Raises:
        NoCheckpointError: nothing has completed yet.
        RefusedError: the job has too many mirrors.
        CheckpointError: the job is a mirror itself, or has moved elsewhere.
    """
    check_no_mirror(head, storage)
    if head.moved is not None and head.moved.id != mirror:
        check_runs_here(head, storage)
    latest = head.latest_completed()
    if latest is None:
        raise NoCheckpointError(
            "there is nothing to mirror: the job has completed no checkpoint. Let an epoch complete first", job=head.job
        )
    entry = entry_of(head, mirror) or MirrorEntry(uri, mirror)
    hold = MirrorHold(
        token,
        RestorePointer(latest.id, latest.metadata),
        now_ms + HOLD_MS,
        tuple(each.key for each in (*(segment.document for segment in head.segments), *owed(head))),
        latest.folded,
    )
    alive = tuple(each for each in entry.holds if each.until_ms > now_ms and each.token != token)
    others = tuple(each for each in head.mirrors if each.id != mirror)
    if len(others) >= MAX_MIRRORS:
        raise RefusedError(
            f"a job has at most {MAX_MIRRORS} mirrors. Give one up: `cairn mirror {head.job} --to URI --give-up`",
            code="mirror_refused",
            job=head.job,
            mirrors=", ".join(each.uri for each in others),
        )
    return _with(head, replace(entry, unswept=True, holds=(*alive, hold)[-MAX_HOLDS:]))


def is_held(head: Head, mirror: str, token: str) -> bool:
    """Tell whether a pass holds the checkpoint that is the newest in this version."""
    entry, latest = entry_of(head, mirror), head.latest_id()
    return entry is not None and any(each.token == token and each.source.checkpoint == latest for each in entry.holds)


def renewed(head: Head, mirror: str, token: str, now_ms: int) -> Head:
    """Give the head with a pass's hold prolonged; the same head if the hold has ended, or was dropped for others."""
    entry = entry_of(head, mirror)
    if entry is None:
        return head
    holds = tuple(
        replace(each, until_ms=now_ms + HOLD_MS) if each.token == token and each.until_ms > now_ms else each
        for each in entry.holds
    )
    return _with(head, replace(entry, holds=holds))


def released(head: Head, mirror: str, token: str, made: Head | None, *, clean: bool) -> Head:
    """Give the job's head at the end of a pass.

    Args:
        head: the version decided on.
        mirror: the mirror's id.
        token: of the pass.
        made: the version of the job's head that the mirror's head copies now; None: the pass failed or was overtaken.
        clean: the pass has left no file that the mirror's head does not name.
    """
    entry = entry_of(head, mirror)
    if entry is None:
        return head
    holds = tuple(each for each in entry.holds if each.token != token)
    if made is None and holds:
        # Passes that run beside this one list nothing. An ended hold tells them that this one has left files.
        holds = (*holds, *(replace(each, until_ms=0) for each in entry.holds if each.token == token))
    latest = made.latest_completed() if made is not None else None
    entry = replace(entry, holds=holds)
    if made is not None and latest is not None and made.revision >= entry.revision:
        entry = replace(
            entry,
            unswept=entry.unswept and not (clean and not holds),
            checkpoint=latest.id,
            completed_at_ms=latest.completed_at_ms,
            counted=made.counters.completed,
            revision=made.revision,
        )
    return _with(head, entry)


def _with(head: Head, entry: MirrorEntry) -> Head:
    known = any(each.id == entry.id for each in head.mirrors)
    mirrors = tuple(entry if each.id == entry.id else each for each in head.mirrors)
    return replace(head, mirrors=mirrors if known else (*mirrors, entry))


def mirrored(mirror: Head, source: Head, of: MirrorOf) -> Head:
    """Give the mirror's head as a copy of a version of the job's, whose newest checkpoint has been copied.

    Args:
        mirror: the version of the mirror's head decided on.
        source: the version of the job's head.
        of: the mirror's record of the job.
    """
    *before, latest = source.completed  # a pass begins with the newest
    # No gap: a restore that falls back replays the epochs of the retained checkpoints that it passes over.
    unbroken = takewhile(lambda each: each in mirror.completed, reversed(before))
    completed = (*reversed([*unbroken]), latest)
    return replace(
        source,
        revision=mirror.revision,
        writes=mirror.writes,
        next_id=max(mirror.next_id, source.next_id),
        pending=(),
        completed=completed,
        history=tuple(each for each in source.history if each.status is Status.COMPLETED),
        notices=_notices(source),
        waiting=(),
        triggering=(),
        declined=(),
        failures=0,
        restart_memory=None,
        importing=None,
        imports=tuple(replace(each, claimed=False) for each in source.imports),
        savepoints=tuple(each for each in source.savepoints if each.ended),
        mirrors=(),
        moved=None,
        mirror_of=of,
    )


def owed(head: Head) -> tuple[DocumentRef, ...]:
    """Give the metadata of completed checkpoints whose sinks have still to commit (semantics C4)."""
    return tuple(each.metadata for each in _notices(head) if each.metadata is not None)


def _notices(head: Head) -> tuple[Notice, ...]:
    """Give the waiting notices of completed checkpoints, without the mirror's own listener."""
    told = (
        replace(each, listeners=tuple(name for name in each.listeners if name != MIRROR_LISTENER))
        for each in head.undelivered_completions()
    )
    return tuple(each for each in told if each.listeners)


def begun(head: Head) -> tuple[str, ...]:
    """Give the epochs that have begun, or wait, and have not completed: a mirror of this version lacks them.

    At most `MAX_UNFINISHED`: epochs that ended longest ago are left out.
    """
    done = head.completions()
    known = (each.epoch for entries in (head.history, head.pending, head.waiting) for each in entries)
    open_ = [epoch for epoch in known if epoch not in done]
    return tuple(dict.fromkeys(open_))[-MAX_UNFINISHED:]


def to_run_again(head: Head) -> tuple[str, ...]:
    """Give the epochs that an activated mirror is known to have lacked, and that have not completed in it since.

    Empty once the history has forgotten what ended right after the activation, and can no longer tell.
    """
    of = head.mirror_of
    if of is None or not of.activated_at_ms:
        return ()
    if len(head.history) >= MAX_HISTORY and head.history[0].ended_at_ms > of.activated_at_ms:
        return ()
    done = head.completions()
    return tuple(epoch for epoch in of.again if epoch not in done)


def moved_to(head: Head, mirror: str, uri: str, now_ms: int) -> Head:
    """Give the head of a job that goes on in its mirror: what was pending has ended, and nothing waits."""
    if head.moved is not None:
        return head
    detail = f"the job has moved to {uri}"
    ended = transitions.give_up_stop(transitions.suspend_pending(head, detail, now_ms), detail, now_ms)
    return replace(ended, waiting=(), moved=Moved(mirror, uri, now_ms))


def activated(head: Head, again: tuple[str, ...], now_ms: int) -> Head:
    """Give the head of a mirror that is the job from now on.

    The next trigger records the owner: another deployment may run the DAG here (semantics W8).
    """
    assert head.mirror_of is not None
    of = replace(head.mirror_of, activated_at_ms=now_ms, again=again)
    return replace(head, mirror_of=of, owner=None, next_id=head.next_id + IDS_LEFT_OUT)
