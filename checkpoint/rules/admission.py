"""Admits a trigger request, lets it wait, or declines it (semantics T1 to T4, T6, T9).

`decide` is a pure function of head, request and clock. The loop that swaps the head calls it, so its conditions hold in
the very version that makes the checkpoint pending (T6).

A waiting request need not trigger again to learn that it still waits: `still_waits` makes the same checks on the head
alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ...storage.errors import OF_THE_STORE, CairnError, ErrorKind
from ...storage.older_pythons import StrEnum
from ...storage.records import dataclass
from ..answers import Declined, EpochCompleted, InputRefused, TriggerAnswer, Triggered, TriggerRequest
from ..documents.attempt import Owner, PendingDocument
from ..documents.entries import DeclinedRequest, EndedEntry, JobOwner, Stopped, WaitingRequest
from ..documents.head import MAX_DECLINED, Head
from ..documents.layout import run_id_of
from ..documents.read_windows import WindowText
from ..errors import CheckpointError, InvalidConfigError
from ..masking import one_line
from ..reasons import Reason, RequestKind, Status
from . import history, transitions
from .transitions import Ending


class RunState(StrEnum):
    """State of a DAG run, as far as this deployment knows."""

    RUNNING = "running"
    """Queued or running, or Airflow did not answer."""
    ENDED = "ended"
    """Succeeded or failed."""
    UNKNOWN = "unknown"
    """This deployment has no such run: the run was deleted, or belongs to another deployment."""


@dataclass(frozen=True, slots=True)
class Admit:
    """The checkpoint may be opened now."""


@dataclass(frozen=True, slots=True)
class Wait:
    """The request has to ask again; if it has an owner, `waiting` holds its place (T2)."""

    reason: Reason
    position: int
    """1-based place in the queue."""
    waiting: tuple[WaitingRequest, ...]
    retry_at_ms: int | None = None
    """End of the pause (T3), milliseconds since 1970 UTC; None: ask again when another checkpoint has ended."""
    savepoint: str | None = None
    """URI of the savepoint that stops the job; the request waits for its end (P2)."""


@dataclass(frozen=True, slots=True)
class Decline:
    """The request is refused."""

    reason: Reason
    detail: str


Verdict = Admit | Wait | Decline


@dataclass(frozen=True, slots=True)
class Turn:
    """The part of a request that decides about its turn; small enough to be sent to another process."""

    epoch: str
    kind: RequestKind
    max_concurrent: int
    """`CheckpointConfig.max_concurrent_checkpoints`."""
    min_pause_ms: int
    """`CheckpointConfig.min_pause`."""
    owner: Owner | None = None
    """The asking DAG run; only needed to take a place in the queue."""
    window: WindowText | None = None
    """The epoch's input, for people; None where a source will tell."""


@dataclass(frozen=True, slots=True)
class StillWaits:
    """The request would be told to wait again."""

    reason: Reason
    position: int | None
    """1-based place in the queue; None where the queue is full."""
    left_ms: int | None = None
    """Rest of the pause (T3); None: the request waits until a checkpoint or another request ends."""


def decide(head: Head, request: TriggerRequest, now_ms: int) -> Verdict:
    """Check a request in the order of semantics T1.

    Args:
        head: the version decided on, without expired checkpoints; the epoch has no pending attempt in it.
        request: the trigger request.
        now_ms: the time, milliseconds since 1970 UTC.
    """
    return _held_back(head, turn_of(request), now_ms) or Admit()


def turn_of(request: TriggerRequest) -> Turn:
    """Give the part of a request that decides about its turn."""
    config = request.config
    return Turn(
        request.epoch,
        request.kind,
        config.max_concurrent_checkpoints,
        config.min_pause_ms,
        request.owner,
        request.window,
    )


