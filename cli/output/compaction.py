"""`cairn compact`: merges bases and deltas of growing states into new bases, with a Spark that this command starts."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ...checkpoint.views.wording import size
from ...storage.port import ObjectStore

if TYPE_CHECKING:
    from ...spark.compaction import Compaction

_SAID = {
    "compacted": "compacted; an epoch that begins from now on adopts the new base",
    "small": "left, because its runs are small beside its base; name the state to compact it all the same",
    "over budget": "left, because it has more bytes than --max-bytes leaves",
    "waits": "left, because a new base waits until an epoch adopts it",
    "under way": "left, because another compactor is at work on it",
    "lost": "not compacted: an epoch replaced its files meanwhile, or another compactor gave it up; try again",
}


def compact(
    store: ObjectStore, options: argparse.Namespace, say: Callable[[str], None]
) -> tuple[Iterable[str], dict[str, Any]]:
    """Compact states, and report each: as lines one by one; with `--json` in one document when all are done.

    Args:
        store: the storage root.
        options: the command's arguments.
        say: receives the name of the next state, whose merge may take hours.

    Raises:
        InvalidConfigError: PySpark is not installed here.
        NoCheckpointError: no checkpoint has completed, or it has no such state.
    """
    from ...spark.pyspark_versions import check_starts_here

    check_starts_here("cairn compact (or submit an application that calls airflow_cairn.spark.compact)")

    from ...spark.compaction import compact_in

    job: str = options.job
    found = compact_in(
        store,
        job,
        None,
        options.stage,
        options.name,
        max_bytes=options.max_bytes,
        on_begin=lambda each: say(f"merging {_parts(each)}"),
    )
    if options.json:
        return [], {"job": job, "states": [asdict(each) for each in found]}
    return _lines(job, found), {}


def _lines(job: str, found: Iterable[Compaction]) -> Iterator[str]:
    none = True
    for each in found:
        none = False
        written = f", new base {size(each.written_bytes)}" if each.outcome == "compacted" else ""
        yield f"{_parts(each, written)}: {_SAID[each.outcome]}"
    if none:
        yield f"no state of {job} has runs, so there is nothing to compact"


def _parts(each: Compaction, written: str = "") -> str:
    return (
        f"{each.state} of {each.stage} (base {size(each.base_bytes)}, {each.runs} runs {size(each.run_bytes)}{written})"
    )
