"""The arithmetic of `bench.state`: frequencies of the kinds of epochs, and figures weighted by them."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from airflow_cairn.checkpoint.documents.acknowledgement import StateHandle
from airflow_cairn.spark.stored import deltas, merges

from .spark_cost import Spent

_EXTRAPOLATED = 200_000_000


Kind = Literal["run", "merge", "base"]
"""An epoch's output: a delta, several deltas merged into one, or a new base."""


@dataclass(frozen=True)
class Round:
    """One epoch of one way to keep a state, and of its rivals in their turns."""

    mine: Spent
    rivals: Mapping[str, Spent]
    size_bytes: int = 0
    """Bytes of the data files that the epoch wrote."""
    kind: Kind = "run"
    epoch: Spent | None = None
    """The whole epoch, if it is more than `mine`."""


def cycle(snapshot_bytes: int, run_bytes: int, share: float, *, partials: bool = False) -> dict[Kind, int]:
    """Count the epochs of each kind from one new base to the next, by a job's limits (semantics K3).

    The share of the keys that change in an epoch is drawn each time; a merged delta has each key once.
    """
    counts: dict[Kind, int] = {"run": 0, "merge": 0, "base": 1}
    if merges.is_small([StateHandle("", "", snapshot_bytes, "")]):
        return counts
    live: dict[int, int] = {}
    """By number, the epochs that a delta contains."""
    for number in range(1, deltas.MAX_EPOCHS + 1):
        there = [StateHandle("", "", snapshot_bytes, "")]
        for number_of, epochs in live.items():
            keys = epochs if share >= 1 else (1 - (1 - share) ** epochs) / share
            there.append(StateHandle("", "", int(run_bytes * keys), "", delta=number_of))
        if deltas.is_due(there, partials=partials):
            break
        together = deltas.to_merge(there, partials=partials)
        counts["merge" if together else "run"] += 1
        live[number] = 1 + sum(live.pop(each) for each in together)
    return counts


def amortised(rounds: Sequence[Round], value: Iterable[float], counts: Mapping[Kind, int]) -> float:
    """Return the mean of an epoch over this many epochs of each kind.

    Each kind counts by its measured median.

    Raises:
        ValueError: a kind was not measured.
    """
    of = medians(rounds, value)
    if missing := [kind for kind, count in counts.items() if count and kind not in of]:
        raise ValueError(f"no epoch wrote a {missing[0]}: give other --epochs, --history or --fan-in")
    return sum(of[kind] * count for kind, count in counts.items() if count) / sum(counts.values())


def medians(rounds: Sequence[Round], value: Iterable[float]) -> dict[Kind, float]:
    """Return the median of each kind of epoch that occurred."""
    return {kind: statistics.median(values) for kind, values in by_kind(rounds, value).items()}


def by_kind(rounds: Sequence[Round], value: Iterable[float]) -> dict[Kind, list[float]]:
    """Return the values of the epochs of each kind that occurred."""
    found: dict[Kind, list[float]] = {}
    for each, one in zip(rounds, value, strict=True):
        found.setdefault(each.kind, []).append(one)
    return found


def ratios(name: str, rounds: Sequence[Round], rival: str, counts: Mapping[Kind, int]) -> dict[str, object]:
    """Compute the figures of one way against one rival; `…_spread` has the smallest and largest of each kind's."""
    seconds = [each.mine.seconds / each.rivals[rival].seconds for each in rounds]
    epochs = [(each.epoch or each.mine).seconds / each.rivals[rival].seconds for each in rounds]
    cpu = [each.mine.cpu / each.rivals[rival].cpu for each in rounds]
    of = by_kind(rounds, seconds)
    return {
        f"{name}_ratio": round(amortised(rounds, seconds, counts), 3),
        f"{name}_cpu_ratio": round(amortised(rounds, cpu, counts), 3),
        f"{name}_epoch_ratio": round(amortised(rounds, epochs, counts), 3),
        **{f"{name}_{kind}_ratio": round(one, 3) for kind, one in sorted(medians(rounds, seconds).items())},
        f"{name}_spread": {kind: [round(end(seconds_of), 3) for end in (min, max)] for kind, seconds_of in of.items()},
    }


def bytes_share(rounds: Sequence[Round], snapshot_bytes: float, counts: Mapping[Kind, int]) -> float:
    """Return the ratio of an epoch's bytes to a snapshot's."""
    return amortised(rounds, [each.size_bytes for each in rounds], counts) / snapshot_bytes


def at_200_million(small: Mapping[str, Any], large: Mapping[str, Any]) -> dict[str, object]:
    """Extrapolate two measured sizes to 200 million keys, along a straight line.

    A straight line misses effects that begin only beyond both sizes: deltas no longer broadcast, more cores.
    """

    def there(one: float, other: float) -> float:
        step: float = (other - one) / (large["keys"] - small["keys"])
        return max(0.0, other + step * (_EXTRAPOLATED - int(large["keys"])))

    seconds = {name: round(there(small["seconds"][name], large["seconds"][name]), 1) for name in large["seconds"]}
    snapshot = there(small["snapshot_bytes"], large["snapshot_bytes"])
    words = (
        f"If all goes on as from {small['keys']:,} to {large['keys']:,} keys, with 200 million keys on these cores an "
        f"epoch updates {large['changed'] / large['keys']:.1%} of them in {seconds['update']:,.0f} s and writes "
        f"{large['bytes_share'] * snapshot / 1e9:.1f} GB in the mean; plain Spark "
        f"that writes all takes {seconds['anti_join']:,.0f} s and writes {snapshot / 1e9:.1f} GB."
    )
    return {"snapshot_bytes": int(snapshot), "seconds": seconds, "words": words}