def still_waits(head: Head, turn: Turn, now_ms: int) -> StillWaits | None:
    """Tell from the head alone whether a waiting request still waits (semantics T2, T3).

    The head does not show that a DAG run before it has ended: see `held_up_by`.

    Args:
        head: the newest version; expired checkpoints in it count as ended (D2).
        turn: of the request.
        now_ms: the time, milliseconds since 1970 UTC.

    Returns:
        None where the request has to trigger again: it would be admitted or declined, has lost its place, or its epoch
        has gone on.
    """
    if head.pending_of_epoch(turn.epoch) is not None or turn.epoch in head.completions():
        return None
    verdict = _held_back(_without_expired(head, now_ms), turn, now_ms)
    if isinstance(verdict, Decline) and verdict.reason is Reason.TOO_MANY_CHECKPOINT_REQUESTS:
        return StillWaits(verdict.reason, None)
    if not isinstance(verdict, Wait) or not transitions.has_place(head.waiting, turn.epoch):
        return None
    left_ms = None if verdict.retry_at_ms is None else verdict.retry_at_ms - now_ms
    return StillWaits(verdict.reason, verdict.position, left_ms)


@dataclass(frozen=True, slots=True)
class HeldUp:
    """DAG runs whose end lets a waiting request go on; their states are known to Airflow, not to the head."""

    asks: Owner | None
    """The waiting DAG run, as the queue has it."""
    pending: tuple[Owner, ...]
    """DAG runs whose checkpoints are pending: a run that has ended still holds a place."""
    before: tuple[Owner, ...]
    """DAG runs before it in the queue for which a place is free: a run that has ended does not take it."""
    last_run: str | None = None
    """The epoch that a stop of the job waits for, if there is one (semantics P2)."""


def held_up_by(head: Head, turn: Turn) -> HeldUp:
    """Name the DAG runs that hold up a waiting request until they end; a trigger then passes them over (T2)."""
    place = next((each for each in head.waiting if each.epoch == turn.epoch), None)
    ahead = head.waiting[: transitions.place_of(head.waiting, turn.epoch) - 1] if place is not None else head.waiting
    free = max(0, turn.max_concurrent - len(head.pending))
    stopping = head.kept_from(turn.epoch)
    return HeldUp(
        asks=place.owner if place is not None else None,
        pending=tuple(each.owner for each in head.pending if each.owner is not None),
        before=tuple(each.owner for each in ahead[:free] if each.owner is not None),
        last_run=stopping.epoch if stopping is not None and stopping.waits else None,
    )


def _without_expired(head: Head, now_ms: int) -> Head:
    """Drop expired checkpoints: the next trigger completes or fails them (semantics D2)."""
    pending = tuple(entry for entry in head.pending if now_ms < entry.expires_at_ms)
    return transitions.go_on_undrained(history.expire_savepoints(replace(head, pending=pending), now_ms), now_ms)


def _held_back(head: Head, turn: Turn, now_ms: int) -> Wait | Decline | None:
    if head.stopped is Stopped.SHUTDOWN:
        return Decline(Reason.CHECKPOINT_COORDINATOR_SHUTDOWN, "the job was shut down, and is to be resumed first")
    if head.stopped is not None and turn.kind is RequestKind.PERIODIC:
        return Decline(
            Reason.PERIODIC_SCHEDULER_SHUTDOWN, f"the job is {head.stopped}; only manual requests are accepted"
        )
    stopping = head.kept_from(turn.epoch)
    if head.stops_after(turn.epoch) and len(head.pending) < turn.max_concurrent:
        # Requests before it in the queue wait for the end of the stop, which waits for this epoch (semantics P2).
        return None
    asked = WaitingRequest(turn.epoch, turn.kind, now_ms, turn.owner, turn.window)
    joined = transitions.join_queue(head.waiting, asked)
    if joined is None:
        detail = f"{len(head.waiting)} requests wait already, and none of them would give way to this one"
        return Decline(Reason.TOO_MANY_CHECKPOINT_REQUESTS, detail)
    position = transitions.place_of(joined, turn.epoch)
    # Only a request with an owner keeps a place: an abandoned one would hold up all behind it.
    waiting = joined if turn.owner is not None else head.waiting
    if stopping is not None:
        # If the stop fails, the job and its queue go on; if it succeeds, the queue is dropped (semantics P2, S1).
        return Wait(Reason.CHECKPOINT_COORDINATOR_SUSPEND, position, waiting, savepoint=stopping.uri)
    if position > turn.max_concurrent - len(head.pending):
        known = transitions.has_place(head.waiting, turn.epoch)
        reason = Reason.ALREADY_QUEUED if known else Reason.TOO_MANY_CONCURRENT_CHECKPOINTS
        return Wait(reason, position, waiting)
    pause_ends = _pause_ends_ms(head, turn, now_ms)
    if now_ms < pause_ends:
        return Wait(Reason.MINIMUM_TIME_BETWEEN_CHECKPOINTS, position, waiting, pause_ends)
    return None


