"""Failures: whether and when another attempt follows, and which stages run again, as pure functions (semantics F1, F4).

The author sets one of Flink's four restart strategies; a `RestartRule` travels with each attempt. `weigh` is a pure
function of the rule, the head's memory and the clock. It is called in the very swap that ends the attempt, so a failure
counts once, however often and by whomever it is reported. A failed job means a failed epoch; the count starts at zero
then.

The data of a blocking exchange persists: its reader can run again alone. Writer and reader of a pipelined exchange are
one unit: neither runs again without the other. Stages joined by pipelined exchanges form a region, and so do regions
that read from each other in a circle. A region runs again as a whole.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from datetime import timedelta

from ...storage.records import dataclass
from ..documents.attempt import RestartKind, RestartMemory, RestartRule, StageSpec
from ..documents.entries import MAX_FAILURES
from ..reasons import COUNTED, Reason

OUTAGE_MS = 3_600_000
"""Time from the first failure of the store during which such failures do not count. Longer outages are mostly
permanent: a missing right, a wrong key."""


@dataclass(frozen=True, slots=True)
class Restart:
    """The failed try is followed by another attempt."""

    count: int
    """Restarts of the epoch in a row, this one included."""
    delay_ms: int = 0
    memory: RestartMemory | None = None
    """The head's memory from now on."""


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
    of_store: bool = False,
    completed_ms: int = 0,
) -> Restart | Exhausted:
    """Decide whether a restart follows a failed try (semantics F4).

    A try belongs to the incident of an earlier counted failure if it ran already at that time and fails before the
    restart that follows it: its failure does not count, and the next try waits for that restart. The failure of a try
    that began later counts. All failures because one Spark server is gone are one incident, at any time (V4). Failures
    because of the store do not count for an hour (`OUTAGE_MS`).

    Args:
        rule: the job's strategy; None: another try may follow each failed one, as Airflow's retries allow.
        memory: the head's memory of earlier failures.
        restarts: restarts of the epoch in a row so far.
        now_ms: the time of the failure, milliseconds since 1970 UTC.
        job: the job's name, of which the jitter is a function.
        epoch: the epoch's name, of which the jitter is a function.
        restart_at_ms: due time of the restart after the epoch's last counted failure, milliseconds since 1970 UTC; 0:
            none is due.
        began_ms: trigger time of the attempt in which the failed try began, milliseconds since 1970 UTC; None: unknown,
            so the failure counts.
        server: nonce of the Spark server whose end made the try fail; empty: the try failed for another reason.
        of_store: the try failed because the store refused or did not answer.
        completed_ms: completion time of the job's newest checkpoint, milliseconds since 1970 UTC, at which the store
            answered; 0: none has completed.
    """
    if rule is None:
        return Restart(0, memory=memory)
    if rule.kind is RestartKind.NONE:
        return Exhausted("NoRestart allows no restart")
    known = memory or RestartMemory()
    incident = _incident(rule, memory, restart_at_ms)
    if server and server == known.server:
        delay_ms = incident.left_ms(now_ms) if incident is not None else 0
        return Restart(max(1, restarts), delay_ms, memory)
    shared_ms = incident.left_ms(now_ms) if incident is not None and incident.includes(began_ms, now_ms) else None
    if of_store:
        since_ms = min(known.refused_ms, now_ms) if known.refused_ms > completed_ms else now_ms
        known = replace(known, refused_ms=since_ms)
        if now_ms - since_ms < OUTAGE_MS:
            return Restart(restarts, max(rule.delay_ms, known.delay_ms) if shared_ms is None else shared_ms, known)
    if shared_ms is not None:
        return Restart(max(1, restarts), shared_ms, memory)
    verdict = _counted(rule, memory, restarts, now_ms, f"{job}/{epoch}")
    if isinstance(verdict, Restart) and (server or known.server or known.refused_ms):
        after = verdict.memory or RestartMemory()
        after = replace(after, server=server or known.server, refused_ms=known.refused_ms)
        verdict = replace(verdict, memory=after)
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
    """Give the number of failures in a row that would still lead to a restart now; None: any number.

    Args:
        rule: the job's strategy.
        memory: the head's memory of earlier failures.
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
    known_ms = (min(each, now_ms) for each in recent)  # a clock that was ahead has counted some of them: let them age
    return Restart(restarts + 1, rule.delay_ms, RestartMemory(times_ms=(*known_ms, now_ms)))


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
    """Give the delay after `in_a_row` failures: exponential, then with jitter, then within its bounds."""
    # Every process must find the same delay, so the jitter is a hash of facts that all of them know.
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
    """Time of the counted failure."""
    restart_at_ms: int
    """Due time of the restart after it."""

    def includes(self, began_ms: int | None, now_ms: int) -> bool:
        """Tell whether a try that fails now ran already at the failure, and fails before its restart."""
        return began_ms is not None and began_ms < self.at_ms <= now_ms < self.restart_at_ms

    def left_ms(self, now_ms: int) -> int:
        """Give the rest of the delay; never more than the whole delay, even if the counting clock was ahead."""
        return max(0, self.restart_at_ms - max(now_ms, self.at_ms))


def _incident(rule: RestartRule, memory: RestartMemory | None, restart_at_ms: int) -> _Incident | None:
    """Give the last incident of the epoch, or of the job if the strategy counts over all epochs."""
    if rule.kind is RestartKind.FIXED_DELAY:
        return _Incident(restart_at_ms - rule.delay_ms, restart_at_ms) if restart_at_ms else None
    if memory is None or not memory.times_ms:
        return None
    at_ms = memory.times_ms[-1]
    return _Incident(at_ms, at_ms + (rule.delay_ms if rule.kind is RestartKind.FAILURE_RATE else memory.delay_ms))


def _within(rule: RestartRule, known: RestartMemory, now_ms: int) -> tuple[int, ...]:
    """Give the failures of the last interval; a clock that went back ages none of them."""
    return tuple(each for each in known.times_ms if now_ms - each < rule.interval_ms)[-MAX_FAILURES:]


def _quiet(rule: RestartRule, known: RestartMemory, now_ms: int) -> bool:
    """Tell whether the job has run without a failure for long enough since its last restart."""
    return now_ms - max(known.times_ms, default=0) >= rule.interval_ms + known.delay_ms


def _times(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


# The failure manager, as Flink's: counts failed checkpoints, and fails the job after too many (semantics D5).
#
# The head keeps the counted failures in a row since the newest success. An id is counted once because it ends once
# (semantics D3). If the job fails, its pending checkpoints end with `JOB_FAILURE`, the count starts at zero, and
# `wait_for_checkpoint` of the last failed one fails. A retry, a clear or the next run starts the job again from its
# latest completed checkpoint.


@dataclass(frozen=True, slots=True)
class FailureCount:
    """Effect of a failed checkpoint on the job."""

    count: int
    """Counted failures in a row from now on."""
    job_fails: bool


def count_failure(
    count: int, reason: Reason | None, tolerable: int, *, checkpoint: int | None, newest_success: int | None
) -> FailureCount:
    """Count a failure (semantics D5).

    Args:
        count: counted failures in a row so far.
        reason: why the checkpoint failed.
        tolerable: number of failures in a row that the job tolerates.
        checkpoint: its id; None where it never got one: then it counts each time.
        newest_success: the newest completed checkpoint; failures of older ones do not count.
    """
    old = checkpoint is not None and newest_success is not None and checkpoint < newest_success
    if reason not in COUNTED or old:
        return FailureCount(count, job_fails=False)
    if count >= tolerable:
        return FailureCount(0, job_fails=True)
    return FailureCount(count + 1, job_fails=False)


def verdict(in_a_row: int, tolerable: int, root_cause: str) -> str:
    """Say for users that the job failed after failures in a row, the newest of which is the root cause."""
    failed = "1 checkpoint failed" if in_a_row == 1 else f"{in_a_row} checkpoints in a row failed"
    return f"{failed} and tolerable_failed_checkpoints is {tolerable}: {root_cause}"


def regions_of(stages: tuple[StageSpec, ...]) -> tuple[frozenset[str], ...]:
    """Give the regions of a job, in the order of their first stages (semantics F1)."""
    joined: dict[str, set[str]] = {spec.uid: set() for spec in stages}
    for spec in stages:
        for uid in spec.pipelined:
            joined[spec.uid].add(uid)
            joined[uid].add(spec.uid)
    region: dict[str, str] = {}
    for spec in stages:
        for uid in reached(joined, [spec.uid]) if spec.uid not in region else ():
            region[uid] = spec.uid
    reads: dict[str, set[str]] = {name: set() for name in region.values()}
    for spec in stages:
        reads[region[spec.uid]].update(region[uid] for uid in spec.upstream)
    circle = _circles(reads)
    found: dict[str, set[str]] = {}
    for spec in stages:
        found.setdefault(circle[region[spec.uid]], set()).add(spec.uid)
    return tuple(frozenset(uids) for uids in found.values())


def affected_regions(
    stages: tuple[StageSpec, ...], failed: Iterable[str], missing: Collection[str] = (), *, consumers: bool = True
) -> frozenset[str]:
    """Give the stages whose executions do not count after a failure, whether or not they had begun (semantics F1).

    Args:
        stages: all stages of the job.
        failed: stages that have failed.
        missing: stages whose output is gone or altered; they run again only if another stage has to read it.
        consumers: whether the readers of a stage that runs again do so too; False for at-least-once stages (B2).
    """
    region = {uid: uids for uids in regions_of(stages) for uid in uids}
    readers, upstream = readers_of(stages), {spec.uid: spec.upstream for spec in stages}
    found: set[str] = set()
    todo = list(failed)
    while todo:
        uid = todo.pop()
        if uid in found:
            continue
        found |= region[uid]
        for each in region[uid]:
            todo += readers[each] if consumers else []
            todo += [producer for producer in upstream[each] if producer in missing]
    return frozenset(found)


def _circles(graph: Mapping[str, Collection[str]]) -> dict[str, str]:
    """Map each node to the name of its circle, or to its own where it is in none (Kosaraju's two walks)."""
    order: list[str] = []
    seen: set[str] = set()
    for root in graph:
        walk = [(root, False)]
        while walk:
            name, done = walk.pop()
            if done:
                order.append(name)
            elif name not in seen:
                seen.add(name)
                walk.append((name, True))
                walk += [(each, False) for each in graph[name]]
    back: dict[str, list[str]] = {name: [] for name in graph}
    for name, targets in graph.items():
        for each in targets:
            back[each].append(name)
    circle: dict[str, str] = {}
    for root in reversed(order):
        todo = [root]
        while todo:
            name = todo.pop()
            if name not in circle:
                circle[name] = root
                todo += back[name]
    return circle


# The stages of a job as a graph.


def consumers(stages: tuple[StageSpec, ...], uids: Iterable[str]) -> frozenset[str]:
    """Give the stages that read, directly or through others, what one of `uids` writes."""
    readers = readers_of(stages)
    return reached(readers, (each for uid in uids for each in readers[uid]))


def producers(stages: tuple[StageSpec, ...], uid: str) -> frozenset[str]:
    """Give the stages whose outputs `uid` reads, directly or through others."""
    upstream = {stage.uid: stage.upstream for stage in stages}
    return reached(upstream, upstream[uid])


def readers_of(stages: tuple[StageSpec, ...]) -> dict[str, list[str]]:
    """Give the readers of each stage."""
    readers: dict[str, list[str]] = {stage.uid: [] for stage in stages}
    for stage in stages:
        for uid in stage.upstream:
            readers[uid].append(stage.uid)
    return readers


def reached(graph: Mapping[str, Iterable[str]], start: Iterable[str]) -> frozenset[str]:
    """Give the given nodes of a graph, and all that can be reached from them."""
    found: set[str] = set()
    todo = list(start)
    while todo:
        name = todo.pop()
        if name not in found:
            found.add(name)
            todo += graph[name]
    return frozenset(found)


def members_of(stages: tuple[StageSpec, ...], upstream: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """Give the mapped tasks that a stage reads, by their common names, each with its stages in the order of the job.

    Args:
        stages: of the job.
        upstream: the stages that the stage reads; a mapped task counts only if all its stages are among them.
    """
    found: dict[str, list[str]] = {}
    for stage in stages:
        if stage.member_of is not None:
            found.setdefault(stage.member_of, []).append(stage.uid)
    return {name: tuple(uids) for name, uids in found.items() if set(uids) <= set(upstream)}
