"""Partial completion: the stages that a checkpoint may complete without, and their backlogs (semantics B3, F6).

Pure functions of the pending document, the head and the markers. Two causes share one mechanism: a stage that lags when
the alignment timeout has run out, and a failed region. With a stage that is left out go all its downstream stages: a
stage must never see an epoch of one upstream and not of another (B1). A lagging stage does not take its region along,
not even behind a pipelined exchange, because its unread data is part of the checkpoint. A failed stage takes its region
along. While a savepoint waits for a checkpoint, no stage is left out of it (T4).

An at-least-once stage (B2) takes part. Upstream data that it has not read is its backlog: data in flight of the
completed checkpoint, which its next run reads first. This backlog belongs to the edge, not to the stage, and an
acknowledgement ends the earlier backlog. So an edge has a backlog of at most one epoch.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from datetime import timedelta

from ...storage.records import dataclass
from ..answers import TriggerRequest
from ..documents import codec
from ..documents.acknowledgement import AckDocument
from ..documents.attempt import MAX_BACKLOG_BYTES, BacklogEpoch, LeaveOut, PendingDocument, StageSpec
from ..documents.entries import PendingEntry
from ..documents.head import Head
from ..documents.strict_json import to_json
from . import history
from .failures import affected_regions as affected
from .failures import consumers, regions_of


@dataclass(frozen=True, slots=True)
class Without:
    """The checkpoint may complete without `stages`; empty if all have acknowledged."""

    stages: frozenset[str] = frozenset()
    failed: frozenset[str] = frozenset()
    """Failed stages among `stages`, their regions, and the downstream stages of these; all others lag."""


@dataclass(frozen=True, slots=True)
class StageReports:
    """Markers of an attempt's executions."""

    acknowledged: frozenset[str]
    given_up: frozenset[str] = frozenset()
    """Stages that get no other try, as their tasks have reported."""


def rule_of(request: TriggerRequest) -> LeaveOut | None:
    """Give the rule by which a request's attempts may leave out stages; None: never."""
    config, regional = request.config, request.config.regional
    if not (config.unaligned or regional):
        return None
    return LeaveOut(
        alignment_timeout_ms=config.alignment_timeout // timedelta(milliseconds=1) if config.unaligned else None,
        max_backlog=config.max_backlog,
        max_failure_ratio=regional.max_failure_ratio if regional else None,
        max_consecutive_failures=regional.max_consecutive_failures if regional else 0,
    )


def decide(
    head: Head, entry: PendingEntry, document: PendingDocument, seen: StageReports, now_ms: int
) -> Without | None:
    """Decide whether the checkpoint may complete now, and without which stages; None while it has to wait."""
    missing = frozenset(document.executions) - seen.acknowledged
    if not missing:
        return Without()
    rule = document.limits.leave_out
    if rule is None or history.savepoint_awaited(head):
        return None
    found = _without(head, entry, document, missing, seen.given_up - seen.acknowledged, now_ms)
    if found is None and now_ms >= entry.expires_at_ms:
        # At the timeout silent stages count as failed, if the checkpoint could not complete otherwise (D2, F6).
        found = _without(head, entry, document, missing, missing, now_ms)
    return found


def _without(
    head: Head,
    entry: PendingEntry,
    document: PendingDocument,
    missing: frozenset[str],
    given_up: frozenset[str],
    now_ms: int,
) -> Without | None:
    rule = document.limits.leave_out
    assert rule is not None  # asked only where stages may be left out
    failed = affected(document.stages, given_up)
    if failed and not may_fail(head, document, failed):
        return None
    lagging = closed(document.stages, missing - failed) - failed
    if not lagging:
        return Without(failed, failed)
    if rule.alignment_timeout_ms is None or now_ms < entry.triggered_at_ms + rule.alignment_timeout_ms:
        return None
    if any(not spec.upstream for spec in document.stages if spec.uid in lagging):
        return None
    left_out = failed | lagging
    longest = max(len(document.backlogs.get(uid, ())) for uid in lagging) + len(document.replay) + 1
    return Without(left_out, failed) if longest <= rule.max_backlog and fits(document, left_out) else None


def may_fail(head: Head, document: PendingDocument, failed: frozenset[str]) -> bool:
    """Tell whether the checkpoint may complete although these stages failed (semantics F6).

    Args:
        head: the version decided on; its newest completed checkpoint counts the regional ones in a row.
        document: of the pending checkpoint.
        failed: stages that failed, their regions, and all their downstream stages.
    """
    rule = document.limits.leave_out
    if rule is None or rule.max_failure_ratio is None or history.savepoint_awaited(head):
        return False
    latest = head.latest_completed()
    if latest is not None and latest.regional_in_a_row >= rule.max_consecutive_failures:
        return False
    regions = regions_of(document.stages)
    lost = sum(not failed.isdisjoint(region) for region in regions)
    return lost < len(regions) and lost / len(regions) <= rule.max_failure_ratio and fits(document, failed)


def closed(stages: tuple[StageSpec, ...], uids: Collection[str]) -> frozenset[str]:
    """Give the stages with all their downstream stages."""
    return frozenset(uids) | consumers(stages, uids)


def backlogs_after(document: PendingDocument, left_out: Collection[str]) -> dict[str, tuple[BacklogEpoch, ...]]:
    """Give the backlog of each stage once the checkpoint has completed without `left_out`, oldest epoch first.

    A backlog holds the earlier backlog, the epochs whose input the attempt reads again, and the attempt's own epoch.
    An upstream's output covers all of the latter two, and is named under the last epoch.

    Args:
        document: of the pending checkpoint.
        left_out: stages that it leaves out, with all their downstream stages.
    """
    backlogs = {}
    for spec in document.stages:
        if spec.uid not in left_out:
            continue
        inputs = {uid: document.executions[uid] for uid in spec.upstream if uid not in left_out}
        own = BacklogEpoch(document.epoch, replace(document.slice, positions=None), inputs)
        replayed = (BacklogEpoch(each.epoch, each.slice) for each in document.replay)
        backlogs[spec.uid] = (*document.backlogs.get(spec.uid, ()), *replayed, own)
    return backlogs


def unread_by(document: PendingDocument, ack: AckDocument, spec: StageSpec | None) -> tuple[BacklogEpoch, ...]:
    """Give the backlog of a stage that has acknowledged, once the checkpoint has completed (semantics B2).

    It includes an upstream that has run again since the stage read from it: the stage reads that output a second time,
    as at-least-once allows. A skipped stage keeps its backlog in any mode: its author chose not to read this epoch.
    """
    if ack.skipped:
        return document.backlogs.get(ack.stage, ())
    if spec is None or not document.limits.at_least_once:
        return ()
    executions = {uid: document.executions[uid] for uid in spec.upstream}
    inputs = {uid: each for uid, each in executions.items() if ack.consumed.get(uid) != each.token}
    return (BacklogEpoch(document.epoch, inputs=inputs),) if inputs else ()


def fits(document: PendingDocument, left_out: Collection[str]) -> bool:
    """Tell whether the backlogs fit into the next attempt's documents; if not, no further stage is left out."""
    backlogs = backlogs_after(document, left_out)
    return len(codec.encode(to_json(backlogs))) <= MAX_BACKLOG_BYTES