def _pause_ends_ms(head: Head, turn: Turn, now_ms: int) -> int:
    latest = head.latest_completed()
    if turn.kind is not RequestKind.PERIODIC or latest is None:
        return 0
    # The end of a savepoint starts the pause, too (semantics T4).
    ends = [each.ended_at_ms for each in head.savepoints if each.status is Status.COMPLETED]
    # A checkpoint made from a savepoint took no run's time: the first epoch after it need not wait (semantics T3).
    if head.import_of(latest.id) is None:
        ends.append(latest.completed_at_ms)
    # An end further ahead than the pause comes from a wrong clock: it would hold the schedule up until then.
    ends = [each for each in ends if each - now_ms <= turn.min_pause_ms]
    return max(ends) + turn.min_pause_ms if ends else 0


def noted(head: Head, request: TriggerRequest, verdict: Wait | Decline, now_ms: int) -> Head:
    """Record a decline in the head; waiting is not a decline, and the same decline again changes nothing."""
    if isinstance(verdict, Wait):
        return head
    detail = one_line(verdict.detail)
    of_all = verdict.reason is Reason.TOO_MANY_CHECKPOINT_REQUESTS
    for each in head.declined:
        if (each.reason, each.detail) == (verdict.reason, detail) and (of_all or each.epoch == request.epoch):
            return head
    return _with(head, DeclinedRequest(request.epoch, request.kind, verdict.reason, detail, now_ms, request.window))


def _with(head: Head, entry: DeclinedRequest) -> Head:
    others = tuple(each for each in head.declined if each.epoch != entry.epoch)
    return replace(head, declined=(*others, entry)[-MAX_DECLINED:])


def reason_of(error: CairnError) -> Reason:
    """Give Flink's reason for a failed trigger (semantics T1)."""
    return Reason.IO_EXCEPTION if error.kind in OF_THE_STORE else Reason.TRIGGER_CHECKPOINT_FAILURE


def failed(head: Head, request: TriggerRequest, error: CairnError, now_ms: int) -> Head:
    """Record and count a trigger that failed before its checkpoint got an id (T1, D5); the request keeps its place."""
    if error.kind is ErrorKind.INVALID and "source" not in error.fields:
        return head  # the request itself is wrong, so nothing of it may be written
    if head.pending_of_epoch(request.epoch) is not None or request.epoch in head.completions():
        return head  # only the answer was lost, or the trigger failed after its checkpoint was made
    reason, detail = reason_of(error), str(error)
    kept = _with(head, DeclinedRequest(request.epoch, request.kind, reason, one_line(detail), now_ms, request.window))
    return transitions.fail_trigger(kept, reason, detail, request.config.tolerable_failed_checkpoints, now_ms)


def answer(head: Head, request: TriggerRequest, verdict: Wait | Decline) -> Declined:
    """Describe the verdict for the log; `head` has the request's place in the queue."""
    if isinstance(verdict, Decline):
        return Declined(verdict.reason, verdict.detail)
    if verdict.savepoint is not None:
        detail = f"the job is being stopped with the savepoint {verdict.savepoint}; it goes on only if that fails"
    elif verdict.reason is Reason.MINIMUM_TIME_BETWEEN_CHECKPOINTS:
        detail = f"the last checkpoint completed less than min_pause ({request.config.min_pause}) ago"
    else:
        detail = _too_many(head, request, verdict.position)
    return Declined(verdict.reason, detail, verdict.position, verdict.retry_at_ms)


def _too_many(head: Head, request: TriggerRequest, position: int) -> str:
    limit = f"max_concurrent_checkpoints is {request.config.max_concurrent_checkpoints}"
    if len(head.pending) < request.config.max_concurrent_checkpoints:
        first = head.waiting[0]
        whose = f"DAG run {first.owner.run_id}" if first.owner else f"epoch {first.epoch}"
        return f"{whose} is before it in the queue, place {position}, and {limit}"
    held = head.pending[0]
    whose = f" of DAG run {held.owner.run_id}" if held.owner else ""
    return f"checkpoint {held.id}{whose} is pending and {limit}; place {position} in the queue"


