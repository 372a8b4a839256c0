"""The kinds of jobs: each seed has one, so that what a job has beside its stages makes no other job's steps dearer."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from functools import cache

from airflow_cairn.checkpoint import CheckpointConfig, RegionalCheckpoints

MAX_BACKLOG = 2
IN_A_ROW = 2

_ALONE = ("plain", "early", "regional", "unaligned", "unaligned regional")
_TWO_AT_ONCE = ("plain", "early", "regional")
_AROUND = ("", "source", "hooks", "source hooks")
_PIPELINED = ("", "routes", "report")


@dataclass(frozen=True)
class Kind:
    """Features of a job."""

    concurrent: int
    """`max_concurrent_checkpoints`."""
    listened: bool
    """Listeners, and stages that stage something for them (semantics C4, D4)."""
    has_source: bool
    """Input given by a source (semantics T8)."""
    hooked: bool
    """A master hook (semantics T7)."""
    early: bool
    """Stages that read what is there (semantics B2)."""
    regional: bool
    """Checkpoints that may complete although a region failed (semantics F6)."""
    unaligned: bool
    """Checkpoints that may complete without stages that lag (semantics B3)."""
    saved: bool
    """Somebody takes savepoints of it (semantics P1)."""
    owned: bool
    """An owner who stops it with savepoints, starts it from them, goes back, and throws them away (P2, P3, R6)."""
    grown: bool
    """States of the last stage that grow by deltas, which somebody compacts (semantics K1, K2, K3, K7)."""
    pipelined: str
    """The stage that reads the first of its upstreams by a pipelined exchange (semantics F1); empty: none."""

    @property
    def leaves_out(self) -> bool:
        """Whether a checkpoint may complete without some stages."""
        return self.regional or self.unaligned


@cache
def kind_of(seed: int) -> Kind:
    """Give the kind of a seed's job."""
    turn = seed // 2
    alone = seed % 2 == 0
    mode = _ALONE[turn % len(_ALONE)] if alone else _TWO_AT_ONCE[turn % len(_TWO_AT_ONCE)]
    around = _AROUND[turn // len(_ALONE) % len(_AROUND)] if alone else ""
    return Kind(
        concurrent=1 if alone else 2,
        listened=seed % 3 == 0,
        has_source="source" in around,
        hooked="hooks" in around,
        early="early" in mode,
        regional="regional" in mode,
        unaligned="unaligned" in mode,
        saved=seed % 5 == 1 or seed % 5 == 2,
        owned=seed % 5 == 2,
        grown=seed % 9 in (2, 3),
        pipelined=_PIPELINED[turn // len(_ALONE if alone else _TWO_AT_ONCE) % len(_PIPELINED)]
        if mode == "plain"
        else "",
    )


def config_of(seed: int) -> CheckpointConfig:
    """Give how the job makes checkpoints."""
    kind = kind_of(seed)
    return CheckpointConfig(
        timeout=timedelta(minutes=10),
        retained=1 + seed // 11 % 3,
        max_concurrent_checkpoints=kind.concurrent,
        min_pause=timedelta(seconds=seed // 7 % 5),
        tolerable_failed_checkpoints=seed // 13 % 3,
        unaligned=kind.unaligned,
        alignment_timeout=timedelta(seconds=4 if kind.unaligned else 0),
        max_backlog=MAX_BACKLOG,
        # Of three stages two may fail: the middle one takes the last one along.
        regional=RegionalCheckpoints(0.7, IN_A_ROW) if kind.regional else None,
        mode="at_least_once" if kind.early else "exactly_once",
    )
