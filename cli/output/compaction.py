"""`cairn compact`: base and runs of states that grow merged into new bases, by a Spark that this command starts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from ...checkpoint.errors import InvalidConfigError
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
    store: ObjectStore, job: str, stage: str | None, state: str | None, max_bytes: int | None
) -> tuple[list[str], dict[str, Any]]:
    """Compact, and say what became of each state.

    Args:
        store: the storage root.
        job: the job's name.
        stage: the uid of the stage; None for all.
        state: the state's name; None for all of whose runs there are enough.
        max_bytes: as many bytes may be read in all.

    Raises:
        InvalidConfigError: PySpark is not installed here.
        NoCheckpointError: no checkpoint has completed, or it has no such state.
    """
    if find_spec("pyspark") is None:
        raise InvalidConfigError(
            "cairn compact merges by Spark, and PySpark is not installed here. Type: pip install "
            "'airflow-cairn[spark]'; or submit an application to your cluster that calls airflow_cairn.spark.compact"
        )
    from ...spark.compaction import compact_in

    found = list(compact_in(store, job, None, stage, state, max_bytes=max_bytes))
    lines = list(_lines(found)) or [f"no state of {job} has runs, so there is nothing to compact"]
    return lines, {"job": job, "states": [asdict(each) for each in found]}


def _lines(found: list[Compaction]) -> Iterator[str]:
    for each in found:
        parts = f"base {size(each.base_bytes)}, {each.runs} runs {size(each.run_bytes)}"
        written = f", new base {size(each.written_bytes)}" if each.outcome == "compacted" else ""
        yield f"{each.state} of {each.stage} ({parts}{written}): {_SAID[each.outcome]}"