# Giving up the place of a DAG run that has ended (semantics T2, D2, W8), and the stop that waits for it (P2).
#
# The end of an attempt settles a stop in the same swap (`history.settle_savepoints`). Two other cases are settled here:
# a refused trigger, which settles the stop itself, and a DAG run that has ended without its epoch, which any other run
# of the job settles when the stop holds back its trigger.


StateOf = Callable[[Owner], RunState]
"""Gives this deployment's state of a DAG run that holds a place."""


def always_running(_owner: Owner) -> RunState:
    """Assume that every DAG run that holds a place is running."""
    return RunState.RUNNING


def without_ended(
    head: Head, state_of: StateOf, asks: Owner | None, epoch: str, max_concurrent: int, now_ms: int
) -> Head:
    """Free the places of ended DAG runs: abort their pending checkpoints, and drop their requests before an epoch.

    Args:
        head: the version decided on; the epoch has no pending attempt in it.
        state_of: gives the state of a DAG run; called for queued runs only as far as places are free.
        asks: the asking DAG run.
        epoch: its epoch.
        max_concurrent: `CheckpointConfig.max_concurrent_checkpoints`.
        now_ms: the time, milliseconds since 1970 UTC.
    """
    for entry in head.pending:
        if entry.owner is not None and is_over(state_of(entry.owner), entry.owner, asks):
            detail = f"the DAG run {entry.owner.run_id} has ended"
            head = transitions.abort(head, entry, Ending(Reason.JOB_FAILURE, detail), now_ms)
    free = max_concurrent - len(head.pending)
    for other in head.waiting:
        if free <= 0 or other.epoch == epoch:
            break
        if other.owner is not None and state_of(other.owner) is not RunState.RUNNING:
            head = replace(head, waiting=transitions.leave_queue(head.waiting, other.epoch))
        else:
            free -= 1
    return head


def why_not_begun(answer: TriggerAnswer) -> tuple[Reason, str] | None:
    """Say why a trigger's answer means that the epoch does not begin; None where it does, or may later."""
    if isinstance(answer, Triggered):
        return None
    if isinstance(answer, Declined):
        asks_again = answer.position is not None or answer.reason is Reason.TOO_MANY_CHECKPOINT_REQUESTS
        return None if asks_again else (answer.reason, answer.detail)
    if isinstance(answer, EpochCompleted):
        return Reason.TRIGGER_CHECKPOINT_FAILURE, f"it has completed before, in checkpoint {answer.checkpoint}"
    if isinstance(answer, InputRefused):
        return Reason.TRIGGER_CHECKPOINT_FAILURE, f"{answer.source}: {answer.detail}"
    if answer.source:
        return Reason.TRIGGER_CHECKPOINT_FAILURE, f"{answer.source}: {answer.window}"
    return (
        Reason.TRIGGER_CHECKPOINT_FAILURE,
        f"checkpoint {answer.checkpoint} holds its input, {answer.window}, already",
    )


def fail_stop_of_ended_run(
    head: Head,
    request: TriggerRequest,
    document_of: Callable[[EndedEntry], PendingDocument | None],
    state_of: StateOf,
    now_ms: int,
) -> Head:
    """Fail a stop that holds a request back and waits for a DAG run that has ended.

    Args:
        head: the version decided on.
        request: the request of another run of the job.
        document_of: reads the document of an ended attempt; None where that is gone.
        state_of: gives the state of a DAG run; an unknown run may still be created.
        now_ms: the time, milliseconds since 1970 UTC.
    """
    if not head.stops_after(request.epoch):
        # The awaited attempt may just have ended with its run; then this request is no longer held back. The epoch that
        # the stop waits for does not settle it: its own trigger is about to open the next attempt.
        head = history.settle_savepoints(head, now_ms)
    stopping = head.kept_from(request.epoch)
    if stopping is None or not stopping.waits or head.pending_of_epoch(stopping.epoch) is not None:
        return head
    ended = next(head.ended_of_epoch(stopping.epoch), None)
    document = document_of(ended) if ended is not None else None
    owner = document.owner if document is not None else None
    if owner is None and request.owner is not None:
        # The job's last run belongs to the same DAG.
        owner = replace(request.owner, run_id=run_id_of(stopping.epoch))
    if owner is None or state_of(owner) is not RunState.ENDED:
        return head
    detail = f"the DAG run {owner.run_id} has ended"
    return history.refuse_savepoints(head, stopping.epoch, Reason.JOB_FAILURE, detail, now_ms)


