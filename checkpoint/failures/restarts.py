"""Whether a failed try is followed by another attempt, and when: Flink's four restart strategies (semantics F4).

The options are the author's; `RestartRule` is what travels with an attempt. `weigh` is a pure function of the rule, of
what the head remembers and of the clock, and is asked in the very swap that ends the attempt: so a failure counts once,
from every reporter and however often. That the job fails means that this epoch does; the count starts anew then.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from datetime import timedelta

from ..documents.attempt import RestartKind, RestartMemory, RestartRule
from ..documents.entries import MAX_FAILURES


@dataclass(frozen=True, slots=True)
class Restart:
    """The failed try is followed by another attempt."""

    count: int
    """Restarts of the epoch in a row, this one included."""
    delay_ms: int = 0
    memory: RestartMemory | None = None
    """What the head is to remember from now on."""


@dataclass(frozen=True, slots=True)
class Exhausted:
    """The job fails; `why` names the strategy and its limit."""

    why: str


def weigh(
    rule: RestartRule | None,
    memory: RestartMemory | None,
    restarts: int,
    now_ms: int,
    *,
    job: str,
    epoch: str,
    restart_at_ms: int = 0,
    began_ms: int | None = None,
    server: str = "",
) -> Restart | Exhausted:
    """Say what a failed try leads to (semantics F4).

    What ran already when a failure was counted, and fails before the restart that answers it, is of the same incident:
    it does not count, and waits for that restart. A try that began after the failure counts by itself. What fails
    because a Spark server is gone is of one incident with all else that fails for that, whenever it does (V4).

    Args:
        rule: the job's strategy; None: every failed try may be followed by another, as Airflow's retries allow.
        memory: what the head remembers of earlier failures.
        restarts: restarts of the epoch in a row so far.
        now_ms: the time of the failure, milliseconds since 1970 UTC.
        job: the job's name; jitter follows from it.
        epoch: the epoch's name; jitter follows from it.
        restart_at_ms: when the restart after the epoch's last counted failure is due, milliseconds since 1970 UTC; 0:
            there is none.
        began_ms: when the attempt was opened in which the failed try began, milliseconds since 1970 UTC; None: not
            known, so it counts.
        server: nonce of the Spark server whose end made the try fail; empty: it failed for another reason.
    """
    if rule is None:
        return Restart(0, memory=memory)
    if rule.kind is RestartKind.NONE:
        return Exhausted("NoRestart allows no restart")
    incident = _incident(rule, memory, restart_at_ms)
    counted = memory.server if memory is not None else ""
    if server and server == counted:
        delay_ms = max(0, incident.restart_at_ms - now_ms) if incident is not None else 0
        return Restart(max(1, restarts), delay_ms, memory)
    if incident is not None and began_ms is not None and began_ms < incident.at_ms <= now_ms < incident.restart_at_ms:
        return Restart(max(1, restarts), incident.restart_at_ms - now_ms, memory)
    verdict = _counted(rule, memory, restarts, now_ms, f"{job}/{epoch}")
    if isinstance(verdict, Restart) and (server or counted):
        verdict = replace(verdict, memory=replace(verdict.memory or RestartMemory(), server=server or counted))
    return verdict


def _counted(
    rule: RestartRule, memory: RestartMemory | None, restarts: int, now_ms: int, seed: str
) -> Restart | Exhausted:
    if rule.kind is RestartKind.FIXED_DELAY:
        limit = rule.attempts or 0
        if restarts >= limit:
            return Exhausted(
                f"FixedDelayRestart allows {_times(limit, 'restart')} of an epoch, and this was failure {restarts + 1}"
            )
        return Restart(restarts + 1, rule.delay_ms, memory)
    known = memory or RestartMemory()
    if rule.kind is RestartKind.FAILURE_RATE:
        return _by_rate(rule, known, restarts, now_ms)
    return _exponential(rule, known, restarts, now_ms, seed)


def left(rule: RestartRule, memory: RestartMemory | None, restarts: int, now_ms: int) -> int | None:
    """Say how many failures in a row would be answered by a restart if they came now; None: any number.

    Args:
        rule: the job's strategy.
        memory: what the head remembers of earlier failures.
        restarts: restarts of the epoch in a row so far.
        now_ms: the time, milliseconds since 1970 UTC.
    """
    if rule.attempts is None:
        return 0 if rule.kind is RestartKind.NONE else None
    used = restarts
    if rule.kind is RestartKind.FAILURE_RATE:
        used = len(_within(rule, memory or RestartMemory(), now_ms))
    elif rule.kind is RestartKind.EXPONENTIAL_DELAY:
        used = memory.in_a_row if memory is not None and not _quiet(rule, memory, now_ms) else 0
    return max(0, rule.attempts - used)


def _by_rate(rule: RestartRule, known: RestartMemory, restarts: int, now_ms: int) -> Restart | Exhausted:
    limit = rule.attempts or 0
    recent = _within(rule, known, now_ms)
    if len(recent) >= limit:
        span = timedelta(milliseconds=rule.interval_ms)
        return Exhausted(f"FailureRateRestart allows {_times(limit, 'failure')} in {span}, and this was one more")
    return Restart(restarts + 1, rule.delay_ms, RestartMemory(times_ms=(*recent, now_ms)))


def _exponential(rule: RestartRule, known: RestartMemory, restarts: int, now_ms: int, seed: str) -> Restart | Exhausted:
    in_a_row = known.in_a_row + 1 if known.in_a_row and not _quiet(rule, known, now_ms) else 1
    if rule.attempts is not None and in_a_row > rule.attempts:
        return Exhausted(
            f"ExponentialDelayRestart allows {_times(rule.attempts, 'restart')} in a row, and this was failure "
            f"{in_a_row}"
        )
    delay_ms = _grown(rule, in_a_row, seed)
    memory = RestartMemory(times_ms=(now_ms,), delay_ms=delay_ms, in_a_row=in_a_row)
    return Restart(restarts + 1, delay_ms, memory)


def _grown(rule: RestartRule, in_a_row: int, seed: str) -> int:
    """Give the delay after so many failures in a row: grown, then left to chance, then within its bounds."""
    # Every party must find the same delay, so chance follows from what all of them know.
    drawn = int.from_bytes(hashlib.sha256(f"{seed}/{in_a_row}".encode()).digest()[:8], "big") / 2**64
    try:
        plain = rule.delay_ms * rule.multiplier ** (in_a_row - 1)
    except OverflowError:
        return rule.max_delay_ms
    chosen = min(rule.max_delay_ms, plain * (1 + rule.jitter * (2 * drawn - 1)))
    return max(rule.delay_ms, int(chosen))


@dataclass(frozen=True, slots=True)
class _Incident:
    at_ms: int
    """The failure that was counted."""
    restart_at_ms: int
    """The restart that answers it."""


def _incident(rule: RestartRule, memory: RestartMemory | None, restart_at_ms: int) -> _Incident | None:
    """Give the last incident: of the epoch, or of the job where the strategy counts over all epochs."""
    if rule.kind is RestartKind.FIXED_DELAY:
        return _Incident(restart_at_ms - rule.delay_ms, restart_at_ms) if restart_at_ms else None
    if memory is None or not memory.times_ms:
        return None
    at_ms = memory.times_ms[-1]
    return _Incident(at_ms, at_ms + (rule.delay_ms if rule.kind is RestartKind.FAILURE_RATE else memory.delay_ms))


def _within(rule: RestartRule, known: RestartMemory, now_ms: int) -> tuple[int, ...]:
    """Give the failures of the last interval. A clock that went back makes none older than it is."""
    return tuple(each for each in known.times_ms if now_ms - each < rule.interval_ms)[-MAX_FAILURES:]


def _quiet(rule: RestartRule, known: RestartMemory, now_ms: int) -> bool:
    """Tell whether the job has run without a failure for long enough since it was last restarted."""
    return now_ms - max(known.times_ms, default=0) >= rule.interval_ms + known.delay_ms


def _times(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