# The owner of a job: one DAG of one Airflow deployment (semantics W8).
#
# The first trigger records the owner in the swap that it makes anyway. From then on another DAG, or the same DAG of
# another deployment, is refused before it changes anything. Two first triggers race for that swap: one records itself,
# the other decides again on the head that names the first, and is refused. A crash before the swap leaves a job without
# an owner, a crash after it leaves the owner; both are valid. Only a person changes the owner: `Ownership.adopt`.


MAX_DEPLOYMENT = 250
"""Characters of a deployment's name; Airflow's own bound for the id of a DAG, too."""


@dataclass(frozen=True, slots=True)
class Adopted:
    """A job's change of owner; `before` equals `after` where nothing had to change."""

    before: JobOwner | None
    after: JobOwner
    aborted: tuple[int, ...] = ()
    """Pending checkpoints that the adoption aborted."""


def check_deployment(name: str) -> str:
    """Return a deployment's name if it can be stored and printed.

    Raises:
        InvalidConfigError: the name is too long, or holds characters that cannot be printed.
    """
    if len(name) > MAX_DEPLOYMENT or not name.isprintable():
        raise InvalidConfigError(
            f"the name of a deployment has at most {MAX_DEPLOYMENT} printable characters; set [cairn] deployment "
            "(AIRFLOW__CAIRN__DEPLOYMENT) to another one",
            deployment=repr(name[:MAX_DEPLOYMENT]),
        )
    return name


def describe_owner(owner: JobOwner) -> str:
    """Name an owner for people: "DAG flights of the deployment https://airflow.example.com"."""
    of = f"the deployment {owner.deployment}" if owner.deployment else "a deployment without a name"
    return f"DAG {owner.dag_id} of {of}"


def check_owner(head: Head, asks: JobOwner, refused: str, way_out: str, storage: str = "") -> None:
    """Refuse another owner than the recorded one (semantics W8).

    Args:
        head: the version decided on.
        asks: the owner that asks.
        refused: end of the error's first sentence, after both owners: the refused act, and the reason.
        way_out: remedy, if the request was a mistake.
        storage: the job's storage, for the command to type; empty where the reader knows.

    Raises:
        CheckpointError: the job belongs to another DAG or deployment.
    """
    if head.owner in (None, asks):
        return
    assert head.owner is not None
    more = f" --deployment '{asks.deployment}'" if asks.deployment else ""
    more += f" --storage {storage}" if storage else ""
    raise CheckpointError(
        f"the job belongs to {describe_owner(head.owner)}, and {describe_owner(asks)} {refused}. {way_out}; or, if the "
        "job has moved here and the other DAG no longer runs, "
        f"type: `cairn adopt {head.job} --dag {asks.dag_id}{more}`",
        code="job_owned",
        job=head.job,
    )


def take_ownership(head: Head, owner: Owner | None) -> Head:
    """Record the owner of a job that has none, and refuse another one (semantics W8).

    Args:
        head: the version decided on.
        owner: the asking DAG run; None for a caller that is not a DAG (a test, a script): then nothing is recorded.
    """
    if owner is None:
        return head
    asks = JobOwner(owner.dag_id, owner.deployment)
    refused = "has asked for a checkpoint. Two owners would end each other's checkpoints, so nothing was changed"
    check_owner(head, asks, refused, "Give this DAG a job name of its own")
    return replace(head, owner=asks)


def is_over(state: RunState, owner: Owner, asks: Owner | None) -> bool:
    """Tell whether a DAG run that holds a pending checkpoint has ended, as far as the asking run can know.

    An unknown run counts as running, because it may belong to another deployment. It counts as deleted only if both
    runs name the same deployment.

    Args:
        state: of the run, in the asking run's deployment.
        owner: the run.
        asks: the asking run.
    """
    if state is RunState.UNKNOWN:
        return asks is not None and bool(asks.deployment) and owner.deployment == asks.deployment
    return state is RunState.ENDED
